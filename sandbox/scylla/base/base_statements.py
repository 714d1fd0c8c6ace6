"""Writes the base table in Cassandra: each operation becomes statements with the timestamp of the log.

Cassandra cannot hold two things as ScyllaDB does. List elements get Cassandra's own timeuuids, so that appended
elements are in the order of the writes only, and list elements cannot be removed by their keys. COMPACT STORAGE is
missing, too. For such tables, `state.BaseState` has the true content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from bridge.adapters.scylla.session import Prepared
from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import (
    Bound,
    CollectionWrite,
    ColumnWrite,
    Insert,
    Operation,
    PartitionDelete,
    PartitionExpiry,
    RangeDelete,
    RowDelete,
    RowExpiry,
    UnknownOperation,
    Update,
)
from sandbox.scylla.base.ranges import RangeState, normalized
from sandbox.scylla.values.multi_cell import MultiCell, field_key
from sandbox.scylla.values.nested import UserTypes, fields_of, is_multi_cell, pack_elements, pack_pairs
from sandbox.scylla.values.ordering import ClusteringOrder, Key
from sandbox.writing_session import UNSET, WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import UdtType

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_LOWEST: Final = b""
"""CQL's empty value, which sorts before all others."""

WriteCells = list[Any]
"""Parameters of a write: serialized cells, None for null, UNSET for columns that do not change."""

Statement = tuple[Prepared, WriteCells]


class Slice(NamedTuple):
    """Part of a range: rows with these first cells, between two values of the next column in clustering order.

    Attributes:
        prefix: cells of the first clustering columns.
        low, high: a value and whether it belongs to the slice; None for an open side.
    """

    prefix: Key
    low: tuple[bytes, bool] | None = None
    high: tuple[bytes, bool] | None = None


def slices(start: Bound | None, end: Bound | None) -> list[Slice]:
    """Return a range as slices of one column each, which CQL can delete even if the columns' directions differ.

    The start must not be after the end.
    """
    first, last = (() if bound is None else bound.prefix for bound in (start, end))
    from_inclusive = start is None or start.inclusive
    to_inclusive = end is None or end.inclusive
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    prefix, first_rest, last_rest = first[:common], first[common:], last[common:]
    if not first_rest and not last_rest:
        return [Slice(prefix)] if from_inclusive and to_inclusive else []
    if not first_rest:
        return list(_up_to(prefix, last_rest, to_inclusive)) if from_inclusive else []
    if not last_rest:
        return list(_from(prefix, first_rest, from_inclusive)) if to_inclusive else []
    middle_low = (first_rest[0], from_inclusive and len(first_rest) == 1)
    middle_high = (last_rest[0], to_inclusive and len(last_rest) == 1)
    return [
        *(_from((*prefix, first_rest[0]), first_rest[1:], from_inclusive) if len(first_rest) > 1 else ()),
        Slice(prefix, middle_low, middle_high),
        *(_up_to((*prefix, last_rest[0]), last_rest[1:], to_inclusive) if len(last_rest) > 1 else ()),
    ]


def _from(prefix: Key, rest: Key, inclusive: bool) -> Iterator[Slice]:
    if len(rest) > 1:
        yield from _from((*prefix, rest[0]), rest[1:], inclusive)
    yield Slice(prefix, low=(rest[0], inclusive and len(rest) == 1))


def _up_to(prefix: Key, rest: Key, inclusive: bool) -> Iterator[Slice]:
    yield Slice(prefix, high=(rest[0], inclusive and len(rest) == 1))
    if len(rest) > 1:
        yield from _up_to((*prefix, rest[0]), rest[1:], inclusive)


