"""The decoded record that a written change must have, in the shapes `delta` and `full`. Pure.

It shares only two things with the code under test: the readers of scalar cells and the Avro names. The layout of
collections, the names of operations and the fields of records are defined here a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sandbox.scylla.log.log_rows import CollectionDelta, LogCell
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.values.nested import unfrozen, unpack_elements, unpack_fields, unpack_pairs, unpack_vector
from schemas.avro.names import avro_name
from schemas.avro.records import ENVELOPE_VERSION
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType
from schemas.log.cells import decoder

Read = Callable[[bytes], Any]
Values = dict[str, Any]

_ROW: Final = {1: "update", 2: "insert", 3: "row_delete", -3: "row_expiry"}
_PARTITION: Final = {4: "partition_delete", -4: "partition_expiry"}
_ONLY_ROW: Final = {4: "row_delete", -4: "row_expiry"}
_RANGE: Final = {5: "range_delete", 6: "range_delete"}
_INCLUSIVE: Final = frozenset({5, 7})
_WITHOUT_COLUMNS: Final = frozenset({3, -3, 4, -4, 5, 6})
_EMPTY_IS_A_VALUE: Final = frozenset({"ascii", "blob", "text", "varchar"})


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its CQL and Avro names, and how its cell is read."""

    name: str
    field: str
    type: CqlType
    read: Read
    has_empty: bool

    @classmethod
    def of(cls, column: Column) -> _Column:
        inner = unfrozen(column.type)
        has_empty = isinstance(inner, TupleType | UdtType) or (
            isinstance(inner, NativeType) and inner.name in _EMPTY_IS_A_VALUE
        )
        return cls(column.name, avro_name(column.name), column.type, reader(column.type), has_empty)

    def value(self, cell: bytes | None, empty: list[str]) -> Any:
        """The value of a cell; one that is CQL's "empty" is null and named in `empty`."""
        if cell is None:
            return None
        if not cell and not self.has_empty:
            empty.append(self.name)
            return None
        return self.read(cell)

    def image(self, cell: bytes | None, empty: list[str]) -> Any:
        """The value that an image shows: of a list without the keys of its cells."""
        if cell and isinstance(self.type, ListType):
            element = reader(self.type.element)
            return [element(value) for _key, value in unpack_pairs(cell)]
        return self.value(cell, empty)

    def change(self, cell: LogCell, empty: list[str]) -> Values:
        """What was done to the column."""
        if not isinstance(cell, CollectionDelta):
            return {"value": self.value(cell, empty)}
        removed = [] if cell.deleted_elements is None else unpack_elements(cell.deleted_elements)
        if isinstance(self.type, UdtType):
            return {"cleared": cell.deleted, "fields": _field_changes(self.type, cell.value, removed)}
        key, added = _elements(self.type, cell.value)
        return {"cleared": cell.deleted, "added": added, "removed": [key(one) for one in removed]}


def reader(cql_type: CqlType) -> Read:
    """What makes of a serialized value the one that a decoded record has."""
    match unfrozen(cql_type):
        case ListType(element) | SetType(element):
            one = reader(element)
            return lambda raw: [one(part) for part in unpack_elements(raw)]
        case MapType(key, element):
            of_key, of_value = reader(key), reader(element)
            return lambda raw: [{"key": of_key(name), "value": of_value(part)} for name, part in unpack_pairs(raw)]
        case VectorType(element) as vector:
            one = reader(element)
            return lambda raw: [one(part) for part in unpack_vector(raw, vector)]
        case TupleType(elements):
            return _record([(f"field_{place}", element) for place, element in enumerate(elements)])
        case UdtType(_name, fields):
            return _record([(avro_name(name), field) for name, field in fields])
        case scalar:
            return decoder(scalar)


def _record(fields: list[tuple[str, CqlType]]) -> Read:
    readers = [(name, reader(cql_type)) for name, cql_type in fields]

    def read(raw: bytes) -> Values:
        parts = unpack_fields(raw)
        parts += [None] * (len(readers) - len(parts))  # from before ALTER TYPE ADD
        return {name: None if part is None else one(part) for (name, one), part in zip(readers, parts, strict=True)}

    return read


def _elements(cql_type: CqlType, raw: bytes | None) -> tuple[Read, list[Any]]:
    """How an element's key is read, and what was added."""
    match cql_type:
        case SetType(element):
            one = reader(element)
            return one, [] if raw is None else [one(part) for part in unpack_elements(raw)]
        case MapType(name, value):
            key, of_value = reader(name), reader(value)
        case ListType(value):
            key, of_value = _timeuuid, reader(value)
        case _:
            raise ValueError(f"a column of type {cql_type} has no elements of its own")
    return key, [{"key": key(one), "value": of_value(part)} for one, part in ([] if raw is None else unpack_pairs(raw))]


