"""Derives the rows of a WHERE clause: partition keys, and clustering keys, their prefixes or ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from sandbox.cql.literals import Serializer
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Relation
from sandbox.cql.parser.terms import ListTerm, Term, TupleTerm
from sandbox.scylla.base.mutations import Bound, RangeDelete
from sandbox.scylla.values.ordering import Key
from schemas.cql.table import Column, TableSchema

_LOWER: Final = (">", ">=")
_UPPER: Final = ("<", "<=")


@dataclass(frozen=True, slots=True)
class Slice:
    """A range in the order of values after an equal prefix, from `lower` to `upper`; None is unbounded."""

    lower: Bound | None
    upper: Bound | None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a WHERE clause.

    Attributes:
        partition_keys: one partition key, or several with IN.
        prefixes: prefixes of the clustering key; (()) if the clause has none.
        bounds: the slice after each prefix, with bounds that exclude the prefix; None if there is no slice.
    """

    partition_keys: tuple[Key, ...]
    prefixes: tuple[Key, ...]
    bounds: Slice | None = None


def rows_of(table_schema: TableSchema, where: Sequence[Relation], serializer: Serializer) -> Rows:
    """Return the rows of relations with bound markers.

    Raises:
        CqlError: a write must not have such relations.
    """
    left = list(where)
    keys = _equal(table_schema.partition_key, left, serializer)
    if len(keys[0]) < len(table_schema.partition_key):
        raise _error(table_schema, "the whole partition key must be given with = or IN")
    prefixes = _equal(table_schema.clustering, left, serializer)
    rest = table_schema.clustering[len(prefixes[0]) :]
    bounds = _slice(rest, left, serializer)
    if left:
        raise _error(table_schema, f"no use for the restriction of {', '.join(left[0].columns)}")
    return Rows(keys, prefixes, bounds)


class Direction(NamedTuple):
    """The order of a clustering column.

    Attributes:
        order: returns the sort key of a cell.
        descending: whether the greatest value comes first.
    """

    order: Callable[[bytes], Any]
    descending: bool


def ranges_of(prefix: Key, bounds: Slice | None, columns: Sequence[Direction]) -> Iterator[RangeDelete]:
    """Return the ranges of clustering keys after a prefix, with their bounds in clustering order.

    A slice over columns of different directions becomes several ranges.

    Args:
        prefix: prefix of the clustering key; may be () if there are bounds.
        bounds: slice after the prefix; None means all keys with the prefix.
        columns: all clustering columns.
    """
    if bounds is None:
        whole = Bound(prefix, inclusive=True) if prefix else None
        yield RangeDelete(whole, whole)
        return
    width = max(len(bound.prefix) for bound in (bounds.lower, bounds.upper) if bound is not None)
    directions = {column.descending for column in columns[len(prefix) : len(prefix) + width]}
    if len(directions) == 1:
        yield _directed(prefix, bounds, descending=directions.pop())
        return
    yield from _split(prefix, bounds, columns)


def _equal(columns: Sequence[Column], left: list[Relation], serializer: Serializer) -> tuple[Key, ...]:
    """Return all combinations of the first columns' equal values. Used relations are removed from `left`."""
    found: list[list[Key]] = []
    at = 0
    while at < len(columns):
        for relation in left:
            width = len(relation.columns)
            names = tuple(column.name for column in columns[at : at + width])
            if relation.operator in ("=", "in") and relation.columns == names:
                break
        else:
            break
        left.remove(relation)
        listed = _listed(relation)
        found.append([_key(columns[at : at + width], relation, value, serializer) for value in listed])
        at += width
    return tuple(tuple(cell for part in parts for cell in part) for parts in product(*found))


def _listed(relation: Relation) -> tuple[Term, ...]:
    if relation.operator == "=":
        return (relation.value,)
    if not isinstance(relation.value, TupleTerm | ListTerm):
        raise CqlError(f"IN needs a list for {', '.join(relation.columns)}, found {relation.value!r}")
    return relation.value.elements


