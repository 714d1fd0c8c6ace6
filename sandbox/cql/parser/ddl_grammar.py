"""The grammar of the schema statements that concern CDC."""

from __future__ import annotations

from typing import Final

from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.lexer import Kind
from sandbox.cql.parser.statements import (
    AlterTable,
    AlterType,
    ColumnDefinition,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    DropIndex,
    DropTable,
    SchemaStatement,
    TableOptions,
)
from sandbox.cql.parser.term_grammar import term
from sandbox.cql.parser.terms import Term
from schemas.cql.types import CqlType

_NONE: Final = TableOptions()


def schema_statement(cursor: Cursor) -> SchemaStatement:
    """Parse a schema statement.

    Raises:
        CqlError: the text is not such a statement.
        TypeTextError: the statement has an invalid type.
    """
    if cursor.accept("create", "table"):
        return _create_table(cursor)
    if cursor.accept("create", "type"):
        if_not_exists = cursor.accept("if", "not", "exists")
        name = cursor.name()
        cursor.expect("(")
        return CreateType(name, cursor.listed(lambda: _typed(cursor), ")"), if_not_exists)
    if cursor.accept("create", "materialized", "view"):
        return _create_view(cursor)
    if cursor.at("create", "index") or cursor.at("create", "custom", "index"):
        return _create_index(cursor)
    if cursor.accept("alter", "table"):
        return _alter_table(cursor)
    if cursor.accept("alter", "type"):
        return _alter_type(cursor)
    if cursor.accept("drop", "table"):
        if_exists = cursor.accept("if", "exists")
        return DropTable(cursor.name(), if_exists)
    if cursor.accept("drop", "index"):
        cursor.accept("if", "exists")
        return DropIndex(cursor.name())
    raise cursor.error("a statement that writes or that makes, alters or drops a table or type")


def _typed(cursor: Cursor) -> tuple[str, CqlType]:
    return cursor.identifier(), cursor.type()


def _column(cursor: Cursor) -> ColumnDefinition:
    name, cql_type = _typed(cursor)
    is_static = cursor.accept("static")
    return ColumnDefinition(name, cql_type, is_static, is_ttl=cursor.accept("ttl"))


def _create_table(cursor: Cursor) -> CreateTable:
    if_not_exists = cursor.accept("if", "not", "exists")
    table = cursor.name()
    columns: list[ColumnDefinition] = []
    partition_key: tuple[str, ...] = ()
    clustering: tuple[str, ...] = ()

    def entry() -> None:
        nonlocal partition_key, clustering
        if cursor.accept("primary", "key", "("):
            partition_key = cursor.listed(cursor.identifier, ")") if cursor.accept("(") else (cursor.identifier(),)
            clustering = () if cursor.accept(")") else _after_comma(cursor)
            return
        columns.append(_column(cursor))
        if cursor.accept("primary", "key"):
            partition_key = (columns[-1].name,)

    cursor.expect("(")
    cursor.listed(entry, ")")
    if not partition_key:
        raise cursor.error("a PRIMARY KEY")
    return CreateTable(table, tuple(columns), partition_key, clustering, _with(cursor), if_not_exists)


def _after_comma(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect(",")
    return cursor.listed(cursor.identifier, ")")


def _with(cursor: Cursor) -> TableOptions:
    if not cursor.accept("with"):
        return _NONE
    values: dict[str, Term | dict[str, str]] = {}
    descending: set[str] = set()
    is_compact = False
    while True:
        if cursor.accept("compact", "storage"):
            is_compact = True
        elif cursor.accept("clustering", "order", "by", "("):
            for name, is_descending in cursor.listed(lambda: _direction(cursor), ")"):
                if is_descending:
                    descending.add(name)
        else:
            name = cursor.identifier()
            cursor.expect("=")
            values[name] = _option(cursor)
        if not cursor.accept("and"):
            return TableOptions(values, frozenset(descending), is_compact)


def _direction(cursor: Cursor) -> tuple[str, bool]:
    name = cursor.identifier()
    if cursor.accept("desc"):
        return name, True
    cursor.accept("asc")
    return name, False


def _option(cursor: Cursor) -> Term | dict[str, str]:
    if cursor.accept("{"):
        return dict(cursor.listed(lambda: _entry(cursor), "}"))
    return term(cursor)


def _entry(cursor: Cursor) -> tuple[str, str]:
    key = cursor.take().text
    cursor.expect(":")
    token = cursor.take()
    if token.kind not in (Kind.STRING, Kind.NUMBER, Kind.WORD):
        raise cursor.error(f"a constant for option {key!r} before this")
    return key, token.text


def _create_view(cursor: Cursor) -> CreateView:
    view = cursor.name()
    while not cursor.accept("from"):
        cursor.take()
        if cursor.peek().kind is Kind.END:
            raise cursor.error("FROM")
    base = cursor.name()
    while cursor.peek().kind is not Kind.END and not cursor.at("with"):
        cursor.take()
    return CreateView(view, base, _with(cursor))


def _create_index(cursor: Cursor) -> CreateIndex:
    cursor.expect("create")
    cursor.accept("custom")
    cursor.expect("index")
    cursor.accept("if", "not", "exists")
    index = None if cursor.at("on") else cursor.identifier()
    cursor.expect("on")
    table = cursor.name()
    cursor.expect("(")
    column = cursor.identifier()
    cursor.expect(")")
    using = cursor.take().text.lower() if cursor.accept("using") else None
    return CreateIndex(table, index, column, using)


def _alter_table(cursor: Cursor) -> AlterTable:
    table = cursor.name()
    if cursor.accept("add"):
        added = cursor.listed(lambda: _column(cursor), ")") if cursor.accept("(") else (_column(cursor),)
        return AlterTable(table, add=added)
    if cursor.accept("drop"):
        dropped = cursor.listed(cursor.identifier, ")") if cursor.accept("(") else (cursor.identifier(),)
        return AlterTable(table, drop=dropped)
    if cursor.accept("rename"):
        return AlterTable(table, rename=_renames(cursor))
    if cursor.accept("alter"):
        name = cursor.identifier()
        cursor.expect("type")
        return AlterTable(table, alter=((name, cursor.type()),))
    if cursor.at("with"):
        return AlterTable(table, options=_with(cursor))
    raise cursor.error("ADD, DROP, RENAME, ALTER or WITH")


def _renames(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    renames = []
    while True:
        name = cursor.identifier()
        cursor.expect("to")
        renames.append((name, cursor.identifier()))
        if not cursor.accept("and"):
            return tuple(renames)


def _alter_type(cursor: Cursor) -> AlterType:
    name = cursor.name()
    if cursor.accept("add"):
        return AlterType(name, add=(_typed(cursor),))
    if cursor.accept("rename"):
        return AlterType(name, rename=_renames(cursor))
    if cursor.accept("alter"):
        field = cursor.identifier()
        cursor.expect("type")
        return AlterType(name, alter=((field, cursor.type()),))
    raise cursor.error("ADD, RENAME or ALTER")
