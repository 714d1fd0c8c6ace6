"""The columns and rows of a query's result, from the bytes of the native protocol.

This module recognizes the driver's type classes by their attributes (`cassname`, `subtypes`) and does not import them.
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
    """The columns of a result, as its metadata describes them.

    Attributes:
        names: the columns' names.
        driver_types: the driver's class for each column's type.
        types: the columns' CQL types; nothing is frozen in them.
    """

    names: tuple[str, ...]
    driver_types: tuple[Any, ...]
    types: tuple[CqlType, ...]


class ResultRows(RawRows):
    """A result's rows with their columns.

    Args:
        body: the bytes of the result.
        at: where in `body` the row count begins.
        columns: the columns of the rows.
    """

    def __init__(self, body: bytes, at: int, columns: ResultColumns) -> None:
        super().__init__(body, at, len(columns.names))
        self.columns = columns


class KnownMetadata:
    """A cache of columns by the bytes of their metadata: a page then costs a comparison instead of a parse.

    A page of a log may have few rows or none; parsing its metadata then costs more than everything else. It is enough
    that a page begins with known bytes: given its flags and its number of columns, metadata determines its own end.

    Args:
        size: the most entries for each number of columns.
    """

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._known: dict[tuple[int, int], list[tuple[bytes, ResultColumns]]] = {}

    def find(self, flags: int, count: int, body: bytes, at: int) -> tuple[ResultColumns, int] | None:
        """Look up the metadata that begins at `at`.

        Args:
            flags: the flags of the metadata that affect its form.
            count: the number of columns.
            body: the bytes of the result.
            at: where in `body` the columns' descriptions begin.

        Returns:
            The columns, and where in `body` their metadata ends; None if they are not in the cache.
        """
        for raw, columns in self._known.get((flags, count), ()):
            if body.startswith(raw, at):
                return columns, at + len(raw)
        return None

    def add(self, flags: int, count: int, raw: bytes, columns: ResultColumns) -> None:
        """Add the columns of metadata bytes; the oldest entries for this number of columns are dropped."""
        others = self._known.get((flags, count), [])
        # Make a new list: other threads may be reading the old one.
        self._known[flags, count] = [(raw, columns), *others][: self._size]


known_metadata: Final = KnownMetadata()
"""The cache of this process."""

_interned: Final[dict[Any, Any]] = {}
"""All names and types so far: equal ones are one object, so that comparing them costs nothing."""


def result_columns(metadata: Iterable[Any]) -> ResultColumns:
    """The columns of a result.

    Args:
        metadata: for each column its keyspace, table, name, and the driver's class for its type.
    """
    columns = list(metadata)
    names, driver_types = tuple(column[2] for column in columns), tuple(column[3] for column in columns)
    types = tuple(map(_cql_type, driver_types))
    return ResultColumns(_interned.setdefault(names, names), driver_types, _interned.setdefault(types, types))


def _cql_type(driver_type: Any) -> CqlType:
    """The CQL type of one of the driver's classes; the wire does not tell what is frozen."""
    # Only a vector's name contains its parameters.
    name = driver_type.cassname.partition("(")[0]
    if name == "UserType":
        fields = zip(driver_type.fieldnames, map(_cql_type, driver_type.subtypes), strict=True)
        return types.UdtType(driver_type.typename, tuple(fields))
    if name == "VectorType":
        return types.VectorType(_cql_type(driver_type.subtype), driver_type.vector_size)
    inner = tuple(_cql_type(one) for one in getattr(driver_type, "subtypes", ()))
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
    # Both names mean the same type; the server's schema tables use `text`.
    return types.NativeType("text" if driver_type.typename == "varchar" else driver_type.typename)
