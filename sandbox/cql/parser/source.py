"""Splits a text of CQL statements into statements with their positions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind, tokens_of


@dataclass(frozen=True, slots=True)
class SourceStatement:
    """One statement.

    Attributes:
        text: the statement without its semicolon.
        words: up to four first tokens in lower case, which tell the kind of statement.
        line, column: position of its beginning, counted from 1.
    """

    text: str
    words: tuple[str, ...]
    line: int
    column: int

    def place(self, at: int | None = None) -> str:
        """Return `line:column` of the statement's beginning, or of a character in it."""
        before = self.text[: at or 0]
        line = self.line + before.count("\n")
        column = len(before) - before.rfind("\n") if "\n" in before else self.column + len(before)
        return f"{line}:{column}"


def statements_of(text: str, name: str) -> list[SourceStatement]:
    """Split a text into statements. A batch is one statement.

    Args:
        text: statements with semicolons between them.
        name: name of the text, for messages.

    Raises:
        CqlError: a part of the text is not a CQL token.
    """
    try:
        tokens = tokens_of(text)
    except CqlError as error:
        raise CqlError(f"{name}:{SourceStatement(text, (), 1, 1).place(error.at)}: {error}", at=error.at) from error
    found: list[SourceStatement] = []
    first: int | None = None
    in_batch = False
    for number, token in enumerate(tokens):
        words = tuple(one.word or one.text for one in tokens[first or 0 : (first or 0) + 4])
        ends = token.kind is Kind.END or (token.kind is Kind.SIGN and token.text == ";")
        if first is not None and ends and (token.kind is Kind.END or not in_batch):
            begins = tokens[first].at
            before = text[:begins]
            line, column = before.count("\n") + 1, begins - before.rfind("\n")
            found.append(SourceStatement(text[begins : token.at].rstrip(), words, line, column))
            first, in_batch = None, False
        elif first is None and not ends:
            first, in_batch = number, token.word == "begin"
        elif in_batch and token.word == "batch" and tokens[number - 1].word == "apply":
            in_batch = False
    return found
