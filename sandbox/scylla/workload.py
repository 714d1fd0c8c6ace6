"""Endless random base writes: keys, operations and values depend on a seed. Pure, and without times."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Final

from bridge.model.times import UnixMicros
from sandbox.scylla.base.element_pools import ElementPool
from sandbox.scylla.base.mutations import (
    Bound,
    ColumnWrite,
    Insert,
    Mutation,
    Operation,
    PartitionDelete,
    PartitionExpiry,
    RangeDelete,
    RowDelete,
    RowExpiry,
    UnknownOperation,
    Update,
)
from sandbox.scylla.values.nested import UserTypes, is_multi_cell
from sandbox.scylla.values.nested_values import Draw
from sandbox.scylla.values.ordering import ClusteringOrder, Key
from schemas.cql.table import Column, TableSchema

_TTLS_S: Final = (1, 60, 3600, 86_400, 630_720_000)


@dataclass(frozen=True, slots=True)
class Mix:
    """The composition of a workload. The first eight attributes are relative weights, the others probabilities.

    Attributes:
        inserts, updates, row_deletes, partition_deletes, range_deletes: how often each kind of operation comes, of the
            others' sum.
        row_expiries, partition_expiries: the same of deletes by the server itself.
        unknown: the same of rows with an operation number that no server uses; only outside of batches.
        batches: that a mutation has several operations.
        batch_rows: most operations in such a mutation.
        untouched: that an operation leaves a column alone.
        nulls: that a written column is set to null.
        replaced: that a written multi-cell column is replaced and not changed element by element.
        ttls: that an operation has a TTL.
        ttls_s: the TTLs.
        statics: that an operation writes static columns too.
        extremes: that a value is one of its type's extremes.
    """

    inserts: float = 5.0
    updates: float = 4.0
    row_deletes: float = 0.8
    partition_deletes: float = 0.2
    range_deletes: float = 0.0
    row_expiries: float = 0.0
    partition_expiries: float = 0.0
    unknown: float = 0.0
    batches: float = 0.1
    batch_rows: int = 5
    untouched: float = 0.3
    nulls: float = 0.1
    replaced: float = 0.3
    ttls: float = 0.1
    ttls_s: tuple[int, ...] = _TTLS_S
    statics: float = 0.2
    extremes: float = 0.125


INSERTS_ONLY: Final = Mix(
    updates=0, row_deletes=0, partition_deletes=0, batches=0, untouched=0, nulls=0, ttls=0, statics=0
)
"""Single-row inserts with every regular column: the plainest and fastest load."""

EVERYTHING: Final = Mix(
    partition_deletes=0.3, range_deletes=1.0, row_expiries=0.3, partition_expiries=0.1, unknown=0.2, batches=0.3
)
"""Every operation that the log can show."""

_KINDS: Final = (Insert, Update, RowDelete, PartitionDelete, RangeDelete, RowExpiry, PartitionExpiry, UnknownOperation)
_UNKNOWN_NUMBERS: Final = (-128, -5, -2, -1, 10, 99, 127)


class Workload:
    """Mutations of one table. Equal seeds and arguments give equal mutations.

    Values come from pools that are drawn once, because drawing each cell would dominate the time of a bulk load.
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
        user_types: UserTypes = (),
    ) -> None:
        """Draw keys and value pools.

        Args:
            table_schema: schema of the base table.
            seed: seed of all random choices.
            keys: number of partition keys (fewer if the key's type has fewer values).
            rows_per_key: number of clustering keys, which all partitions share.
            mix: the shares of operations and values.
            pool: number of values of each column.
            user_types: every UDT that the columns use.

        Raises:
            ValueError: values of a column's type cannot be created, or values of a key cannot be ordered.
        """
        self.table_schema = table_schema
        random = Random(f"{seed}/{table_schema.full_name}")  # noqa: S311  # simulated data, wanted to be repeatable
        self._random = random
        self._mix = mix
        draw = Draw(random, user_types, mix.extremes)
        self.partition_keys = _distinct_keys(draw, table_schema.partition_key, keys)
        self.clustering_keys = (
            _distinct_keys(draw, table_schema.clustering, rows_per_key, allow_empty=True)
            if table_schema.clustering
            else [()]
        )
        clustering = table_schema.clustering
        self._order = ClusteringOrder(
            [column.type for column in clustering], [column.descending for column in clustering], user_types
        )
        self._draw_pools(draw, pool)
        self._weights = _operation_weights(mix, has_clustering=bool(clustering))

    def _draw_pools(self, draw: Draw, pool: int) -> None:
        table_schema = self.table_schema
        statics = set(table_schema.statics)
        atomic = [column for column in table_schema.values if not is_multi_cell(column.type)]
        self._pools = [
            (column.name, column in statics, [draw.value(column.type) for _ in range(pool)]) for column in atomic
        ]
        self._regular_pools = [entry for entry in self._pools if not entry[1]]
        self._elements = [
            (column.name, column in statics, ElementPool(column.type, draw))
            for column in table_schema.values
            if is_multi_cell(column.type)
        ]

    def __iter__(self) -> Iterator[Mutation]:
        """Mutations without end."""
        while True:
            yield self.next()

    def next(self) -> Mutation:
        """Return the next mutation, without a timestamp of its own."""
        random = self._random
        # `choice` would cost a bulk load several microseconds per row.
        partition_key = self.partition_keys[int(random.random() * len(self.partition_keys))]
        if self._mix.batches and random.random() < self._mix.batches:
            count = random.randint(2, max(2, self._mix.batch_rows))
            return Mutation(partition_key, tuple(self._operation(alone=False) for _ in range(count)))
        return Mutation(partition_key, (self._operation(),))

    def _operation(self, *, alone: bool = True) -> Operation:
        random = self._random
        kind = _KINDS[bisect(self._weights, random.random() * self._weights[-1])]
        clustering = self.clustering_keys[int(random.random() * len(self.clustering_keys))]
        if kind is not Insert and kind is not Update and (alone or kind is not UnknownOperation):
            return self._rarer(kind, clustering)
        ttl_s = random.choice(self._mix.ttls_s) if self._mix.ttls and random.random() < self._mix.ttls else 0
        is_update = kind is Update
        cells = self._cells(is_update)
        if is_update and cells:
            return Update(clustering, cells, ttl_s)
        # A table of key columns only can't be updated.
        return Insert(clustering, cells, ttl_s)

    def _rarer(self, kind: type[Operation], clustering: Key) -> Operation:
        if kind is RowDelete:
            return RowDelete(clustering)
        if kind is PartitionDelete:
            return PartitionDelete()
        if kind is RangeDelete:
            return self._range()
        if kind is RowExpiry:
            return RowExpiry(clustering)
        if kind is PartitionExpiry:
            return PartitionExpiry()
        cells = {name: self._random.choice(pool) for name, _static, pool in self._regular_pools[:1]}
        return UnknownOperation(self._random.choice(_UNKNOWN_NUMBERS), clustering, cells)

    def _range(self) -> RangeDelete:
        random = self._random
        first, last = self._order.sorted(random.choices(self.clustering_keys, k=2), key=lambda key: key)
        if random.random() < 0.2:
            bound = Bound(first[: random.randint(1, len(first))], inclusive=True)
            return RangeDelete(bound, bound)
        start, end = (
            None
            if random.random() < 0.2
            else Bound(key[: random.randint(1, len(key))], inclusive=random.random() < 0.5)
            for key in (first, last)
        )
        return RangeDelete(start, end)

    def _cells(self, is_update: bool) -> dict[str, ColumnWrite]:
        mix, random = self._mix, self._random.random
        with_statics = bool(mix.statics) and random() < mix.statics
        pools = self._pools if with_statics else self._regular_pools
        cells: dict[str, ColumnWrite] = {}
        for name, _static, pool in pools:
            if mix.untouched and random() < mix.untouched:
                continue
            if mix.nulls and random() < mix.nulls:
                cells[name] = None
            else:
                cells[name] = pool[int(random() * len(pool))]
        for name, is_static, elements in self._elements:
            if (with_statics or not is_static) and random() >= mix.untouched:
                cells[name] = elements.write(is_update, mix.nulls, mix.replaced)
        return cells


