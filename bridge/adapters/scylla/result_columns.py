"""What the bytes of a result say: its columns with their types, and where its rows are.

Knows the driver's classes for types by what they tell of themselves (`cassname`, `subtypes`) and does not import them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bridge.model.raw_rows import RawRows
from schemas.cql import types
from schemas.cql.types import CqlType


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """What a result's metadata says: `driver_types` are the driver's classes, `types` the same as CQL has them."""

    names: tuple[str, ...]
    driver_types: tuple[Any, ...]
    types: tuple[CqlType, ...]


class ResultRows(RawRows):
    """A result's rows with their columns."""

    def __init__(self, body: bytes, at: int, columns: ResultColumns) -> None:
        """Take where in the body the count of the rows stands."""
        super().__init__(body, at, len(columns.names))
        self.columns = columns


class KnownMetadata:
    """Columns by the very bytes of their metadata, so that a page costs a comparison and not a parse of its columns.

    A page of a log can hold few rows, or none; parsing its metadata then costs more than all the rest. That a page
    begins with known bytes is enough: given its flags and the number of columns, metadata says itself where it ends.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[tuple[int, int], list[tuple[bytes, ResultColumns]]] = {}

    def find(self, flags: int, count: int, body: bytes, at: int) -> tuple[ResultColumns, int] | None:
        """The columns whose metadata begins at `at`, and where it ends; None when they were not met before."""
        for raw, columns in self._known.get((flags, count), ()):
            if body.startswith(raw, at):
                return columns, at + len(raw)
        return None

    def add(self, flags: int, count: int, raw: bytes, columns: ResultColumns) -> None:
        """Remember; the process keeps only the latest of each number of columns."""
        others = self._known.get((flags, count), [])
        # A new list, because other threads may be reading the old one.
        self._known[flags, count] = [(raw, columns), *others][: self._most]


known_metadata: Final = KnownMetadata()
"""This process's."""

_same: Final[dict[Any, Any]] = {}
"""Names and types that were met, so that equal ones are one object and compared in no time."""


def result_columns(metadata: Iterable[Any]) -> ResultColumns:
    """The columns of the driver's metadata: keyspace, table, name and the driver's class for the type of each."""
    columns = list(metadata)
    names, kinds = tuple(column[2] for column in columns), tuple(column[3] for column in columns)
    types = tuple(map(_cql_type, kinds))
    return ResultColumns(_same.setdefault(names, names), kinds, _same.setdefault(types, types))


def _cql_type(kind: Any) -> CqlType:
    """The driver's class for a type as CQL has it; what is frozen is not said on the wire."""
    # Parametrized vectors alone have their parameter in this name.
    name = kind.cassname.partition("(")[0]
    if name == "UserType":
        fields = zip(kind.fieldnames, map(_cql_type, kind.subtypes), strict=True)
        return types.UdtType(kind.typename, tuple(fields))
    if name == "VectorType":
        return types.VectorType(_cql_type(kind.subtype), kind.vector_size)
    inner = tuple(_cql_type(one) for one in getattr(kind, "subtypes", ()))
    match name:
        case "FrozenType" | "ReversedType":
            return inner[0]
        case "ListType":
            return types.ListType(*inner)
        case "SetType":
            return types.SetType(*inner)
        case "MapType":
            return types.MapType(*inner)
        case "TupleType":
            return types.TupleType(inner)
    # Two names of one type; the server's schema tables say `text`.
    return types.NativeType("text" if kind.typename == "varchar" else kind.typename)