def _key(columns: Sequence[Column], relation: Relation, value: Term, serializer: Serializer) -> Key:
    """Return the cells of one value of a relation: several for a multi-column relation."""
    values: tuple[Term, ...] = (value,)
    if len(relation.columns) > 1 or (isinstance(value, TupleTerm) and len(value.elements) == 1):
        if not isinstance(value, TupleTerm) or len(value.elements) != len(relation.columns):
            raise CqlError(f"a tuple of {len(relation.columns)} values expected for {', '.join(relation.columns)}")
        values = value.elements
    return tuple(serializer.value(column.type, item) for column, item in zip(columns, values, strict=True))


def _slice(rest: Sequence[Column], left: list[Relation], serializer: Serializer) -> Slice | None:
    ends: dict[bool, Bound] = {}
    for relation in tuple(left):
        width = len(relation.columns)
        names = tuple(column.name for column in rest[:width])
        if relation.columns != names or relation.operator not in (*_LOWER, *_UPPER):
            continue
        left.remove(relation)
        is_lower = relation.operator in _LOWER
        if is_lower in ends:
            raise CqlError(f"more than one {'lower' if is_lower else 'upper'} bound for {relation.columns[0]}")
        key = _key(rest[:width], relation, relation.value, serializer)
        ends[is_lower] = Bound(key, inclusive=relation.operator.endswith("="))
    return Slice(ends.get(True), ends.get(False)) if ends else None


def _directed(prefix: Key, bounds: Slice, *, descending: bool) -> RangeDelete:
    lower, upper = (
        Bound(prefix + bound.prefix, bound.inclusive)
        if bound is not None
        else (Bound(prefix, inclusive=True) if prefix else None)
        for bound in (bounds.lower, bounds.upper)
    )
    return RangeDelete(upper, lower) if descending else RangeDelete(lower, upper)


def _split(prefix: Key, bounds: Slice, columns: Sequence[Direction]) -> Iterator[RangeDelete]:
    """Split a slice over columns of mixed directions: `(a, b) > (1, 2)` is `a > 1`, and `b > 2` where `a = 1`."""
    lower, upper = bounds.lower, bounds.upper
    order, is_descending = columns[len(prefix)]
    if lower is not None and upper is not None and lower.prefix[0] == upper.prefix[0]:
        if any(len(bound.prefix) == 1 and not bound.inclusive for bound in (lower, upper)):
            return  # `(a, b) > (1, 2) AND a < 1` holds for no row
        inner = Slice(_inner(lower), _inner(upper))
        yield from _behind((*prefix, lower.prefix[0]), inner, columns)
        return
    if lower is not None and upper is not None and order(lower.prefix[0]) > order(upper.prefix[0]):
        return
    parts = [
        _behind((*prefix, lower.prefix[0]), Slice(_inner(lower), None), columns)
        if lower is not None and len(lower.prefix) > 1
        else (),
        [_directed(prefix, Slice(_outer(lower), _outer(upper)), descending=is_descending)],
        _behind((*prefix, upper.prefix[0]), Slice(None, _inner(upper)), columns)
        if upper is not None and len(upper.prefix) > 1
        else (),
    ]
    for part in reversed(parts) if is_descending else parts:
        yield from part


def _behind(prefix: Key, bounds: Slice, columns: Sequence[Direction]) -> Iterator[RangeDelete]:
    if bounds.lower is None and bounds.upper is None:
        return ranges_of(prefix, None, columns)
    return ranges_of(prefix, bounds, columns)


def _inner(bound: Bound) -> Bound | None:
    """Return the bound without its first column."""
    return Bound(bound.prefix[1:], bound.inclusive) if len(bound.prefix) > 1 else None


def _outer(bound: Bound | None) -> Bound | None:
    """Return the bound with its first column only: the part of the slice outside of `_inner`."""
    if bound is None:
        return None
    return Bound(bound.prefix[:1], inclusive=bound.inclusive and len(bound.prefix) == 1)


def _error(table_schema: TableSchema, reason: str) -> CqlError:
    return CqlError(f"table {table_schema.full_name}: {reason}")
