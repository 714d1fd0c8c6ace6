"""What ALTER TABLE and ALTER TYPE do to a table and to its CDC log (spec sections 1.2 and 7). Pure.

The log's columns have the base table's types, but for the non-frozen list, whose cell keys the
log reveals. A result says neither what is frozen nor which of two names of a type was used.
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
    """Return the type that a result of the log has for a base column: with nothing frozen in it."""
    if isinstance(column.type, ListType):
        return MapType(NativeType("timeuuid"), _thawed(column.type.element))
    return _thawed(column.type)


def misfits(table: TableSchema, names: Sequence[str], types: Sequence[CqlType]) -> list[str]:
    """Return in words which columns of a result of the log have other types than the table says.

    Columns that one side lacks are no concern of this function, see `log_columns.log_positions`.
    A user-defined type whose fields were not looked up fits by its name.

    Args:
        table: the base table.
        names: the result's columns.
        types: their types, as a result says them.
    """
    found = dict(zip(names, types, strict=True))
    return [
        f"{column.name} is {describe(log_type(column))} in the table and {describe(found[column.name])} in the log"
        for column in table.columns
        if column.name in found and not _alike(log_type(column), _thawed(found[column.name]))
    ]


def changes_between(old: TableSchema, new: TableSchema) -> list[str]:
    """Return in words what became of a table, a phrase for each column; empty when nothing did."""
    return [*_renamed_keys(old, new).values(), *_other_changes(old, new)]


def renamed_keys(old: TableSchema, new: TableSchema) -> list[tuple[str, str]]:
    """Return (old, new) names of the key columns that have another name now."""
    return list(_renamed_keys(old, new))


def describe(cql_type: CqlType) -> str:
    """Return a type's text, with the names and types of the fields of user-defined types."""
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
    # A key column keeps its place and its type: another name there is a RENAME.
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


def _thawed(cql_type: CqlType) -> CqlType:
    match cql_type:
        case FrozenType():
            return _thawed(cql_type.inner)
        case ListType():
            return ListType(_thawed(cql_type.element))
        case SetType():
            return SetType(_thawed(cql_type.element))
        case MapType():
            return MapType(_thawed(cql_type.key), _thawed(cql_type.value))
        case TupleType():
            return TupleType(tuple(map(_thawed, cql_type.elements)))
        case VectorType():
            return VectorType(_thawed(cql_type.element), cql_type.dimension)
        case UdtType():
            return UdtType(cql_type.name, tuple((name, _thawed(one)) for name, one in cql_type.fields))
        case NativeType("varchar"):
            return NativeType("text")
        case NativeType():
            return cql_type


def _alike(expected: CqlType, found: CqlType) -> bool:
    """Whether two thawed types are one; unknown fields of `expected` fit any."""
    match expected, found:
        case UdtType(), UdtType():
            if expected.name != found.name or not expected.fields:
                return expected.name == found.name
            pairs = list(zip(expected.fields, found.fields, strict=False))
            return len(expected.fields) == len(found.fields) and all(
                was[0] == now[0] and _alike(was[1], now[1]) for was, now in pairs
            )
        case ListType(), ListType():
            return _alike(expected.element, found.element)
        case SetType(), SetType():
            return _alike(expected.element, found.element)
        case MapType(), MapType():
            return _alike(expected.key, found.key) and _alike(expected.value, found.value)
        case VectorType(), VectorType():
            return expected.dimension == found.dimension and _alike(expected.element, found.element)
        case TupleType(), TupleType():
            return len(expected.elements) == len(found.elements) and all(map(_alike, expected.elements, found.elements))
        case _:
            return expected == found