def _operation_weights(mix: Mix, *, has_clustering: bool) -> list[float]:
    """Cumulative weights of the kinds of operations."""
    weights = [mix.inserts, mix.updates, mix.row_deletes, mix.partition_deletes]
    # Without a clustering key there are no ranges.
    weights += [mix.range_deletes if has_clustering else 0.0, mix.row_expiries, mix.partition_expiries, mix.unknown]
    return list(accumulate(weights))


def with_own_timestamps(
    timed: Iterable[tuple[UnixMicros, Mutation]], *, seed: int, share: float = 0.3, back_us: int = 50
) -> Iterator[tuple[UnixMicros, Mutation]]:
    """Give the statements of some mutations timestamps of their own.

    Args:
        timed: mutations with the clock's time.
        seed: seed of all random choices.
        share: share of the mutations that are changed.
        back_us: largest age of a statement's timestamp in us. Small, so that some timestamps are equal or adjacent.
    """
    random = Random(f"{seed}/timestamps")  # noqa: S311  # simulated data, wanted to be repeatable
    for now_us, mutation in timed:
        if random.random() >= share:
            yield now_us, mutation
            continue
        stamped = tuple(
            replace(operation, timestamp_us=UnixMicros(now_us - random.randint(0, back_us)))
            for operation in mutation.operations
        )
        yield now_us, replace(mutation, operations=stamped)


def _distinct_keys(draw: Draw, columns: Sequence[Column], count: int, *, allow_empty: bool = False) -> list[Key]:
    found: dict[Key, None] = {}
    # A key of few possible values (a boolean) gives fewer keys than asked for.
    for _ in range(20 * count + 100):
        key = tuple(draw.key(column.type) for column in columns)
        if allow_empty or all(key):
            found[key] = None
        if len(found) == count:
            break
    return list(found)