class BaseStatements:
    """The statements of one table. Each is prepared on its first use."""

    def __init__(
        self,
        session: WritingSession,
        table_schema: TableSchema,
        *,
        user_types: UserTypes = (),
    ) -> None:
        """Create the statements of a table.

        Args:
            session: where to write.
            table_schema: the table.
            user_types: all UDTs that its columns use.

        Raises:
            ValueError: a UDT's fields are not given, or a key can't be ordered.
        """
        self._session = session
        self._name = f"{quoted(table_schema.keyspace)}.{quoted(table_schema.name)}"
        self._partition_key = table_schema.partition_key
        self._clustering = table_schema.clustering
        directions = [column.descending for column in table_schema.clustering]
        self._order = ClusteringOrder([column.type for column in table_schema.clustering], directions, user_types)
        self._user_types = user_types
        multi_cell = [column for column in table_schema.values if is_multi_cell(column.type)]
        self._multi_cell = {column.name: (column, _kind(column, user_types)) for column in multi_cell}
        self._static_names = frozenset(column.name for column in table_schema.statics)
        self._values = tuple(column for column in table_schema.values if column.name not in self._multi_cell)
        self._statics = tuple(column for column in self._values if column.name in self._static_names)
        self._regulars = tuple(column for column in self._values if column.name not in self._static_names)

    def write(self, operation: Operation, partition_key: Key, timestamp_us: UnixMicros) -> list[Statement]:
        """Return the statements, with their parameters, that execute an operation.

        Raises:
            RetriableError, BridgeError: as `CqlSession.prepare`.
        """
        stamp = _LONG.pack(timestamp_us if operation.timestamp_us is None else operation.timestamp_us)
        match operation:
            case Insert():
                plain = self._insert(operation, partition_key, stamp)
                return [plain, *self._collections(operation, partition_key, stamp)]
            case Update():
                updates = self._updates(operation, partition_key, stamp)
                return [*updates, *self._collections(operation, partition_key, stamp)]
            case RowDelete(clustering) | RowExpiry(clustering):
                return [self._delete(stamp, partition_key, Slice(clustering))]
            case PartitionDelete() | PartitionExpiry():
                return [self._delete(stamp, partition_key, Slice(()))]
            case RangeDelete(start, end):
                # An empty range is dropped, as for the log.
                kept = normalized([RangeState(start, end, timestamp_us)], self._order)
                parts = [part for entry in kept for part in slices(entry.start, entry.end)]
                return [self._delete(stamp, partition_key, part, rows=True) for part in parts]
            case UnknownOperation():
                return []

    def _insert(self, operation: Insert, partition_key: Key, stamp: bytes) -> Statement:
        clustering = self._clustering if operation.clustering else ()
        values = self._values if operation.clustering or not self._clustering else self._statics
        names = [column.name for column in (*self._partition_key, *clustering, *values)]
        prepared = self._session.prepare(
            f"INSERT INTO {self._name} ({', '.join(map(quoted, names))}) "  # noqa: S608  # names are quoted
            f"VALUES ({', '.join('?' * len(names))}) USING TIMESTAMP ? AND TTL ?"
        )
        return prepared, [
            *partition_key,
            *operation.clustering,
            *_chosen(values, operation.cells),
            stamp,
            _INT.pack(operation.ttl_s),
        ]

    def _updates(self, operation: Update, partition_key: Key, stamp: bytes) -> Iterator[Statement]:
        # Static columns are set without a clustering key, the others with it.
        for columns, clustering in ((self._statics, ()), (self._regulars, operation.clustering)):
            if any(column.name in operation.cells for column in columns):
                setting = ", ".join(f"{quoted(column.name)} = ?" for column in columns)
                cells = _chosen(columns, operation.cells)
                yield self._set(setting, cells, stamp, operation.ttl_s, partition_key, clustering)

    def _collections(self, operation: Insert | Update, partition_key: Key, stamp: bytes) -> Iterator[Statement]:
        for name, value in operation.cells.items():
            if name not in self._multi_cell:
                continue
            write = value if isinstance(value, CollectionWrite) else CollectionWrite("overwrite")
            column, kind = self._multi_cell[name]
            clustering = () if name in self._static_names else operation.clustering
            if write.clear == "delete":
                yield self._delete(stamp, partition_key, Slice(clustering), column=column)
            for setting, cell in self._settings(column, kind, write):
                yield self._set(setting, [cell], stamp, operation.ttl_s, partition_key, clustering)

    def _settings(self, column: Column, kind: MultiCell, write: CollectionWrite) -> Iterator[tuple[str, bytes | None]]:
        name = quoted(column.name)
        put = dict(write.put)
        if write.clear == "overwrite":
            yield f"{name} = ?", _packed(kind, put) if put else None
        elif isinstance(column.type, UdtType):
            for index, (field, _type) in enumerate(fields_of(column.type, self._user_types)):
                if field_key(index) in put:
                    yield f"{name}.{quoted(field)} = ?", put[field_key(index)]
        elif put:
            yield f"{name} = {name} + ?", _packed(kind, put)
        if not write.remove or kind.kind == "list":
            return
        if isinstance(column.type, UdtType):
            for index, (field, _type) in enumerate(fields_of(column.type, self._user_types)):
                if field_key(index) in write.remove:
                    yield f"{name}.{quoted(field)} = ?", None
        else:
            yield f"{name} = {name} - ?", kind.pack_keys(set(write.remove))

    def _set(
        self, setting: str, cells: WriteCells, stamp: bytes, ttl_s: int, partition_key: Key, clustering: Key
    ) -> Statement:
        columns = (*self._partition_key, *self._clustering[: len(clustering)])
        prepared = self._session.prepare(
            f"UPDATE {self._name} USING TIMESTAMP ? AND TTL ? "  # noqa: S608  # names are quoted
            f"SET {setting} WHERE {_equal(columns)}"
        )
        return prepared, [stamp, _INT.pack(ttl_s), *cells, *partition_key, *clustering]

    def _delete(
        self, stamp: bytes, partition_key: Key, part: Slice, *, rows: bool = False, column: Column | None = None
    ) -> Statement:
        count = len(part.prefix)
        where = [_equal((*self._partition_key, *self._clustering[:count]))]
        cells = [stamp, *partition_key, *part.prefix]
        if rows and part == Slice(()):
            # All rows except the static one.
            where.append(f"{quoted(self._clustering[0].name)} >= ?")
            cells.append(_LOWEST)
        for limit, ascending, descending in ((part.low, ">", "<"), (part.high, "<", ">")):
            if limit is not None:
                bounded = self._clustering[count]
                sign = descending if bounded.descending else ascending
                where.append(f"{quoted(bounded.name)} {sign}{'=' if limit[1] else ''} ?")
                cells.append(limit[0])
        what = "" if column is None else f"{quoted(column.name)} "
        prepared = self._session.prepare(
            f"DELETE {what}FROM {self._name} USING TIMESTAMP ? WHERE {' AND '.join(where)}"  # quoted
        )
        return prepared, cells


def _kind(column: Column, user_types: UserTypes) -> MultiCell:
    kind = MultiCell.of(column.type, user_types)
    assert kind is not None
    return kind


def _packed(kind: MultiCell, elements: Mapping[bytes, bytes]) -> bytes:
    """The collection's own serialized form, not the log's."""
    if kind.kind == "list":
        return pack_elements(list(kind.sorted(elements).values()))
    if kind.kind == "map":
        return pack_pairs(list(kind.sorted(elements).items()))
    return kind.pack(elements)


def _chosen(columns: Sequence[Column], cells: Mapping[str, ColumnWrite]) -> WriteCells:
    return [cells.get(column.name, UNSET) for column in columns]


def _equal(columns: Sequence[Column]) -> str:
    return " AND ".join(f"{quoted(column.name)} = ?" for column in columns)
