"""Endless base writes drawn from a seed: which keys, which operations, which values. Pure, and without times."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final

from bridge.local.simulator.mutations import (
    Insert,
    Mutation,
    Operation,
    PartitionDelete,
    RowDelete,
    Update,
)
from bridge.local.simulator.ordering import Key
from bridge.local.simulator.values import draw
from schemas.table_schema import Column, TableSchema

_EQUAL_BUT_DIFFERENT: Final = frozenset({"decimal", "double", "float"})
"""Types with values that compare equal and serialize differently: no extremes of them in keys."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What a workload consists of; the first four are relative weights, the rest are probabilities.

    Attributes:
        inserts, updates, row_deletes, partition_deletes: how often each kind of operation comes, of the others' sum.
        batches: that a mutation has several operations.
        batch_rows: most operations in such a mutation.
        untouched: that an operation leaves a column alone.
        nulls: that a written column is set to null.
        ttls: that an operation has a TTL.
        statics: that an operation writes static columns too.
        extremes: that a value is one of its type's extremes.
    """

    inserts: float = 5.0
    updates: float = 4.0
    row_deletes: float = 0.8
    partition_deletes: float = 0.2
    batches: float = 0.1
    batch_rows: int = 5
    untouched: float = 0.3
    nulls: float = 0.1
    ttls: float = 0.1
    statics: float = 0.2
    extremes: float = 0.125


INSERTS_ONLY: Final = Mix(
    updates=0, row_deletes=0, partition_deletes=0, batches=0, untouched=0, nulls=0, ttls=0, statics=0
)
"""Single-row inserts with every regular column: the plainest and fastest load."""

_KINDS: Final = (Insert, Update, RowDelete, PartitionDelete)
_TTLS_S: Final = (1, 60, 3600, 86_400, 630_720_000)


class Workload:
    """Mutations of one table, the same for the same seed and arguments.

    Values come from pools that are drawn once: drawing each cell anew would be the greater part of a bulk load.
    """

    def __init__(
        self,
        table_schema: TableSchema,
        *,
        seed: int,
        keys: int = 1000,
        rows_per_key: int = 10,
        mix: Mix = Mix(),
        pool: int = 512,
    ) -> None:
        """Draw keys and value pools.

        Args:
            table_schema: of the base table; its columns are scalars.
            seed: decides everything.
            keys: different partition keys (fewer where the key's type has fewer values).
            rows_per_key: different clustering keys, which all partitions share.
            mix: the shares of operations and values.
            pool: different values of each column.
        """
        self.table_schema = table_schema
        random = Random(f"{seed}/{table_schema.full_name}")  # noqa: S311  # simulated data, wanted to be repeatable
        self._random = random
        self._mix = mix
        self.partition_keys = _distinct_keys(random, table_schema.partition_key, keys, mix.extremes)
        self.clustering_keys = (
            _distinct_keys(random, table_schema.clustering, rows_per_key, mix.extremes, allow_empty=True)
            if table_schema.clustering
            else [()]
        )
        statics = set(table_schema.statics)
        self._pools = [
            (column.name, column in statics, [draw(str(column.type), random, mix.extremes) for _ in range(pool)])
            for column in table_schema.values
        ]
        self._regular_pools = [entry for entry in self._pools if not entry[1]]
        self._weights = list(accumulate((mix.inserts, mix.updates, mix.row_deletes, mix.partition_deletes)))

    def __iter__(self) -> Iterator[Mutation]:
        """Mutations without end."""
        while True:
            yield self.next()

    def next(self) -> Mutation:
        """The next mutation; it has no timestamp of its own."""
        random = self._random
        # Not `choice` and its like: they cost a bulk load several microseconds a row.
        partition_key = self.partition_keys[int(random.random() * len(self.partition_keys))]
        if self._mix.batches and random.random() < self._mix.batches:
            count = random.randint(2, max(2, self._mix.batch_rows))
            return Mutation(partition_key, tuple(self._operation() for _ in range(count)))
        return Mutation(partition_key, (self._operation(),))

    def _operation(self) -> Operation:
        random = self._random
        kind = _KINDS[bisect(self._weights, random.random() * self._weights[-1])]
        if kind is PartitionDelete:
            return PartitionDelete()
        clustering = self.clustering_keys[int(random.random() * len(self.clustering_keys))]
        if kind is RowDelete:
            return RowDelete(clustering)
        ttl_s = random.choice(_TTLS_S) if self._mix.ttls and random.random() < self._mix.ttls else 0
        cells = self._cells()
        if kind is Update and cells:
            return Update(clustering, cells, ttl_s)
        # A table of key columns only can't be updated.
        return Insert(clustering, cells, ttl_s)

    def _cells(self) -> dict[str, bytes | None]:
        mix, random = self._mix, self._random.random
        pools = self._pools if mix.statics and random() < mix.statics else self._regular_pools
        cells: dict[str, bytes | None] = {}
        for name, _static, pool in pools:
            if mix.untouched and random() < mix.untouched:
                continue
            if mix.nulls and random() < mix.nulls:
                cells[name] = None
            else:
                cells[name] = pool[int(random() * len(pool))]
        return cells


def _distinct_keys(
    random: Random, columns: Sequence[Column], count: int, extremes: float, *, allow_empty: bool = False
) -> list[Key]:
    types = [str(column.type) for column in columns]
    found: dict[Key, None] = {}
    # A key of few possible values (a boolean) gives fewer keys than asked for.
    for _ in range(20 * count + 100):
        key = tuple(draw(name, random, 0.0 if name in _EQUAL_BUT_DIFFERENT else extremes) for name in types)
        if allow_empty or all(key):
            found[key] = None
        if len(found) == count:
            break
    return list(found)
