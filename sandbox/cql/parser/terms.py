"""The values of a statement: plain Python values, and the kinds below for values that Python does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final
from uuid import UUID

from sandbox.cql.parser.errors import CqlError
from sandbox.scylla.values.native import Duration


class Unset(Enum):
    """A bound value that leaves its column unchanged."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Marker:
    """A `?`, with its number among the statement's markers, from 0."""

    number: int


@dataclass(frozen=True, slots=True)
class ListTerm:
    """`[a, b]`."""

    elements: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class SetTerm:
    """`{a, b}`. An empty `{}` is a SetTerm, too, for any type."""

    elements: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class MapTerm:
    """`{a: b}`."""

    entries: tuple[tuple[Term, Term], ...]


@dataclass(frozen=True, slots=True)
class UdtTerm:
    """`{name: a}`."""

    fields: tuple[tuple[str, Term], ...]


@dataclass(frozen=True, slots=True)
class TupleTerm:
    """`(a, b)`."""

    elements: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`name(a, b)`, with the name in lower case."""

    name: str
    arguments: tuple[Term, ...]


Constant = int | Decimal | float | bool | str | bytes | UUID | Duration
Term = Constant | Unset | Marker | ListTerm | SetTerm | MapTerm | UdtTerm | TupleTerm | Call | None
"""A term. None is `null`. A float is NaN or infinite; other numbers are exact."""


def bound(term: Term, parameters: Sequence[Term]) -> Term:
    """Return the term with its markers replaced by parameters.

    Raises:
        CqlError: a marker has no parameter.
    """
    match term:
        case Marker(number):
            if number >= len(parameters):
                raise CqlError(f"no value for marker {number + 1} of the statement, which got {len(parameters)}")
            return parameters[number]
        case ListTerm(elements):
            return ListTerm(tuple(bound(element, parameters) for element in elements))
        case SetTerm(elements):
            return SetTerm(tuple(bound(element, parameters) for element in elements))
        case TupleTerm(elements):
            return TupleTerm(tuple(bound(element, parameters) for element in elements))
        case MapTerm(entries):
            return MapTerm(tuple((bound(key, parameters), bound(value, parameters)) for key, value in entries))
        case UdtTerm(fields):
            return UdtTerm(tuple((name, bound(value, parameters)) for name, value in fields))
        case Call(name, arguments):
            return Call(name, tuple(bound(argument, parameters) for argument in arguments))
        case _:
            return term


def from_json(value: object) -> Term:
    """Convert a JSON value to a term. An object becomes a map with its names as keys.

    Raises:
        CqlError: the value is not a JSON value.
    """
    match value:
        case None | bool() | int() | str() | Decimal():
            return value
        case float():
            return Decimal(repr(value))
        case list() | tuple():
            return ListTerm(tuple(from_json(element) for element in value))
        case dict():
            return MapTerm(tuple((key, from_json(element)) for key, element in value.items()))
        case _:
            raise CqlError(f"a value of Python's type {type(value).__name__} is none of JSON's: {value!r}")


def holds_tuple(term: Term) -> bool:
    """Whether there is a tuple literal in a term, at any depth."""
    match term:
        case TupleTerm():
            return True
        case ListTerm(elements) | SetTerm(elements):
            return any(map(holds_tuple, elements))
        case MapTerm(entries):
            return any(holds_tuple(key) or holds_tuple(value) for key, value in entries)
        case UdtTerm(fields):
            return any(holds_tuple(value) for _name, value in fields)
        case _:
            return False


def elements_of(term: Term) -> Iterator[Term]:
    """Return the elements of a list or set term.

    Raises:
        CqlError: the term is neither.
    """
    if not isinstance(term, ListTerm | SetTerm):
        raise CqlError(f"a list or set expected, found {term!r}")
    yield from term.elements
