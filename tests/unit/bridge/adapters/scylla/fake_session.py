"""A session to a server that has only ScyllaDB's metadata tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from bridge.adapters.scylla.session import NodeRows

V2_TIMES, V2_STREAMS = "system_distributed.cdc_generation_timestamps", "system_distributed.cdc_streams_descriptions_v2"
V1, LOCAL, KEYSPACES = (
    "system_distributed.cdc_streams_descriptions", "system.cdc_local", "system_schema.scylla_keyspaces",
)  # fmt: skip
TABLET_TIMES, TABLET_STREAMS = "system.cdc_timestamps", "system.cdc_streams"
COLUMNS = {KEYSPACES: ["keyspace_name", "initial_tablets"], V1: ["time", "streams"], LOCAL: ["key"], V2_TIMES: ["time"]}
"""Columns of the tables whose existence depends on the release."""


@dataclass
class FakeSession:
    """Tables as lists of rows; supports only the forms of SELECT that the module uses."""

    tables: dict[str, list[dict[str, Any]]]
    node_count: int = 1
    address: str = "test:1"
    settings: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(metadata_consistency=None))
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: COLUMNS)

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        words = cql.split()
        name = words[words.index("FROM") + 1]
        columns = cql.removeprefix("SELECT ").split(" FROM ")[0].split(",")
        self.asked.append((name, consistency))
        if name == "system_schema.columns":
            wanted = cql.split("'")[1] + "." + cql.split("'")[3]
            return [{"column_name": column} for column in self.columns[wanted] if wanted in self.tables]
        assert name in self.tables, f"ScyllaDB would refuse {cql}: unconfigured table {name}"
        found, values = self.tables[name], iter(parameters)
        where = cql.split(" WHERE ")[1].split(" LIMIT ")[0] if " WHERE " in cql else ""
        for condition in filter(None, where.split(" AND ")):
            column, operator, literal = condition.split()
            value: Any = next(values) if literal == "?" else literal.strip("'")
            found = [row for row in found if _holds(_plain(row[column]), operator, value)]
        if column_order := {"range_end"} & (found[0].keys() if found else set()):
            found = sorted(found, key=lambda row: row[min(column_order)])
        found = found[: int(cql.split(" LIMIT ")[1])] if " LIMIT " in cql else found
        return [{column.strip(): row[column.strip()] for column in columns} for row in found]

    def node_rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> NodeRows:
        return NodeRows("10.0.0.1:9042", self.rows(cql, parameters, consistency))

    def cells(
        self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None
    ) -> Iterator[tuple[bytes | None, ...]]:
        """The count of each set of streams; None for other columns."""
        for row in self.rows(cql, parameters, consistency):
            yield tuple(
                len(cell).to_bytes(4, "big") if name == "streams" and cell else None for name, cell in row.items()
            )


def _plain(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _holds(cell: Any, operator: str, value: Any) -> bool:
    return {"=": cell == value, ">": cell > value, "<=": cell <= value}[operator] if operator != "=" else cell == value


def time(start_ms: int) -> datetime:
    return datetime.fromtimestamp(start_ms / 1000, UTC).replace(tzinfo=None)
