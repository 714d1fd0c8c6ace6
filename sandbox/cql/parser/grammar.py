"""The grammar of write statements. `ddl_grammar` has the grammar of schema statements."""

from __future__ import annotations

from typing import Final

from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.ddl_grammar import schema_statement
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind
from sandbox.cql.parser.statements import (
    Assignment,
    BatchStatement,
    Conditions,
    DeleteStatement,
    Element,
    Field,
    InsertStatement,
    ListCell,
    Relation,
    Selector,
    Statement,
    Truncate,
    UpdateStatement,
    Using,
    WriteStatement,
)
from sandbox.cql.parser.term_grammar import term
from sandbox.cql.parser.terms import UNSET, Term, TupleTerm

_NOT_USED: Final = Using(UNSET, UNSET)
_OPERATORS: Final = ("=", "<=", ">=", "<", ">", "!=")
_LIST_CELL: Final = "scylla_timeuuid_list_index"


def statement_of(text: str, *, first_marker: int = 0) -> Statement:
    """Parse one write or schema statement. Its markers are numbered from `first_marker`.

    Raises:
        CqlError: the text is not such a statement.
        TypeTextError: the statement has an invalid type.
    """
    cursor = Cursor(text, first_marker)
    found = _statement(cursor)
    cursor.end()
    return found


def _statement(cursor: Cursor) -> Statement:
    if cursor.accept("begin"):
        return _batch(cursor)
    if cursor.accept("truncate"):
        cursor.accept("table")
        return Truncate(cursor.name())
    write = _write(cursor)
    return schema_statement(cursor) if write is None else write


def _write(cursor: Cursor) -> WriteStatement | None:
    if cursor.accept("insert", "into"):
        return _insert(cursor)
    if cursor.accept("update"):
        return _update(cursor)
    if cursor.accept("delete"):
        return _delete(cursor)
    return None


def _batch(cursor: Cursor) -> BatchStatement:
    if not cursor.accept("unlogged"):
        cursor.accept("logged")
    cursor.expect("batch")
    using = _using(cursor)
    statements = []
    while not cursor.accept("apply", "batch"):
        write = _write(cursor)
        if write is None:
            raise cursor.error("INSERT, UPDATE, DELETE or APPLY BATCH")
        statements.append(write)
        cursor.accept(";")
    return BatchStatement(tuple(statements), using)


def _insert(cursor: Cursor) -> InsertStatement:
    table = cursor.name()
    columns: tuple[str, ...] = ()
    values: tuple[Term, ...] = ()
    json: Term = None
    keeps_others = False
    if cursor.accept("json"):
        json = term(cursor)
        if cursor.accept("default"):
            keeps_others = cursor.accept("unset")
            if not keeps_others:
                cursor.expect("null")
    else:
        cursor.expect("(")
        columns = cursor.listed(cursor.identifier, ")")
        cursor.expect("values", "(")
        values = cursor.listed(lambda: term(cursor), ")")
        if len(columns) != len(values):
            raise cursor.error(f"as many values as columns ({len(columns)}, not {len(values)})")
        twice = [name for place, name in enumerate(columns) if name in columns[:place]]
        if twice:
            raise CqlError(f"Multiple definitions found for column {twice[0]}")
    # ScyllaDB accepts both orders.
    conditions = _not_exists(cursor)
    using = _using(cursor)
    conditions = conditions or _not_exists(cursor)
    return InsertStatement(table, columns, values, using, conditions, json, keeps_others)


def _not_exists(cursor: Cursor) -> Conditions | None:
    return Conditions(exists=False) if cursor.accept("if", "not", "exists") else None


def _update(cursor: Cursor) -> UpdateStatement:
    table = cursor.name()
    using = _using(cursor)
    cursor.expect("set")
    assignments: list[Assignment] = []
    while not assignments or cursor.accept(","):
        at = cursor.peek().at
        assignment = _assignment(cursor)
        if not all(_are_compatible(earlier, assignment) for earlier in assignments):
            raise CqlError(f"Multiple incompatible setting of column {assignment.column}", at=at)
        assignments.append(assignment)
    where = _where(cursor)
    return UpdateStatement(table, tuple(assignments), where, using, _conditions(cursor))


