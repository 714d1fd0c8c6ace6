"""Reads a statement's tokens one by one, for both grammars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind, Token, tokens_of
from sandbox.cql.parser.statements import Name
from schemas.cql.types import CqlType, parse

T = TypeVar("T")


class Cursor:
    """The tokens of one text and the position of the reader."""

    def __init__(self, text: str, first_marker: int = 0) -> None:
        """Split the text into tokens. Its first `?` has the number `first_marker`.

        Raises:
            CqlError: a part of the text is not a CQL token.
        """
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0
        self._markers = first_marker

    def error(self, wanted: str) -> CqlError:
        """Return the error for an unexpected token."""
        token = self._tokens[self._next]
        found = "the end" if token.kind is Kind.END else repr(self._text[token.at : token.at + 40])
        message = f"{wanted} expected at character {token.at}, found {found}, in {self._text[:300]!r}"
        return CqlError(message, at=token.at)

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or a later one; at the end, the end token."""
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Read the next token."""
        token = self.peek()
        self._next += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether these words or signs come next, in order."""
        return all(_is(self.peek(ahead), word) for ahead, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these words or signs if all of them come next, in order."""
        if not self.at(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Read words or signs that must come next.

        Raises:
            CqlError: other tokens come next.
        """
        if not self.accept(*words):
            raise self.error(" ".join(words).upper())

    def end(self) -> None:
        """Check that only semicolons are left.

        Raises:
            CqlError: another token is left.
        """
        while self.accept(";"):
            pass
        if self.peek().kind is not Kind.END:
            raise self.error("the end of the statement")

    def marker(self) -> int:
        """Return the number of the marker that was read last."""
        self._markers += 1
        return self._markers - 1

    def identifier(self) -> str:
        """Read a name: in lower case unless it is quoted.

        Raises:
            CqlError: another token comes next.
        """
        token = self.peek()
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            raise self.error("a name")
        self._next += 1
        return token.text if token.kind is Kind.QUOTED else token.text.lower()

    def name(self) -> Name:
        """Read the name of a table or type, with or without a keyspace.

        Raises:
            CqlError: another token comes next.
        """
        first = self.identifier()
        return Name(first, self.identifier()) if self.accept(".") else Name(None, first)

    def listed(self, read: Callable[[], T], end: str) -> tuple[T, ...]:
        """Read a comma-separated list up to and including a closing sign.

        Raises:
            CqlError: an element is followed by neither comma nor closing sign.
        """
        found: list[T] = []
        if self.accept(end):
            return ()
        while True:
            found.append(read())
            if self.accept(end):
                return tuple(found)
            self.expect(",")

    def type(self) -> CqlType:
        """Read a type without its keyspace: a user-defined type always belongs to the table's keyspace.

        Raises:
            CqlError: another token comes next.
            TypeTextError: the text is not a type.
        """
        depth, parts = 0, []
        while True:
            token = self.peek()
            if token.kind is Kind.WORD and _is(self.peek(1), "."):
                self._next += 2
                token = self.peek()
            self._next += 1
            parts.append('"' + token.text.replace('"', '""') + '"' if token.kind is Kind.QUOTED else _type_word(token))
            if token.kind is Kind.END:
                raise self.error("a type")
            depth += {"<": 1, ">": -1}.get(token.text, 0) if token.kind is Kind.SIGN else 0
            if not depth and not _is(self.peek(), "<"):
                return parse("".join(parts))


def _type_word(token: Token) -> str:
    # The server has only this name for the type.
    return "text" if token.word == "varchar" else token.text


def _is(token: Token, word: str) -> bool:
    if token.kind is Kind.SIGN:
        return token.text == word
    return token.word == word
