"""The demo's tables, its load, and the times of the generation changes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from bridge.model.times import UnixMillis
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Mix, Workload
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

KEYSPACE: Final = "cdc_demo"
RECORDED_KEYSPACE: Final = "cdc_demo_recorded"
RECORDED_SCENARIO: Final = "z_generation_change"
"""A recording with a generation change. Only one recording, because each table needs a query of its own."""

BACKLOG_WRITES: Final = 200
"""Writes to each simulated table before the bridge starts."""

CONFIDENCE_MS: Final = 2_000
LEEWAY_MS: Final = 5_000

_PUBLISHED_AHEAD_S: Final = 4.0
_PUBLISHED_LATE_S: Final = 4.0
_FIRST_GENERATION_AGO_MS: Final = 10_000
_RECORDED_AGO_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A table that the simulator writes.

    Attributes:
        table: schema and cdc option.
        mix: kinds of writes and their shares.
        keys: number of partition keys.
        rows_per_key: number of clustering keys of each partition key.
        share: share of all writes, from 0 to 1.
    """

    table: SimulatedTable
    mix: Mix
    keys: int
    rows_per_key: int
    share: float

    def workload(self, seed: int) -> Workload:
        """The table's writes. Other seeds write other keys."""
        return Workload(
            self.table.table_schema, seed=seed, keys=self.keys, rows_per_key=self.rows_per_key, mix=self.mix
        )


@dataclass(frozen=True, slots=True)
class GenerationChange:
    """A node joins while the writer runs. Times are seconds from the writer's beginning.

    Attributes:
        starts_s: from this time on, writes go to the new generation's streams.
        published_s: from this time on, readers see the new generation.
    """

    starts_s: float
    published_s: float

    @property
    def late_s(self) -> float:
        """Seconds from the generation's start to its publication; negative if it is published before its start."""
        return self.published_s - self.starts_s


def generation_changes(seconds: float) -> tuple[GenerationChange, ...]:
    """The two generation changes of a run: the first is published before its start, the second after it.

    Args:
        seconds: duration of the run.
    """
    first, second = seconds / 3, seconds * 2 / 3
    return (
        GenerationChange(first, first - min(_PUBLISHED_AHEAD_S, first)),
        GenerationChange(second, second + min(_PUBLISHED_LATE_S, seconds / 4)),
    )


def first_generation_ms(now_ms: UnixMillis) -> UnixMillis:
    """Start of the simulated cluster's first generation: later than all recorded changes."""
    return UnixMillis(now_ms - _FIRST_GENERATION_AGO_MS)


def recorded_shift_ms(last_recorded_ms: UnixMillis, now_ms: UnixMillis) -> int:
    """Number of ms to add to recorded times, so that they lie just before the simulated cluster's first generation."""
    return now_ms - _RECORDED_AGO_MS - last_recorded_ms


def tables() -> tuple[DemoTable, ...]:
    """The simulated tables: a narrow one, and a wide one with every scalar type."""
    return (
        DemoTable(SimulatedTable(_narrow()), Mix(untouched=0.0, nulls=0.02), keys=5_000, rows_per_key=20, share=0.7),
        DemoTable(SimulatedTable(_wide()), Mix(), keys=1_000, rows_per_key=20, share=0.3),
    )


def _narrow() -> TableSchema:
    return _schema("readings", partition_key={"sensor": "int"}, clustering={"at": "timestamp"}, values={"v": "double"})


def _wide() -> TableSchema:
    scalars = (
        "ascii bigint blob boolean date decimal double duration float inet int smallint text time timestamp timeuuid "
        "tinyint uuid varint"
    )
    return _schema(
        "orders",
        partition_key={"region": "text", "customer": "uuid"},
        clustering={"placed": "timeuuid", "line": "smallint"},
        statics={"name": "text", "credit": "decimal"},
        descending={"placed"},
        values={f"a_{name}": name for name in scalars.split()},
    )


def _schema(
    name: str,
    *,
    partition_key: dict[str, str],
    clustering: dict[str, str],
    values: dict[str, str],
    statics: dict[str, str] | None = None,
    descending: Collection[str] = (),
) -> TableSchema:
    parts = (
        (ColumnKind.PARTITION_KEY, partition_key),
        (ColumnKind.CLUSTERING, clustering),
        (ColumnKind.STATIC, statics or {}),
        (ColumnKind.REGULAR, values),
    )
    keys = (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)
    return TableSchema(
        KEYSPACE,
        name,
        tuple(
            Column(column, parse(type_text), kind, place if kind in keys else -1, column in descending)
            for kind, columns in parts
            for place, (column, type_text) in enumerate(columns.items())
        ),
    )
