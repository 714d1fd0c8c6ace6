"""The tables of the type matrix: for each column what its log rows hold and what a reader must give for it.

Written from the description of ScyllaDB's log (which log column says what) and of the envelope; the rows go into the
log table as raw cells, so that neither the simulator nor the encoder has a part in what is expected.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Any, Final

from tests.integration.support.cql_values import (
    BY_TYPE,
    EMPTY_IS_A_VALUE,
    HAVE_NO_EMPTY,
    MAPPED_INET,
    SCALARS,
    Value,
    framed,
    list_of,
    map_of,
    no_items,
    set_of,
    tuple_of,
    udt_of,
    vector_of,
)

KEYSPACE: Final = "type_matrix"

STEPS: Final[dict[str, int]] = {
    "insert": 2,
    "update": 1,
    "to null": 1,
    "to empty": 1,
    "add": 1,
    "remove": 1,
    "all at once": 1,
    "row delete": 3,
    "partition delete": 4,
}
"""The changes that every row goes through, with their `cdc$operation`."""

Cells = dict[str, bytes]

_TRUE: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Step:
    """One column of one change: its log cells, the value for a reader, and whether the record names it as empty."""

    cells: Cells
    read: Any
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """A column of a base table with its columns in the log; it is untouched in the steps that are not there."""

    name: str
    type: str
    log_columns: tuple[tuple[str, str], ...]
    steps: dict[str, Step]

    def __str__(self) -> str:
        return f"{self.name}-{self.type}"


def atomic(name: str, value: Value, empty: Value | None = None) -> MatrixColumn:
    """A column whose values are replaced as a whole: scalars, and everything frozen.

    Args:
        name: of the column.
        value: what it is inserted with and updated to.
        empty: the type's empty value; None takes the cell without bytes, if the type has one.
    """
    whole = Step({name: value.cell}, {"value": value.read})
    steps = {"insert": whole, "update": whole, "to null": Step({_deleted(name): _TRUE}, {"value": None})}
    if empty is not None:
        steps["to empty"] = Step({name: empty.cell}, {"value": empty.read})
    elif value.type in EMPTY_IS_A_VALUE:
        steps["to empty"] = Step({name: b""}, {"value": EMPTY_IS_A_VALUE[value.type]})
    elif value.type in BY_TYPE and value.type not in HAVE_NO_EMPTY:
        steps["to empty"] = Step({name: b""}, {"value": None}, is_empty=True)
    return MatrixColumn(name, value.type, ((name, value.type), (_deleted(name), "boolean")), steps)


def non_frozen_set(name: str, value: Value, items: tuple[Value, ...]) -> MatrixColumn:
    """A set that the log tells element by element; see spec 2.3 for the cells of each step."""

    def read(*, cleared: bool = False, added: bool = False, removed: bool = False) -> dict[str, Any]:
        return {
            "cleared": cleared,
            "added": value.read if added else [],
            "removed": [items[0].read] if removed else [],
        }

    return _collection(name, value.type, f"frozen<{value.type}>", items[0], value.cell, read)


def non_frozen_map(name: str, value: Value, keys: tuple[Value, ...]) -> MatrixColumn:
    """A map; keys alone are told to be removed."""

    def read(*, cleared: bool = False, added: bool = False, removed: bool = False) -> dict[str, Any]:
        return {
            "cleared": cleared,
            "added": value.read if added else [],
            "removed": [keys[0].read] if removed else [],
        }

    return _collection(name, value.type, f"frozen<{value.type}>", keys[0], value.cell, read)


def non_frozen_list(name: str, items: tuple[Value, ...]) -> MatrixColumn:
    """A list, whose elements have timeuuids as keys in the log."""
    keys = [_timeuuid(number) for number in range(len(items))]
    logged = map_of(*zip(keys, items, strict=True))

    def read(*, cleared: bool = False, added: bool = False, removed: bool = False) -> dict[str, Any]:
        return {
            "cleared": cleared,
            "added": logged.read if added else [],
            "removed": [keys[0].read] if removed else [],
        }

    return _collection(name, list_of(*items).type, f"frozen<{logged.type}>", keys[0], logged.cell, read)


def _collection(name: str, kind: str, log_type: str, removed: Value, cell: bytes, read: Any) -> MatrixColumn:
    added = {name: cell}
    gone = {_deleted_elements(name): struct.pack(">i", 1) + framed(removed)}
    cleared = {_deleted(name): _TRUE}
    replaced = Step(cleared | added, read(cleared=True, added=True))
    # `= null`, `= {}` and DELETE of the column are the same to the log: the flag alone.
    nothing_left = Step(cleared, read(cleared=True))
    return MatrixColumn(
        name,
        kind,
        (
            (name, log_type),
            (_deleted(name), "boolean"),
            (_deleted_elements(name), f"frozen<set<{removed.inner_type}>>"),
        ),
        {
            "insert": replaced,
            "update": replaced,
            "to null": nothing_left,
            "to empty": nothing_left,
            "add": Step(added, read(added=True)),
            "remove": Step(gone, read(removed=True)),
            "all at once": Step(cleared | added | gone, read(cleared=True, added=True, removed=True)),
        },
    )


def non_frozen_udt(name: str, type_name: str, fields: dict[str, Value]) -> MatrixColumn:
    """A user-defined type; its value in the log is never null, and a null field in it says nothing."""
    names = list(fields)
    every, nothing = udt_of(type_name, fields), udt_of(type_name, fields, absent=frozenset(names))
    first, *others = names
    one = udt_of(type_name, fields, absent=frozenset(others))
    gone = struct.pack(">i", len(others)) + b"".join(
        framed(Value("smallint", struct.pack(">h", index), index)) for index in range(1, len(names))
    )

    def read(*, cleared: bool = False, values: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> dict[str, Any]:
        told = {field: {"value": fields[field].read} for field in values} | {key: {"value": None} for key in removed}
        return {"cleared": cleared, "fields": {field: told.get(field) for field in names}}

    cleared = {_deleted(name): _TRUE}
    replaced = Step(cleared | {name: every.cell}, read(cleared=True, values=tuple(names)))
    nothing_left = Step(cleared | {name: nothing.cell}, read(cleared=True))
    removed = {_deleted_elements(name): gone}
    return MatrixColumn(
        name,
        type_name,
        (
            (name, f"frozen<{type_name}>"),
            (_deleted(name), "boolean"),
            (_deleted_elements(name), "frozen<set<smallint>>"),
        ),
        {
            "insert": replaced,
            "update": replaced,
            "to null": nothing_left,
            "to empty": nothing_left,
            "add": Step({name: one.cell}, read(values=(first,))),
            "remove": Step({name: nothing.cell} | removed, read(removed=tuple(others))),
            "all at once": Step(
                cleared | {name: one.cell} | removed,
                read(cleared=True, values=(first,), removed=tuple(others)),
            ),
        },
    )


def _deleted(name: str) -> str:
    return f"cdc$deleted_{name}"


def _deleted_elements(name: str) -> str:
    return f"cdc$deleted_elements_{name}"


def _timeuuid(number: int) -> Value:
    key = uuid.UUID(f"{number:08x}-0000-1000-8000-0123456789ab")
    return Value("timeuuid", key.bytes, key)


INT: Final = BY_TYPE["int"][0]
TEXT: Final = BY_TYPE["text"][1]
TYPES: Final = list(BY_TYPE)
# A duration has no order, so it serves neither in a set nor as a key.
ORDERED: Final = [kind for kind in TYPES if kind != "duration"]

# A user-defined type with a field of each scalar type, one that holds it, and a small one that grew by a field.
SCALAR_FIELDS: Final = {f"a_{kind}": BY_TYPE[kind][-1] for kind in TYPES}
SMALL_FIELDS: Final = {"number": INT, "word": TEXT}
SMALL: Final = udt_of("small", SMALL_FIELDS)
DEEP_FIELDS: Final = {
    "inside": SMALL.frozen,
    "words": list_of(TEXT, TEXT).frozen,
    "numbers": map_of((TEXT, set_of(*BY_TYPE["int"]))).frozen,
}
DEEP: Final = udt_of("deep", DEEP_FIELDS)


def user_types() -> dict[str, dict[str, Value]]:
    """The user-defined types with their fields, in an order in which they can be made."""
    return {"small": SMALL_FIELDS, "scalars": SCALAR_FIELDS, "deep": DEEP_FIELDS}


def scalar_columns() -> list[MatrixColumn]:
    """A column for every value of every scalar type."""
    return [atomic(f"c{number:02}", value) for number, value in enumerate((*SCALARS, MAPPED_INET))]


def frozen_columns() -> list[MatrixColumn]:
    """Frozen collections of every type, tuples, vectors, user-defined types, and what they hold of each other."""
    lists = [list_of(*BY_TYPE[kind]) for kind in TYPES]
    sets = [set_of(*BY_TYPE[kind]) for kind in ORDERED]
    maps = [map_of(*((key, key) for key in BY_TYPE[kind])) for kind in ORDERED]
    maps.append(map_of((INT, BY_TYPE["duration"][0])))
    nested = [
        list_of(list_of(INT, INT), list_of(INT)),
        set_of(set_of(*BY_TYPE["int"])),
        map_of((list_of(INT), map_of((TEXT, tuple_of(INT, TEXT))))),
        list_of(tuple_of(INT, list_of(BY_TYPE["duration"][0])), tuple_of(INT, list_of(BY_TYPE["duration"][1]))),
        list_of(SMALL, SMALL),
        map_of((SMALL, DEEP)),
        list_of(vector_of(*BY_TYPE["float"][:2])),
    ]
    collections = [*lists, *sets, *maps, *nested]
    none_there = range(len(TYPES))
    every = tuple_of(*SCALAR_FIELDS.values())
    no_fields = frozenset(none_there)
    others: list[tuple[Value, Value | None]] = [
        (every, tuple_of(*SCALAR_FIELDS.values(), absent=no_fields)),
        (tuple_of(INT, TEXT, INT, absent=frozenset({1})), None),
        (tuple_of(INT, TEXT, INT, missing=2), None),
        (tuple_of(tuple_of(INT, TEXT), set_of(TEXT), SMALL), None),
        (udt_of("scalars", SCALAR_FIELDS).frozen, udt_of("scalars", SCALAR_FIELDS, absent=frozenset(SCALAR_FIELDS))),
        (udt_of("small", SMALL_FIELDS, absent=frozenset({"number"})).frozen, None),
        (udt_of("small", SMALL_FIELDS, missing=1).frozen, None),
        (DEEP.frozen, None),
        *((vector_of(*BY_TYPE[kind]), None) for kind in TYPES),
        (vector_of(list_of(INT), list_of(INT, INT)), None),
        (vector_of(vector_of(*BY_TYPE["float"][:2]), vector_of(*BY_TYPE["float"][1:3])), None),
    ]
    values = [(value.frozen, no_items(value)) for value in collections] + others
    return [atomic(f"f{number:03}", value, empty) for number, (value, empty) in enumerate(values)]


def non_frozen_columns() -> list[MatrixColumn]:
    """Collections and user-defined types that the log tells element by element."""
    columns: list[MatrixColumn] = []

    def name() -> str:
        return f"m{len(columns):03}"

    for kind in TYPES:
        columns.append(non_frozen_list(name(), tuple(BY_TYPE[kind])))
        columns.append(non_frozen_map(name(), map_of((INT, BY_TYPE[kind][0])), (INT,)))
    for kind in ORDERED:
        values = tuple(BY_TYPE[kind])
        columns.append(non_frozen_set(name(), set_of(*values), values))
        columns.append(non_frozen_map(name(), map_of(*((value, TEXT) for value in values)), values))
    for inner in (list_of(INT), set_of(TEXT), map_of((INT, TEXT)), tuple_of(INT, TEXT), SMALL, DEEP):
        columns.append(non_frozen_list(name(), (inner, inner)))
        columns.append(non_frozen_set(name(), set_of(inner), (inner,)))
        columns.append(non_frozen_map(name(), map_of((inner, inner)), (inner,)))
    columns.append(non_frozen_list(name(), (vector_of(*BY_TYPE["float"][:3]),)))
    columns.append(non_frozen_udt(name(), "small", SMALL_FIELDS))
    columns.append(non_frozen_udt(name(), "scalars", SCALAR_FIELDS))
    columns.append(non_frozen_udt(name(), "deep", DEEP_FIELDS))
    return columns


def key_values() -> list[Value]:
    """Values for a partition key: every scalar that may be in one, and frozen compound ones."""
    compound = [list_of(INT, INT), set_of(TEXT), map_of((INT, TEXT)), tuple_of(INT, TEXT), SMALL, DEEP]
    return [value for value in (*SCALARS, MAPPED_INET) if value.type != "duration"] + [
        value.frozen for value in compound
    ]
