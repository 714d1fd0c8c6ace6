"""A captured table without servers: from CQL statements through its log to the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from bridge.encoding.group_encoder import EncodedChange, GroupEncoder
from bridge.encoding.grouping import groups
from bridge.model.log_rows import Cells, LogLayout
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.cql.interpret import Request
from sandbox.cql.server import Logged, StatementServer
from sandbox.scylla.base.state import BaseState
from schemas.cql.table import TableSchema
from schemas.cql.types import resolve
from schemas.options import OutputOptions, RecordForm
from schemas.shapes.catalog import shape_of
from schemas.table_codec import TableCodec
from tests.unit.sandbox.scylla.log_records import records_of
from tests.unit.schemas.example_tables import log_columns

START_US = UnixMicros(1_769_860_800_000_000)  # 2026-01-31T12:00:00Z
STEP_US = 1_000_000
STREAM = bytes.fromhex("ced0000000000000000000000000c0a1")
GENERATION_MS = UnixMillis(1_769_860_000_000)
_LOW = bytes.fromhex("8000000000000001")


@cache
def _codec(schema: TableSchema, columns: tuple[str, ...], output: OutputOptions) -> TableCodec:
    """Return a codec; the cache serves the many tests of one table."""
    return TableCodec(schema, columns, output)


class DecodedRecord(NamedTuple):
    """A record with its key and value decoded; the value of a tombstone is None."""

    key: dict[str, Any]
    value: dict[str, Any] | None
    record: EncodedChange


class Capture:
    """A captured table and its server; each statement is executed one second after the one before."""

    def __init__(
        self,
        *ddl: str,
        output: OutputOptions = OutputOptions(),  # noqa: B008
        form: RecordForm = RecordForm(),  # noqa: B008
    ) -> None:
        """Execute statements; the last one creates the table."""
        self._server = StatementServer("shop")
        self._now_us = UnixMicros(START_US - STEP_US)
        for statement in ddl:
            self._server.execute(statement, Request(START_US, START_US))
        self.table = self._server.catalog.tables[-1]
        self.schema = _resolved(self._server, self.table.table_schema)
        self.columns = log_columns(self.schema)
        self.layout = LogLayout.of(
            self.columns,
            [one.name for one in self.schema.partition_key],
            [one.name for one in self.schema.clustering],
        )
        form = replace(form, primary_key=output.key == "primary_key")
        self.by_row = shape_of(output.shape).by_row
        self.codec = _codec(self.schema, tuple(self.columns), output)
        self._encoder = GroupEncoder(self.codec, self.layout, (self.schema.keyspace, self.schema.name), form)

    @property
    def base(self) -> BaseState:
        """The content of the table on the server."""
        return self._server.base(self.table)

    def rows(self, statement: str) -> list[Cells]:
        """Return the log rows of a statement."""
        self._now_us = UnixMicros(self._now_us + STEP_US)
        return self._rows(self._server.execute(statement, Request(self._now_us, self._now_us)))

    def run(self, *statements: str) -> list[DecodedRecord]:
        """Return the records of statements."""
        return [one for statement in statements for one in self.records(self.rows(statement))]

    def values(self, *statements: str) -> list[Any]:
        """Return the values of the records without `source`."""
        found = [one.value for one in self.run(*statements)]
        return [value and {name: one for name, one in value.items() if name != "source"} for value in found]

    def records(self, rows: Iterable[Cells], *, keep_failures: bool = False) -> list[DecodedRecord]:
        """Return the records of log rows."""
        found = groups(rows, self.layout, by_row=self.by_row, keep_failures=keep_failures)
        return [self._decode(one) for group in found for one in self._encoder.encode(group, GENERATION_MS)]

    def _decode(self, record: EncodedChange) -> DecodedRecord:
        if record.is_dead_letter:
            return DecodedRecord({}, None, record)
        value = None if record.value is None else self.codec.decode_value(record.value)
        return DecodedRecord(self.codec.decode_key(record.key), value, record)

    def _rows(self, logged: Iterable[Logged]) -> list[Cells]:
        rows: list[Cells] = []
        for entry in logged:
            for group, records in zip(entry.groups, records_of(entry), strict=True):
                place = {"cdc$stream_id": STREAM, "cdc$time": timeuuid_of(group.timestamp_us, _LOW)}
                rows += [tuple((place | record).get(column) for column in self.columns) for record in records]
        return rows


def _resolved(server: StatementServer, table: TableSchema) -> TableSchema:
    types = {one.name: one.fields for one in server.catalog.user_types(table.keyspace)}
    return replace(table, columns=tuple(replace(one, type=resolve(one.type, types)) for one in table.columns))
