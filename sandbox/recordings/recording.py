"""A recording as values, and its file form. Pure but for reading the package's own data files.

A file is gzipped JSON, format version 2 (cells are hex of the bytes on the wire, null is null):

```
{"v": 2, "scenario": "ttl", "keyspace": "rec",
 "steps": [{"cql": [["CREATE TABLE rec.tt (...) WITH cdc = {...}", []]], "at": 1795249175000000, "now": ...},
           {"cql": [["INSERT INTO rec.tt (pk, a) VALUES (?, 1)", [7]]], "at": ..., "now": ..., "rows": {"tt": [0]}}],
 "tables": [{"name": "tt", "columns": [["pk", "int", "partition_key", 0], ["a", "int", "regular", -1]],
             "log_columns": [["cdc$stream_id", "blob"], ...],
             "log_names": ["cdc$stream_id", ...], "log": [["c2cd..61", "1c21..db", ...], ...]}],
 "generations": [{"start_ms": 1795249090552, "streams": [[-7351677504331929430, ["7f03..01", ...]], ...]}]}
```

Log rows stand in the order in which they appeared. A vnode's streams stand in the server's own order, by shard.
A step with `"batch": true` is a batch of the native protocol; `keys` are the list cells' keys that the server made.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from bridge.model.log_rows import Cells
from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.cql.parser.terms import UNSET, Term, from_json
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

FORMAT_VERSION: Final = 2
_SUFFIX: Final = ".json.gz"
_UNSET_FORM: Final = "<UNSET>"
_NEVER_EMPTY: Final = frozenset({"date", "smallint", "time", "tinyint"})

LogRow = Mapping[str, bytes | None]
"""One row of a log by column."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One request that the server carried out.

    Attributes:
        statements: one, or those of a batch of the native protocol, with the values of their markers as JSON has them.
        is_batch: which of the two.
        at_us: its timestamp where the statements give none: the client's from the protocol's frame, or the server's.
        now_us: the server's clock.
        list_keys: keys of the list cells that it added, in the server's order of keys.
        rows: numbers of the log rows that appeared with it, by table.
    """

    statements: tuple[tuple[str, tuple[object, ...]], ...]
    is_batch: bool
    at_us: UnixMicros
    now_us: UnixMicros
    list_keys: tuple[bytes, ...]
    rows: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """One captured table with its log.

    Attributes:
        name: of the base table.
        columns: name, type, kind and position of each base column at the end, as `system_schema.columns` has them.
        log_columns: name and type of each log column at the end, the three key columns first.
        log_names: what the cells of a log row are, columns included that were dropped later.
        log: the log's rows, each as it looked when it appeared; cells in the order of `log_names`.
    """

    name: str
    columns: tuple[tuple[str, str, str, int], ...]
    log_columns: tuple[tuple[str, str], ...]
    log_names: tuple[str, ...]
    log: tuple[Cells, ...]

    @property
    def rows(self) -> tuple[LogRow, ...]:
        """The log's rows by column."""
        return tuple(dict(zip(self.log_names, row, strict=True)) for row in self.log)

    @property
    def unloadable_times(self) -> frozenset[bytes]:
        """`cdc$time` of the groups that Cassandra, the local stack's server, can't hold.

        ScyllaDB takes empty values of every fixed-width type; Cassandra has none of four of them.
        """
        strict = {name for name, type_text in self.log_columns if type_text in _NEVER_EMPTY}
        at = [place for place, name in enumerate(self.log_names) if name in strict]
        return frozenset(row[1] or b"" for row in self.log if any(row[place] == b"" for place in at))

    @property
    def loadable_log(self) -> tuple[Cells, ...]:
        """The log without `unloadable_times`."""
        odd = self.unloadable_times
        return tuple(row for row in self.log if row[1] not in odd)

    def table_schema(self, keyspace: str) -> TableSchema:
        """The base table's schema at the end."""
        columns = (
            Column(name, parse(type_text), ColumnKind(kind), position)
            for name, type_text, kind, position in self.columns
        )
        return TableSchema(keyspace, self.name, tuple(columns))


@dataclass(frozen=True, slots=True)
class RecordedGeneration:
    """One generation.

    Attributes:
        start_ms: its timestamp.
        streams: for each range end, ascending, the vnode's streams in shard order.
    """

    start_ms: UnixMillis
    streams: tuple[tuple[Token, tuple[StreamId, ...]], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """One scenario.

    Attributes:
        scenario: its name.
        keyspace: the keyspace in which it was recorded.
        steps: what the server carried out, in order; what it refused is left out.
        tables: those that have log rows.
        generations: those that the log rows belong to, and all between them, oldest first.
    """

    scenario: str
    keyspace: str
    steps: tuple[RecordedStep, ...]
    tables: tuple[RecordedTable, ...]
    generations: tuple[RecordedGeneration, ...]

    @classmethod
    def load(cls, scenario: str) -> Recording:
        """Read a scenario that comes with the package.

        Raises:
            FileNotFoundError: there is no such scenario.
            ValueError: the file has another format version.
        """
        raw = files(__package__).joinpath("data", scenario + _SUFFIX).read_bytes()
        return cls.from_form(json.loads(gzip.decompress(raw)))

    @classmethod
    def from_form(cls, form: dict[str, Any]) -> Recording:
        """Read the file form.

        Raises:
            ValueError: it has another format version.
        """
        if form["v"] != FORMAT_VERSION:
            raise ValueError(f"a recording of format {form['v']}; this code reads {FORMAT_VERSION}")
        return cls(
            form["scenario"],
            form["keyspace"],
            tuple(_step(step) for step in form["steps"]),
            tuple(_table(table) for table in form["tables"]),
            tuple(_generation(generation) for generation in form["generations"]),
        )

    def table(self, name: str) -> RecordedTable:
        """One table by its name.

        Raises:
            KeyError: the scenario has no such table.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)


def parameter(value: object) -> Term:
    """Return the value of a statement's marker, from its form in JSON.

    Raises:
        CqlError: the value is not a JSON value.
    """
    return UNSET if value == _UNSET_FORM else from_json(value)


def scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with the package, sorted."""
    names = (entry.name for entry in files(__package__).joinpath("data").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def _step(form: dict[str, Any]) -> RecordedStep:
    return RecordedStep(
        tuple((text, tuple(parameters)) for text, parameters in form["cql"]),
        form.get("batch", False),
        UnixMicros(form["at"]),
        UnixMicros(form["now"]),
        tuple(bytes.fromhex(key) for key in form.get("keys", ())),
        {table: tuple(numbers) for table, numbers in form.get("rows", {}).items()},
    )


def _table(form: dict[str, Any]) -> RecordedTable:
    return RecordedTable(
        form["name"],
        tuple((name, type_text, kind, position) for name, type_text, kind, position in form["columns"]),
        tuple((name, type_text) for name, type_text in form["log_columns"]),
        tuple(form["log_names"]),
        tuple(tuple(None if cell is None else bytes.fromhex(cell) for cell in row) for row in form["log"]),
    )


def _generation(form: dict[str, Any]) -> RecordedGeneration:
    streams = (
        (Token(range_end), tuple(StreamId(bytes.fromhex(stream)) for stream in ids))
        for range_end, ids in form["streams"]
    )
    return RecordedGeneration(UnixMillis(form["start_ms"]), tuple(streams))
