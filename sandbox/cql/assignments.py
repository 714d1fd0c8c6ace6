"""Derives column writes from the assignments of a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from bridge.model.times import UnixMicros
from sandbox.cql.list_keys import ListKeys
from sandbox.cql.literals import Serializer
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Assignment, Element, Field, ListCell
from sandbox.cql.parser.terms import UNSET, Term, elements_of
from sandbox.scylla.base.mutations import CollectionWrite, ColumnWrite
from sandbox.scylla.values.nested import is_multi_cell
from schemas.cql.table import Column
from schemas.cql.types import ListType, MapType, NativeType, SetType, UdtType

Stored = Callable[[], Mapping[bytes, bytes]]
"""Reads the present cells of a multi-cell column: values by element key, in order."""

_TIMEUUID = NativeType("timeuuid")


class Assigner:
    """Builds the column writes of one statement."""

    def __init__(self, serializer: Serializer, keys: ListKeys, timestamp_us: UnixMicros) -> None:
        """Take the serializer, the request's list keys, and the statement's timestamp in Unix us."""
        self._serializer = serializer
        self._keys = keys
        self._timestamp_us = timestamp_us

    def write(self, cells: dict[str, ColumnWrite], column: Column, assignment: Assignment, stored: Stored) -> None:
        """Add an assignment to the statement's column writes. Several assignments to one collection are combined.

        Raises:
            CqlError: the assignment does not fit the column.
        """
        if assignment.value is UNSET:
            return
        if not is_multi_cell(column.type):
            cells[column.name] = self._atomic(column, assignment)
            return
        try:
            write = (
                self._part(column, assignment, stored)
                if assignment.selector
                else self._whole(column, assignment, stored)
            )
        except CqlError as error:
            raise CqlError(f"column {column.name!r}: {error}") from error
        if write == CollectionWrite():
            return
        known = cells.get(column.name)
        cells[column.name] = _joined(known, write) if isinstance(known, CollectionWrite) else write

    def _atomic(self, column: Column, assignment: Assignment) -> bytes | None:
        if assignment.selector is not None or assignment.kind in ("add", "prepend", "subtract"):
            raise CqlError(f"column {column.name!r} of type {column.type} can only be set as a whole")
        try:
            return self._serializer.cell(column.type, assignment.value)
        except CqlError as error:
            raise CqlError(f"column {column.name!r}: {error}") from error

    def _whole(self, column: Column, assignment: Assignment, stored: Stored) -> CollectionWrite:
        value = assignment.value
        if assignment.kind == "delete":
            return CollectionWrite("delete")
        if assignment.kind == "set":
            return CollectionWrite("overwrite", () if value is None else self._elements(column, value))
        if value is None:
            return CollectionWrite()
        if assignment.kind == "subtract":
            return CollectionWrite(remove=self._subtracted(column, value, stored))
        if isinstance(column.type, UdtType) or (assignment.kind == "prepend" and not isinstance(column.type, ListType)):
            raise CqlError(f"nothing can be added to a value of type {column.type} there")
        return CollectionWrite(put=self._elements(column, value, prepended=assignment.kind == "prepend"))

    def _elements(self, column: Column, value: Term, *, prepended: bool = False) -> tuple[tuple[bytes, bytes], ...]:
        match column.type:
            case ListType(element):
                cells = [self._serializer.value(element, item) for item in elements_of(value)]
                make = self._keys.prepend if prepended else self._keys.append
                return tuple(zip(make(len(cells), self._timestamp_us), cells, strict=True))
            case SetType(element):
                return tuple((cell, b"") for cell in self._serializer.set_elements(element, value))
            case MapType(key, item):
                return tuple(self._serializer.map_entries(key, item, value))
            case UdtType() as udt:
                fields = sorted(self._serializer.udt_fields(udt, value).items())
                return tuple((_index(place), cell) for place, cell in fields if cell is not None)
            case _:
                raise CqlError(f"type {column.type} has no elements")

    def _subtracted(self, column: Column, value: Term, stored: Stored) -> tuple[bytes, ...]:
        match column.type:
            case SetType(element) | MapType(element):
                return tuple(self._serializer.set_elements(element, value))
            case ListType(element):
                gone = {self._serializer.value(element, item) for item in elements_of(value)}
                return tuple(key for key, cell in stored().items() if cell in gone)
            case _:
                raise CqlError(f"nothing can be taken from a value of type {column.type}")

    def _part(self, column: Column, assignment: Assignment, stored: Stored) -> CollectionWrite:
        match column.type, assignment.selector:
            case SetType(element), Element(term) if assignment.value is None:
                return CollectionWrite(remove=(self._serializer.value(element, term),))
            case MapType(key_type, value_type), Element(term):
                key = self._serializer.value(key_type, term)
                cell = self._serializer.cell(value_type, assignment.value)
            case ListType(value_type), Element(term):
                key = _at(list(stored()), term)
                cell = self._serializer.cell(value_type, assignment.value)
            case ListType(value_type), ListCell(term):
                key = self._serializer.value(_TIMEUUID, term)
                cell = self._serializer.cell(value_type, assignment.value)
            case UdtType() as udt, Field(name):
                place, kind = self._serializer.field(udt, name)
                key, cell = _index(place), self._serializer.cell(kind, assignment.value)
            case _:
                raise CqlError(f"type {column.type} has no such part as {assignment.selector!r}")
        return CollectionWrite(remove=(key,)) if cell is None else CollectionWrite(put=((key, cell),))


def _joined(known: CollectionWrite, more: CollectionWrite) -> CollectionWrite:
    return replace(
        more,
        clear=known.clear if more.clear == "no" else more.clear,
        put=known.put + more.put,
        remove=known.remove + more.remove,
    )


def _index(place: int) -> bytes:
    """The key of a field: its position as a smallint."""
    return place.to_bytes(2, "big")


def _at(keys: list[bytes], term: Term) -> bytes:
    if isinstance(term, bool) or not isinstance(term, int):
        raise CqlError(f"the place of a list's element is a number, not {term!r}")
    if not 0 <= term < len(keys):
        raise CqlError(f"List index {term} out of bound, list has size {len(keys)}")
    return keys[term]
