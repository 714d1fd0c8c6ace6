"""Which rows a WHERE names: partition keys, and full clustering keys, prefixes or ranges of them."""

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
    """A range in the order of values: behind an equal prefix, from `lower` up to `upper`; None is unbounded."""

    lower: Bound | None
    upper: Bound | None


@dataclass(frozen=True, slots=True)
class Rows:
    """What a WHERE names.

    Attributes:
        partition_keys: one, or several with IN.
        prefixes: equal clustering prefixes; (()) where none is restricted so.
        bounds: the slice behind each prefix, its bounds without the prefix; None where there is none.
    """

    partition_keys: tuple[Key, ...]
    prefixes: tuple[Key, ...]
    bounds: Slice | None = None


def rows_of(table_schema: TableSchema, where: Sequence[Relation], serializer: Serializer) -> Rows:
    """The rows that the relations, their markers bound already, name.

    Raises:
        CqlError: the relations name no rows that a write may name.
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
    """How a clustering column is ordered.

    Attributes:
        order: what its cells are compared by.
        descending: whether the greatest comes first.
    """

    order: Callable[[bytes], Any]
    descending: bool


def ranges_of(prefix: Key, bounds: Slice | None, columns: Sequence[Direction]) -> Iterator[RangeDelete]:
    """The ranges of clustering keys behind a prefix, each with its bounds in clustering order.

    Several columns of one slice that are ordered in different directions make several ranges of it.

    Args:
        prefix: of the clustering key; may be () where there are bounds.
        bounds: behind the prefix; None is the whole of it.
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
    """All combinations of what the first columns are equal to; relations that were used leave `left`."""
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
    """The cells of one value of a relation; of a tuple where the relation is written with brackets."""
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
    """A slice over columns of mixed directions: `(a, b) > (1, 2)` is `a > 1` and, behind `a = 1`, `b > 2`."""
    lower, upper = bounds.lower, bounds.upper
    order, is_descending = columns[len(prefix)]
    if lower is not None and upper is not None and lower.prefix[0] == upper.prefix[0]:
        if any(len(bound.prefix) == 1 and not bound.inclusive for bound in (lower, upper)):
            return  # `(a, b) > (1, 2) AND a < 1` holds for nothing
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
    """The bound behind its own first column."""
    return Bound(bound.prefix[1:], bound.inclusive) if len(bound.prefix) > 1 else None


def _outer(bound: Bound | None) -> Bound | None:
    """The bound's first column alone: what lies beyond it on both sides of `_inner`."""
    if bound is None:
        return None
    return Bound(bound.prefix[:1], inclusive=bound.inclusive and len(bound.prefix) == 1)


def _error(table_schema: TableSchema, reason: str) -> CqlError:
    return CqlError(f"table {table_schema.full_name}: {reason}")
