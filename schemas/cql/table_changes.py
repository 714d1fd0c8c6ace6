"""What ALTER TABLE and ALTER TYPE do to a table and to its CDC log (spec sections 1.2 and 7). Pure.

The log's columns have the base table's types, except that a non-frozen list is a map from its cell keys. The types of a
query's result do not show what is frozen, nor which of two names of a type was used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import (
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
)

_KEYS = frozenset({ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING})


def log_type(column: Column) -> CqlType:
    """Return the type that a query's result has for a base column in the log; nothing is frozen in it."""
    if isinstance(column.type, ListType):
        return MapType(NativeType("timeuuid"), _without_frozen(column.type.element))
    return _without_frozen(column.type)


def misfits(table: TableSchema, names: Sequence[str], types: Sequence[CqlType]) -> list[str]:
    """Return descriptions of the columns whose types differ between a query's result and the table.

    Columns that one side lacks are ignored; ``schemas.log.columns.log_positions`` reports them. A user-defined type
    without known fields is compared by its name.

    Args:
        table: the base table.
        names: the result's columns.
        types: the types of these columns in the result.
    """
    found = dict(zip(names, types, strict=True))
    return [
        f"{column.name} is {describe(log_type(column))} in the table and {describe(found[column.name])} in the log"
        for column in table.columns
        if column.name in found and not _are_equal(log_type(column), _without_frozen(found[column.name]))
    ]


def changes_between(old: TableSchema, new: TableSchema) -> list[str]:
    """Return descriptions of the differences between two versions of a table, one for each column."""
    return [*_renamed_keys(old, new).values(), *_other_changes(old, new)]


def renamed_keys(old: TableSchema, new: TableSchema) -> list[tuple[str, str]]:
    """Return (old name, new name) of the renamed key columns."""
    return list(_renamed_keys(old, new))


def describe(cql_type: CqlType) -> str:
    """Return the text of a type, including the fields of user-defined types."""
    match cql_type:
        case UdtType() if cql_type.fields:
            fields = ", ".join(f"{name} {describe(one)}" for name, one in cql_type.fields)
            return f"{cql_type}({fields})"
        case FrozenType():
            return f"frozen<{describe(cql_type.inner)}>"
        case ListType():
            return f"list<{describe(cql_type.element)}>"
        case SetType():
            return f"set<{describe(cql_type.element)}>"
        case MapType():
            return f"map<{describe(cql_type.key)}, {describe(cql_type.value)}>"
        case TupleType():
            return f"tuple<{', '.join(map(describe, cql_type.elements))}>"
        case VectorType():
            return f"vector<{describe(cql_type.element)}, {cql_type.dimension}>"
        case _:
            return str(cql_type)


def _renamed_keys(old: TableSchema, new: TableSchema) -> dict[tuple[str, str], str]:
    # ALTER TABLE cannot change a key column's position or type, so another name at a position is a RENAME.
    before = {(column.kind, column.position): column for column in old.columns if column.kind in _KEYS}
    found = {}
    for column in new.columns:
        former = before.get((column.kind, column.position))
        if former is not None and former.name != column.name and former.type == column.type:
            kind = column.kind.value.replace("_", " ")
            found[former.name, column.name] = f"{kind} column {former.name} is now named {column.name}"
    return found


def _other_changes(old: TableSchema, new: TableSchema) -> Iterator[str]:
    before = {column.name: column for column in old.columns}
    after = {column.name: column for column in new.columns}
    for former_name, name in _renamed_keys(old, new):
        del before[former_name], after[name]
    for name in sorted(before.keys() - after.keys()):
        yield f"column {name} {describe(before[name].type)} was dropped"
    for name in sorted(after.keys() - before.keys()):
        yield f"column {name} {describe(after[name].type)} was added"
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        if was.type != now.type:
            yield f"column {name} was {describe(was.type)} and is {describe(now.type)}"
        elif was.kind is not now.kind:
            yield f"column {name} was {was.kind.value} and is {now.kind.value}"


def _without_frozen(cql_type: CqlType) -> CqlType:
    match cql_type:
        case FrozenType():
            return _without_frozen(cql_type.inner)
        case ListType():
            return ListType(_without_frozen(cql_type.element))
        case SetType():
            return SetType(_without_frozen(cql_type.element))
        case MapType():
            return MapType(_without_frozen(cql_type.key), _without_frozen(cql_type.value))
        case TupleType():
            return TupleType(tuple(map(_without_frozen, cql_type.elements)))
        case VectorType():
            return VectorType(_without_frozen(cql_type.element), cql_type.dimension)
        case UdtType():
            return UdtType(cql_type.name, tuple((name, _without_frozen(one)) for name, one in cql_type.fields))
        case NativeType("varchar"):
            return NativeType("text")
        case NativeType():
            return cql_type


def _are_equal(expected: CqlType, found: CqlType) -> bool:
    """Return whether two types without `frozen` are equal; unknown fields of `expected` fit any fields."""
    match expected, found:
        case UdtType(), UdtType():
            if expected.name != found.name or not expected.fields:
                return expected.name == found.name
            pairs = list(zip(expected.fields, found.fields, strict=False))
            return len(expected.fields) == len(found.fields) and all(
                was[0] == now[0] and _are_equal(was[1], now[1]) for was, now in pairs
            )
        case ListType(), ListType():
            return _are_equal(expected.element, found.element)
        case SetType(), SetType():
            return _are_equal(expected.element, found.element)
        case MapType(), MapType():
            return _are_equal(expected.key, found.key) and _are_equal(expected.value, found.value)
        case VectorType(), VectorType():
            return expected.dimension == found.dimension and _are_equal(expected.element, found.element)
        case TupleType(), TupleType():
            return len(expected.elements) == len(found.elements) and all(
                map(_are_equal, expected.elements, found.elements)
            )
        case _:
            return expected == found
