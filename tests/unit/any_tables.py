"""Hypothesis strategies for tables of any columns, and the raw log rows of their writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from bridge.model.log_rows import Cells
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.log.log_rows import CollectionDelta, LogGroup, LogOperation
from sandbox.scylla.tables import resolved
from sandbox.scylla.values.native import EXTREMES
from sandbox.scylla.values.nested import UserType, UserTypes
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.schemas.example_tables import log_columns

EXAMPLES_VARIABLE = "SCYLLA_CDC_BRIDGE_EXAMPLES"

SCALARS = sorted(EXTREMES)
KEYS = [name for name in SCALARS if name != "duration"]
CLUSTERING = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "int",
    "smallint",
    "text",
    "timestamp",
    "timeuuid",
    "tinyint",
]
"""Types that sort as their decoded values do."""

_NAMES = ("a", "b", "first name", "Größe", "value", "key", "op", "_u20_", "A", "null", "2nd")
_TRUE = b"\x01"
_IMAGES = (LogOperation.PRE_IMAGE, LogOperation.POST_IMAGE)


def examples(ordinary: int) -> int:
    """Return how many examples a test tries: the ordinary number, or that of a long run."""
    return int(os.environ.get(EXAMPLES_VARIABLE, ordinary))


def _frozen_keys(scalars: Sequence[str]) -> st.SearchStrategy[str]:
    key = st.sampled_from(scalars)
    return st.one_of(
        key,
        key,
        st.just("frozen<near>"),
        st.builds("frozen<set<{}>>".format, key),
        st.builds("frozen<tuple<{}, {}>>".format, key, key),
    )


_KEY = _frozen_keys(KEYS)
_VALUE = st.recursive(
    st.one_of(st.sampled_from(SCALARS), st.sampled_from(["frozen<near>", "frozen<far>"])),
    lambda inner: st.one_of(
        st.builds("frozen<list<{}>>".format, inner),
        st.builds("frozen<set<{}>>".format, _KEY),
        st.builds("frozen<map<{}, {}>>".format, _KEY, inner),
        st.builds("tuple<{}, {}>".format, inner, inner),
        st.builds("vector<{}, {}>".format, inner, st.integers(1, 3)),
    ),
    max_leaves=3,
)
COLUMN_TYPES = st.one_of(
    _VALUE,
    st.builds("list<{}>".format, _VALUE),
    st.builds("set<{}>".format, _KEY),
    st.builds("map<{}, {}>".format, _KEY, _VALUE),
    st.sampled_from(["near", "far"]),
)
"""Types of static and regular columns, as text."""


def _type(name: str, fields: dict[str, str]) -> UserType:
    return UserType(name, tuple((field, parse(text)) for field, text in fields.items()))


@st.composite
def _user_types(draw: st.DrawFn) -> UserTypes:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    near = _type("near", dict(zip(("key", "value", "Haus Nr"), keys, strict=False)))
    far = _type("far", {"x": draw(st.sampled_from(SCALARS)), "to": "frozen<near>", "all": "frozen<list<near>>"})
    return near, far


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    """Draw a table with up to two columns of each key, statics, awkward names and user-defined types."""
    names = iter(draw(st.permutations(_NAMES)))
    columns: list[Column] = []
    for place, text in enumerate(draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))):
        columns.append(Column(next(names), parse(text), ColumnKind.PARTITION_KEY, place))
    clustering = draw(st.lists(st.tuples(st.sampled_from(CLUSTERING), st.booleans()), max_size=2))
    for place, (text, descending) in enumerate(clustering):
        columns.append(Column(next(names), parse(text), ColumnKind.CLUSTERING, place, descending))
    regular = draw(st.lists(COLUMN_TYPES, min_size=1, max_size=4))
    columns += [Column(next(names), parse(text), ColumnKind.REGULAR) for text in regular]
    static = draw(st.lists(COLUMN_TYPES, max_size=2)) if clustering else []
    columns += [Column(next(names), parse(text), ColumnKind.STATIC) for text in static]
    return resolved(TableSchema("any ks", "t", tuple(columns)), draw(_user_types()))


def raw_rows(table: TableSchema, group: LogGroup, place: Place) -> Iterator[Cells]:
    """Yield the raw rows of a group, in the column order of `example_tables.log_columns`."""
    names = log_columns(table)
    last = len(group.rows) - 1
    for number, row in enumerate(group.rows):
        cells: dict[str, bytes | None] = {
            "cdc$stream_id": place.stream_id,
            "cdc$time": place.time,
            "cdc$batch_seq_no": number.to_bytes(4, "big"),
            "cdc$operation": int(row.operation).to_bytes(1, "big", signed=True),
            "cdc$ttl": None if row.ttl_s is None else row.ttl_s.to_bytes(8, "big"),
            "cdc$end_of_batch": _TRUE if number == last else None,
        }
        cells.update(zip((column.name for column in table.partition_key), place.partition_key, strict=True))
        cells.update(zip((column.name for column in table.clustering), row.clustering, strict=False))
        for name, cell in row.cells.items():
            if cell is None:
                cells[f"cdc$deleted_{name}"] = _TRUE
            elif isinstance(cell, CollectionDelta):
                cells[name] = cell.value
                cells[f"cdc$deleted_{name}"] = _TRUE if cell.deleted else None
                cells[f"cdc$deleted_elements_{name}"] = cell.deleted_elements
            else:
                cells[name] = cell
        yield tuple(cells.get(name) for name in names)
