"""The grammar of values: constants, collections, tuples, markers and function calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from math import inf, nan
from typing import Final
from uuid import UUID

from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind
from sandbox.cql.parser.terms import Call, ListTerm, MapTerm, Marker, SetTerm, Term, TupleTerm, UdtTerm
from sandbox.scylla.values.native import Duration

_WORDS: Final[Mapping[str, Term]] = {"null": None, "true": True, "false": False, "nan": nan, "infinity": inf}

_UNITS: Final[Mapping[str, Duration]] = {
    "y": Duration(12, 0, 0),
    "mo": Duration(1, 0, 0),
    "w": Duration(0, 7, 0),
    "d": Duration(0, 1, 0),
    "h": Duration(0, 0, 3_600_000_000_000),
    "m": Duration(0, 0, 60_000_000_000),
    "s": Duration(0, 0, 1_000_000_000),
    "ms": Duration(0, 0, 1_000_000),
    "us": Duration(0, 0, 1000),
    "µs": Duration(0, 0, 1000),
    "ns": Duration(0, 0, 1),
}
_ISO_DATE_UNITS: Final = {"Y": "y", "M": "mo", "W": "w", "D": "d"}
_PART: Final = re.compile(r"([0-9]+)([A-Za-zµ]+)")


def term(cursor: Cursor) -> Term:
    """Read one value.

    Raises:
        CqlError: the next token starts no value.
    """
    token = cursor.take()
    match token.kind:
        case Kind.STRING:
            return token.text
        case Kind.NUMBER:
            return int(token.text) if token.text.lstrip("-").isdigit() else Decimal(token.text)
        case Kind.BLOB:
            return _blob(token.text)
        case Kind.UUID:
            return UUID(token.text)
        case Kind.DURATION:
            return duration(token.text)
        case Kind.WORD:
            return _word(cursor, token.word)
    match token.text if token.kind is Kind.SIGN else "":
        case "?":
            return Marker(cursor.marker())
        case "[":
            return ListTerm(cursor.listed(lambda: term(cursor), "]"))
        case "(":
            return TupleTerm(cursor.listed(lambda: term(cursor), ")"))
        case "{":
            return _braces(cursor)
        case "-" if cursor.peek().word in ("nan", "infinity"):
            return nan if cursor.take().word == "nan" else -inf
    raise CqlError(f"a value expected at character {token.at}, found {token.text or 'the end'!r}")


def duration(text: str) -> Duration:
    """Parse a duration: `1y2mo3d`, or in the form of ISO 8601 `P1Y2MT3H`.

    Raises:
        CqlError: the text is not a duration.
    """
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    date, _, time = body.partition("T")
    parts = [0, 0, 0]
    for piece, is_date in ((date.removeprefix("P"), body.startswith("P")), (time, False)):
        for count, unit in _PART.findall(piece):
            name = _ISO_DATE_UNITS.get(unit, unit) if is_date else unit.lower()
            if name not in _UNITS:
                raise CqlError(f"not a duration: {text!r}")
            parts = [have + int(count) * one for have, one in zip(parts, _UNITS[name], strict=True)]
    return Duration(*(sign * part for part in parts))


def _blob(text: str) -> bytes:
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise CqlError(f"not a blob: {text!r} has an odd number of digits") from error


def _word(cursor: Cursor, word: str) -> Term:
    if cursor.accept("("):
        return Call(word, cursor.listed(lambda: term(cursor), ")"))
    if word in _WORDS:
        return _WORDS[word]
    raise CqlError(f"a value expected, found the word {word!r}")


def _braces(cursor: Cursor) -> Term:
    if cursor.accept("}"):
        return SetTerm(())
    first = cursor.peek()
    if cursor.peek(1).text == ":" and (first.kind is Kind.QUOTED or (first.word and first.word not in _WORDS)):
        return UdtTerm(cursor.listed(lambda: _field(cursor), "}"))
    key = term(cursor)
    if cursor.accept(":"):
        entries = [(key, term(cursor))]
        while cursor.accept(","):
            key = term(cursor)
            cursor.expect(":")
            entries.append((key, term(cursor)))
        cursor.expect("}")
        return MapTerm(tuple(entries))
    elements = [key]
    while cursor.accept(","):
        elements.append(term(cursor))
    cursor.expect("}")
    return SetTerm(tuple(elements))


def _field(cursor: Cursor) -> tuple[str, Term]:
    name = cursor.identifier()
    cursor.expect(":")
    return name, term(cursor)