def _delete(cursor: Cursor) -> DeleteStatement:
    targets: list[tuple[str, Selector]] = []
    while not cursor.accept("from"):
        if targets:
            cursor.expect(",")
        targets.append((cursor.identifier(), _selector(cursor)))
    table = cursor.name()
    using = _using(cursor)
    where = _where(cursor)
    return DeleteStatement(table, tuple(targets), where, using, _conditions(cursor))


def _using(cursor: Cursor) -> Using:
    if not cursor.accept("using"):
        return _NOT_USED
    timestamp: Term = UNSET
    ttl: Term = UNSET
    while True:
        if cursor.accept("timestamp"):
            timestamp = term(cursor)
        else:
            cursor.expect("ttl")
            ttl = term(cursor)
        if not cursor.accept("and"):
            return Using(timestamp, ttl)


def _selector(cursor: Cursor) -> Selector:
    if cursor.accept("."):
        return Field(cursor.identifier())
    if not cursor.accept("["):
        return None
    if cursor.accept(_LIST_CELL, "("):
        key = term(cursor)
        cursor.expect(")", "]")
        return ListCell(key)
    key = term(cursor)
    cursor.expect("]")
    return Element(key)


def _assignment(cursor: Cursor) -> Assignment:
    column = cursor.identifier()
    selector = _selector(cursor)
    if selector is None and cursor.accept("+", "="):
        return Assignment(column, None, "add", term(cursor))
    if selector is None and cursor.accept("-", "="):
        return Assignment(column, None, "subtract", term(cursor))
    cursor.expect("=")
    if selector is None and cursor.peek().kind in (Kind.WORD, Kind.QUOTED) and cursor.peek(1).text in ("+", "-"):
        source = cursor.identifier()
        kind = cursor.take().text
        if source != column:
            raise cursor.error(f"an addition to {column!r} itself, not to {source!r},")
        return Assignment(column, None, "add" if kind == "+" else "subtract", term(cursor))
    value = term(cursor)
    if selector is None and cursor.accept("+"):
        if cursor.identifier() != column:
            raise cursor.error(f"an addition to {column!r} itself")
        return Assignment(column, None, "prepend", value)
    return Assignment(column, selector, "set", value)


def _are_compatible(one: Assignment, other: Assignment) -> bool:
    """Whether one statement may have both: not if one sets the whole column, or both set one field."""
    if one.column != other.column:
        return True
    if any(each.selector is None and each.kind == "set" for each in (one, other)):
        return False
    return not (isinstance(one.selector, Field) and one.selector == other.selector)


def _where(cursor: Cursor) -> tuple[Relation, ...]:
    cursor.expect("where")
    return _relations(cursor)


def _conditions(cursor: Cursor) -> Conditions | None:
    if not cursor.accept("if"):
        return None
    if cursor.accept("exists"):
        return Conditions(exists=True)
    return Conditions(relations=_relations(cursor))


def _relations(cursor: Cursor) -> tuple[Relation, ...]:
    relations = [_relation(cursor)]
    while cursor.accept("and"):
        relations.append(_relation(cursor))
    return tuple(relations)


def _relation(cursor: Cursor) -> Relation:
    if cursor.accept("("):
        columns = cursor.listed(cursor.identifier, ")")
        selector: Selector = None
    else:
        columns = (cursor.identifier(),)
        selector = _selector(cursor)
    if cursor.accept("in"):
        value = TupleTerm(cursor.listed(lambda: term(cursor), ")")) if cursor.accept("(") else term(cursor)
        return Relation(columns, "in", value, selector)
    for operator in _OPERATORS:
        if cursor.accept(operator):
            return Relation(columns, operator, term(cursor), selector)
    raise cursor.error("a comparison")
