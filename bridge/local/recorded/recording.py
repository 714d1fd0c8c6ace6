"""A recording as values, and its file form. Pure but for reading the package's own data files.

A file is gzipped JSON, format version 1 (cells are hex of the bytes on the wire, null is null):

```
{"v": 1, "scenario": "ttl", "keyspace": "rec",
 "tables": [{"name": "tt", "ddl": "CREATE TABLE rec.tt (...) WITH cdc = {...}", "ttl_s": 86400,
             "columns": [["pk", "int", "partition_key", 0], ["a", "int", "regular", -1]],
             "log_columns": [["cdc$stream_id", "blob"], ...],
             "log": [["c2cd..61", "1c21..db", ...], ...]}],
 "generations": [{"start_ms": 1795249090552, "streams": [[-7351677504331929430, ["7f03..01", ...]], ...]}]}
```

Log rows stand in the order in which they appeared. A vnode's streams stand in the server's own order, by shard.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from bridge.model.changes import Cells
from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMillis
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema

FORMAT_VERSION: Final = 1
_SUFFIX: Final = ".json.gz"
_NEVER_EMPTY: Final = frozenset({"date", "smallint", "time", "tinyint"})
_KEYS: Final = frozenset({"partition_key", "clustering"})


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """One captured table with its log.

    Attributes:
        name: of the base table.
        ddl: the statement that made the base table.
        ttl_s: the log's TTL in seconds.
        columns: name, type, kind and position of each base column, as `system_schema.columns` has them.
        log_columns: name and type of each log column, the three key columns first.
        log: the log's rows, cells in the order of `log_columns`.
    """

    name: str
    ddl: str
    ttl_s: int
    columns: tuple[tuple[str, str, str, int], ...]
    log_columns: tuple[tuple[str, str], ...]
    log: tuple[Cells, ...]

    @property
    def has_collections(self) -> bool:
        """Whether a value is not atomic, so that its column in the log is no plain copy of it."""
        return any(
            kind not in _KEYS and type_text.partition("<")[0] in {"list", "map", "set"}
            for _name, type_text, kind, _position in self.columns
        )

    @property
    def loadable_log(self) -> tuple[Cells, ...]:
        """The log without the groups that Cassandra, the local stack's server, can't hold.

        ScyllaDB takes empty values of every fixed-width type; Cassandra has none of four of them.
        """
        strict = [at for at, (_name, type_text) in enumerate(self.log_columns) if type_text in _NEVER_EMPTY]
        odd = {row[:2] for row in self.log if any(row[at] == b"" for at in strict)}
        return tuple(row for row in self.log if row[:2] not in odd)

    def table_schema(self, keyspace: str) -> TableSchema:
        """The base table's schema."""
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
        tables: those that were captured.
        generations: those that the log rows belong to, and all between them, oldest first.
    """

    scenario: str
    keyspace: str
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


def scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with the package, sorted."""
    names = (entry.name for entry in files(__package__).joinpath("data").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def _table(form: dict[str, Any]) -> RecordedTable:
    return RecordedTable(
        form["name"],
        form["ddl"],
        form["ttl_s"],
        tuple((name, type_text, kind, position) for name, type_text, kind, position in form["columns"]),
        tuple((name, type_text) for name, type_text in form["log_columns"]),
        tuple(tuple(None if cell is None else bytes.fromhex(cell) for cell in row) for row in form["log"]),
    )


def _generation(form: dict[str, Any]) -> RecordedGeneration:
    streams = (
        (Token(range_end), tuple(StreamId(bytes.fromhex(stream)) for stream in ids))
        for range_end, ids in form["streams"]
    )
    return RecordedGeneration(UnixMillis(form["start_ms"]), tuple(streams))
