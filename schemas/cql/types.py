"""CQL types as an immutable tree, and their text form in ``system_schema.columns.type``.

A text has only the name of a user-defined type; `resolve` adds the fields from ``system_schema.types``. Example:
``parse("frozen<map<text, int>>")`` is ``FrozenType(MapType(NativeType("text"), NativeType("int")))``, and ``str``
of this tree is the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from schemas.errors import TypeTextError

FIXED_WIDTH_BYTES: dict[str, int] = {
    "bigint": 8,
    "boolean": 1,
    "counter": 8,
    "date": 4,
    "double": 8,
    "float": 4,
    "int": 4,
    "smallint": 2,
    "time": 8,
    "timestamp": 8,
    "timeuuid": 16,
    "tinyint": 1,
    "uuid": 16,
}
"""Native type -> width of its serialized values in bytes, for the types of fixed width."""

_VARIABLE_WIDTH = frozenset({"ascii", "blob", "decimal", "duration", "inet", "text", "varchar", "varint"})

_HIDDEN = "empty"
"""Type of the hidden value column of COMPACT STORAGE tables (spec section 1.2)."""

NATIVE_TYPES: frozenset[str] = frozenset(FIXED_WIDTH_BYTES) | _VARIABLE_WIDTH | {_HIDDEN}

_EMPTY_IS_A_VALUE = frozenset({"ascii", "blob", "text", "varchar"})
_CONSTRUCTORS = frozenset({"frozen", "list", "map", "set", "tuple", "vector"})
_MAX_DEPTH = 64
_MAX_DIMENSION = 2**16 - 1
"""A limit above that of any server."""

_TOKEN = re.compile(r"""\s*(?:(?P<word>[A-Za-z0-9_]+)|(?P<quoted>"(?:[^"]|"")*")|(?P<sign>[<>,]))""")
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NativeType:
    """A built-in scalar type; `name` is one of ``NATIVE_TYPES``."""

    name: str

    def __str__(self) -> str:
        """Return the CQL text."""
        return self.name

    @property
    def fixed_width_bytes(self) -> int | None:
        """Width of a serialized value in bytes; None if it varies."""
        return FIXED_WIDTH_BYTES.get(self.name)

    @property
    def empty_is_value(self) -> bool:
        """Whether zero bytes are an ordinary value (text and blob), and not CQL's special "empty" value."""
        return self.name in _EMPTY_IS_A_VALUE

    @property
    def is_hidden(self) -> bool:
        """Whether CQL does not show columns of this type, which the log lacks."""
        return self.name == _HIDDEN


