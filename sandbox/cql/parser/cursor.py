"""Walks over a statement's tokens: what both halves of the grammar need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind, Token, tokens_of
from sandbox.cql.parser.statements import Name
from schemas.cql.types import CqlType, parse

T = TypeVar("T")


class Cursor:
    """The tokens of one text, and how far they have been read."""

    def __init__(self, text: str, first_marker: int = 0) -> None:
        """Cut the text; the first `?` in it is number `first_marker`.

        Raises:
            CqlError: something is no token of CQL.
        """
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0
        self._markers = first_marker

    def error(self, wanted: str) -> CqlError:
        """What to raise where something else was expected."""
        token = self._tokens[self._next]
        found = "the end" if token.kind is Kind.END else repr(self._text[token.at : token.at + 40])
        message = f"{wanted} expected at character {token.at}, found {found}, in {self._text[:300]!r}"
        return CqlError(message, at=token.at)

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes next, or one further on; behind the end comes the end."""
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Read the next token."""
        token = self.peek()
        self._next += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether these words or signs come next, in this order."""
        return all(_is(self.peek(ahead), word) for ahead, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these words or signs if they come next, all of them or none."""
        if not self.at(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Read words or signs that must come next.

        Raises:
            CqlError: they don't.
        """
        if not self.accept(*words):
            raise self.error(" ".join(words).upper())

    def end(self) -> None:
        """Check that nothing but semicolons is left.

        Raises:
            CqlError: there is more.
        """
        while self.accept(";"):
            pass
        if self.peek().kind is not Kind.END:
            raise self.error("the end of the statement")

    def marker(self) -> int:
        """The number of a marker that was just read."""
        self._markers += 1
        return self._markers - 1

    def identifier(self) -> str:
        """Read a name: in lower case unless it is quoted.

        Raises:
            CqlError: none comes next.
        """
        token = self.peek()
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            raise self.error("a name")
        self._next += 1
        return token.text if token.kind is Kind.QUOTED else token.text.lower()

    def name(self) -> Name:
        """Read the name of a table or type, with or without a keyspace.

        Raises:
            CqlError: none comes next.
        """
        first = self.identifier()
        return Name(first, self.identifier()) if self.accept(".") else Name(None, first)

    def listed(self, read: Callable[[], T], end: str) -> tuple[T, ...]:
        """Read things with commas between them up to a sign, which is read too.

        Raises:
            CqlError: neither comma nor sign follows one.
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
        """Read a type; the keyspace of a user-defined one is dropped, for it can be no other than the table's.

        Raises:
            CqlError: none comes next.
            TypeTextError: it is no type.
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
    # The server keeps no other name of this type.
    return "text" if token.word == "varchar" else token.text


def _is(token: Token, word: str) -> bool:
    if token.kind is Kind.SIGN:
        return token.text == word
    return token.word == word