def _field_changes(udt: UdtType, raw: bytes | None, removed: Iterable[bytes]) -> Values:
    parts: list[bytes | None] = [] if raw is None else unpack_fields(raw)
    parts += [None] * (len(udt.fields) - len(parts))
    dead = {int.from_bytes(index, "big") for index in removed}
    fields: Values = {}
    for place, ((name, cql_type), part) in enumerate(zip(udt.fields, parts, strict=True)):
        written = {"value": None} if place in dead else None
        fields[avro_name(name)] = written if part is None else {"value": reader(cql_type)(part)}
    return fields


def _timeuuid(raw: bytes) -> str:
    return str(UUID(bytes=raw))


class ExpectedRecords:
    """The decoded records of one table's changes."""

    def __init__(self, table: TableSchema, *, full: bool = False) -> None:
        """Resolve the columns.

        Args:
            table: the base table, its user-defined types resolved.
            full: whether the records have the shape `full`; else `delta`.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
        """
        self._partition_key = [_Column.of(column) for column in table.partition_key]
        self._clustering = [_Column.of(column) for column in table.clustering]
        self._values = [_Column.of(column) for column in table.values]
        statics = {column.name for column in table.statics}
        self._statics = [column for column in self._values if column.name in statics]
        self._regulars = [column for column in self._values if column.name not in statics]
        self._full = full

    def key(self, change: ExpectedChange) -> Values:
        """The record's key."""
        cells = zip(self._partition_key, change.partition_key, strict=True)
        return {column.field: column.read(cell) for column, cell in cells}

    def value(self, change: ExpectedChange) -> Values:
        """The record's value."""
        empty: list[str] = []
        is_range = change.operation in _RANGE
        clustering = (None,) * len(self._clustering) if is_range else change.clustering
        return {
            "op": self._op(change),
            "key": self.key(change) | self._prefix(clustering, empty),
            **({"range": self._range(change)} if self._clustering else {}),
            "columns": self._columns(change, empty),
            "empty_columns": empty,
            "ttl": change.ttl_s,
            "source": {
                "version": ENVELOPE_VERSION,
                "keyspace": change.keyspace,
                "table": change.table,
                "generation_ms": change.generation_ms,
                "stream_id": change.stream_id,
                "time": change.time,
                "timestamp_us": change.timestamp_us,
                "batch_seq_no": change.batch_seq_no,
                "operation": change.operation,
                "last_in_group": change.last_in_group,
            },
            **(self._images(change) if self._full else {}),
        }

    def _is_static(self, change: ExpectedChange) -> bool:
        return change.operation == 1 and bool(change.clustering) and all(cell is None for cell in change.clustering)

    def _op(self, change: ExpectedChange) -> str:
        if self._is_static(change):
            return "static_update"
        of_partition = _PARTITION if self._clustering else _ONLY_ROW
        return {**_ROW, **of_partition, **_RANGE}.get(change.operation, "unknown")

    def _prefix(self, cells: tuple[bytes | None, ...], empty: list[str]) -> Values:
        return {column.field: column.value(cell, empty) for column, cell in zip(self._clustering, cells, strict=True)}

    def _range(self, change: ExpectedChange) -> Values | None:
        if change.range_end is None:
            return None
        return {
            "start": self._bound(change.operation, change.clustering),
            "end": self._bound(change.range_end.operation, change.range_end.clustering),
        }

    def _bound(self, operation: int, cells: tuple[bytes | None, ...]) -> Values | None:
        if all(cell is None for cell in cells):
            return None
        empty: list[str] = []
        return {"inclusive": operation in _INCLUSIVE, "key": self._prefix(cells, empty), "empty_columns": empty}

    def _columns(self, change: ExpectedChange, empty: list[str]) -> Values | None:
        if change.operation in _WITHOUT_COLUMNS or (self._values and not change.columns):
            return None
        return {
            column.field: column.change(change.columns[column.name], empty) if column.name in change.columns else None
            for column in self._values
        }

    def _images(self, change: ExpectedChange) -> Values:
        columns = self._statics if self._is_static(change) else self._regulars
        if self._op(change) == "unknown":
            columns = self._values
        before, before_empty = self._image(change.before, columns)
        after, after_empty = self._image(change.after, columns)
        shown = change.before
        return {
            "before": before,
            "before_unknown": [] if shown is None else [one.name for one in columns if one.name not in shown],
            "before_empty": before_empty,
            "after": after,
            "after_empty": after_empty,
        }

    def _image(
        self, cells: Mapping[str, bytes | None] | None, columns: list[_Column]
    ) -> tuple[Values | None, list[str]]:
        if cells is None:
            return None, []
        empty: list[str] = []
        row: Values = {column.field: None for column in self._values}
        for column in columns:
            row[column.field] = column.image(cells.get(column.name), empty)
        return row, empty