@dataclass(frozen=True, slots=True)
class ListType:
    """``list<element>``."""

    element: CqlType

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class SetType:
    """``set<element>``."""

    element: CqlType

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"set<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """``map<key, value>``."""

    key: CqlType
    value: CqlType

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class TupleType:
    """``tuple<a, b, ...>``, with one or more elements."""

    elements: tuple[CqlType, ...]

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True, slots=True)
class VectorType:
    """``vector<element, dimension>``; dimension >= 1."""

    element: CqlType
    dimension: int

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"vector<{self.element}, {self.dimension}>"


@dataclass(frozen=True, slots=True)
class UdtType:
    """A user-defined type.

    Attributes:
        name: its CQL name, without quotes.
        fields: (name, type) in the order of CREATE and ALTER TYPE; empty until `resolve` adds them. They count for
            equality, so ALTER TYPE makes a different type.
    """

    name: str
    fields: tuple[tuple[str, CqlType], ...] = ()

    def __str__(self) -> str:
        """Return the CQL text, quoted where CQL needs it."""
        plain = _PLAIN_NAME.fullmatch(self.name) and self.name not in NATIVE_TYPES | _CONSTRUCTORS
        return self.name if plain else '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class FrozenType:
    """``frozen<inner>``."""

    inner: CqlType

    def __str__(self) -> str:
        """Return the CQL text."""
        return f"frozen<{self.inner}>"


CqlType: TypeAlias = NativeType | ListType | SetType | MapType | TupleType | VectorType | UdtType | FrozenType


def parse(text: str) -> CqlType:
    """Return the type of a text such as in ``system_schema.columns.type``; white space does not matter.

    Unquoted names become lower case as in CQL. An unknown name is that of a user-defined type.

    Raises:
        TypeTextError: the text is not a type, or is a custom type (the name of a class).
    """
    parser = _Parser(text)
    cql_type = parser.type_(depth=0)
    parser.end()
    return cql_type


def resolve(cql_type: CqlType, definitions: Mapping[str, Sequence[tuple[str, CqlType]]]) -> CqlType:
    """Return the type with the fields of every user-defined type in it, at any depth.

    Args:
        cql_type: the type; fields that it already has are replaced.
        definitions: name -> fields of the keyspace's types in order. The types of fields may be resolved or not.

    Raises:
        TypeTextError: a user-defined type has no definition, or contains itself; names the type.
    """
    return _resolve_within(cql_type, definitions, ())


def _resolve_within(
    cql_type: CqlType, definitions: Mapping[str, Sequence[tuple[str, CqlType]]], around: tuple[str, ...]
) -> CqlType:
    def inner(one: CqlType) -> CqlType:
        return _resolve_within(one, definitions, around)

    match cql_type:
        case NativeType():
            return cql_type
        case FrozenType():
            return FrozenType(inner(cql_type.inner))
        case ListType():
            return ListType(inner(cql_type.element))
        case SetType():
            return SetType(inner(cql_type.element))
        case MapType():
            return MapType(inner(cql_type.key), inner(cql_type.value))
        case VectorType():
            return VectorType(inner(cql_type.element), cql_type.dimension)
        case TupleType():
            return TupleType(tuple(map(inner, cql_type.elements)))
        case UdtType():
            name = cql_type.name
            if name in around or len(around) > _MAX_DEPTH:
                raise TypeTextError(f"user-defined type {name!r} contains itself, or is nested too deep")
            if not definitions.get(name):
                raise TypeTextError(f"user-defined type {name!r} is not known in its keyspace, or has no fields")
            within = (*around, name)
            fields = tuple((field, _resolve_within(one, definitions, within)) for field, one in definitions[name])
            return UdtType(name, fields)


def unfrozen(cql_type: CqlType) -> CqlType:
    """Return the type without ``frozen<...>`` around it; ``frozen`` inside of it stays."""
    while isinstance(cql_type, FrozenType):
        cql_type = cql_type.inner
    return cql_type


def is_multi_cell(cql_type: CqlType) -> bool:
    """Return whether a static or regular column of this type has a cell for each element, so that changes are partial.

    This holds for non-frozen collections and user-defined types, never for tuples and vectors (spec section 1.2).
    """
    return isinstance(cql_type, ListType | SetType | MapType | UdtType)


def user_types(cql_type: CqlType) -> Iterator[UdtType]:
    """Yield the user-defined types in a type, at any depth, inner ones first."""
    match cql_type:
        case NativeType():
            inner: tuple[CqlType, ...] = ()
        case FrozenType():
            inner = (cql_type.inner,)
        case ListType() | SetType() | VectorType():
            inner = (cql_type.element,)
        case MapType():
            inner = (cql_type.key, cql_type.value)
        case TupleType():
            inner = cql_type.elements
        case UdtType():
            inner = tuple(one for _, one in cql_type.fields)
    for one in inner:
        yield from user_types(one)
    if isinstance(cql_type, UdtType):
        yield cql_type


class _Parser:
    """Recursive descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize(text)
        self._next = 0

    def _tokenize(self, text: str) -> list[str]:
        tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"unexpected {text[at:].lstrip()[:1]!r}")
            tokens.append(match.group("word") or match.group("quoted") or match.group("sign"))
            at = match.end()
        return tokens

    def _error(self, reason: str) -> TypeTextError:
        return TypeTextError(f"not a CQL type: {self._text!r}: {reason}")

    def _take(self) -> str:
        if self._next == len(self._tokens):
            raise self._error("text ends too early")
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _expect(self, sign: str) -> None:
        token = self._take()
        if token != sign:
            raise self._error(f"{sign!r} expected, {token!r} found")

    def end(self) -> None:
        if self._next != len(self._tokens):
            raise self._error(f"{self._tokens[self._next]!r} after the end of the type")

    def type_(self, depth: int) -> CqlType:
        if depth > _MAX_DEPTH:
            raise self._error(f"nested deeper than {_MAX_DEPTH}")
        token = self._take()
        if token.startswith('"'):
            name = token[1:-1].replace('""', '"')
            if not name:
                raise self._error("empty quoted name")
            return UdtType(name)
        if not (token[0].isalpha() or token[0] == "_"):
            raise self._error(f"a type expected, {token!r} found")
        name = token.lower()
        if name in _CONSTRUCTORS:
            self._expect("<")
            made = self._constructed(name, depth + 1)
            self._expect(">")
            return made
        return NativeType(name) if name in NATIVE_TYPES else UdtType(name)

    def _constructed(self, name: str, depth: int) -> CqlType:
        first = self.type_(depth)
        match name:
            case "frozen":
                return FrozenType(first)
            case "list":
                return ListType(first)
            case "set":
                return SetType(first)
            case "map":
                self._expect(",")
                return MapType(first, self.type_(depth))
            case "vector":
                self._expect(",")
                return VectorType(first, self._dimension())
            case _:
                return TupleType((first, *self._more_elements(depth)))

    def _more_elements(self, depth: int) -> list[CqlType]:
        elements = []
        while self._next < len(self._tokens) and self._tokens[self._next] == ",":
            self._next += 1
            elements.append(self.type_(depth))
        return elements

    def _dimension(self) -> int:
        token = self._take()
        if not (
            token.isascii()
            and token.isdigit()
            and len(token) <= len(str(_MAX_DIMENSION))
            and 0 < int(token) <= _MAX_DIMENSION
        ):
            raise self._error(f"a vector's dimension must be in 1..{_MAX_DIMENSION}, not {token!r}")
        return int(token)
