"""Splits CQL text into tokens."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from sandbox.cql.parser.errors import CqlError


class Kind(Enum):
    """Kinds of tokens. The values are the names of the groups in the pattern."""

    UUID = "uuid"
    BLOB = "blob"
    DURATION = "duration"
    NUMBER = "number"
    WORD = "word"
    QUOTED = "quoted"
    STRING = "string"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: the token's kind.
        text: the text as written; `STRING` and `QUOTED` without their quotes, and with doubled quotes made single.
        at: position of its beginning in the statement, in characters.
    """

    kind: Kind
    text: str
    at: int

    @property
    def word(self) -> str:
        """The lower-case form of a word, for comparison with keywords; empty for other tokens."""
        return self.text.lower() if self.kind is Kind.WORD else ""


_END_OF_WORD: Final = r"(?![A-Za-z0-9_])"
_PATTERN: Final = re.compile(
    r"(?P<blank>\s+|--[^\n]*|//[^\n]*|/\*.*?\*/)"
    r"|(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" + _END_OF_WORD + ")"
    r"|(?P<blob>0[xX][0-9a-fA-F]*" + _END_OF_WORD + ")"
    r"|(?P<duration>-?(?:"
    r"(?:[0-9]+(?:y|mo|w|d|h|ms|us|µs|ns|m|s))+"
    r"|P(?=[0-9]|T[0-9])(?:[0-9]+[YMWD])*(?:T(?:[0-9]+[HMS])+)?"
    r")" + _END_OF_WORD + ")"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?" + _END_OF_WORD + ")"
    r"|(?P<word>[A-Za-z][A-Za-z0-9_]*)"
    r'|(?P<quoted>"(?:[^"]|"")+")'
    r"|(?P<string>'(?:[^']|'')*'|\$\$.*?\$\$)"
    r"|(?P<sign><=|>=|!=|[-+=<>()\[\]{},;:.?*])",
    re.DOTALL,
)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text without white space and comments, and a last token of kind `END`.

    Raises:
        CqlError: a part of the text is not a CQL token.
    """
    found, at = [], 0
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None or match.lastgroup is None:
            raise CqlError(f"not CQL from character {at} on: {text[at : at + 40]!r} in {text[:200]!r}", at=at)
        if match.lastgroup != "blank":
            kind = Kind(match.lastgroup)
            found.append(Token(kind, _unquoted(kind, match.group()), at))
        at = match.end()
    found.append(Token(Kind.END, "", len(text)))
    return found


def _unquoted(kind: Kind, text: str) -> str:
    if kind is Kind.QUOTED:
        return text[1:-1].replace('""', '"')
    if kind is not Kind.STRING:
        return text
    return text[2:-2] if text.startswith("$$") else text[1:-1].replace("''", "'")
