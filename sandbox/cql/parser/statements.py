"""CQL statements as values. Names are as the server stores them: in lower case unless quoted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandbox.cql.parser.terms import Term
from schemas.cql.types import CqlType


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a table or type; `keyspace` is None if the statement has none."""

    keyspace: str | None
    name: str

    def __str__(self) -> str:
        """The name for messages."""
        return f"{self.keyspace}.{self.name}" if self.keyspace else self.name


@dataclass(frozen=True, slots=True)
class Using:
    """`USING TIMESTAMP` in Unix us and `USING TTL` in s; UNSET if the statement has none."""

    timestamp: Term
    ttl: Term


@dataclass(frozen=True, slots=True)
class Element:
    """`c[key]`: an element of a map or set, or of a list by its position."""

    key: Term


@dataclass(frozen=True, slots=True)
class ListCell:
    """`l[SCYLLA_TIMEUUID_LIST_INDEX(key)]`: an element of a list by its cell's timeuuid."""

    key: Term


@dataclass(frozen=True, slots=True)
class Field:
    """`u.name`: a field of a user-defined type."""

    name: str


Selector = Element | ListCell | Field | None
"""A part of a column; None is the whole column."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment of an UPDATE, or a column of a DELETE.

    Attributes:
        column: the column's name.
        selector: the part of the column that is written.
        kind: `set` is `c = v`, `add` is `c = c + v`, `prepend` is `c = v + c`, `subtract` is `c = c - v`; `delete` is
            a whole column of a DELETE.
        value: the value that is set, added or subtracted; None for null, and in a DELETE.
    """

    column: str
    selector: Selector
    kind: Literal["set", "add", "prepend", "subtract", "delete"]
    value: Term


@dataclass(frozen=True, slots=True)
class Relation:
    """One restriction of a WHERE, or one condition of an IF.

    Attributes:
        columns: one column, or several of a multi-column restriction `(a, b) > (1, 2)`.
        operator: `=`, `<`, `<=`, `>`, `>=`, `!=` or `in`.
        value: the value. With several columns or with `in`, a term with elements; for `in` a TupleTerm.
        selector: the part of the column in a condition.
    """

    columns: tuple[str, ...]
    operator: str
    value: Term
    selector: Selector = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """`IF`: nothing is written unless all conditions hold. `exists` is None without `IF [NOT] EXISTS`."""

    exists: bool | None = None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """`INSERT`. For `INSERT JSON`, `json` is a string or a marker, and columns and values are empty."""

    table: Name
    columns: tuple[str, ...]
    values: tuple[Term, ...]
    using: Using
    conditions: Conditions | None = None
    json: Term = None
    keeps_others: bool = False


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """`UPDATE`."""

    table: Name
    assignments: tuple[Assignment, ...]
    where: tuple[Relation, ...]
    using: Using
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """`DELETE`. Without targets it deletes rows."""

    table: Name
    targets: tuple[tuple[str, Selector], ...]
    where: tuple[Relation, ...]
    using: Using
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True)
class BatchStatement:
    """`BEGIN BATCH ... APPLY BATCH`, or a batch of the native protocol."""

    statements: tuple[InsertStatement | UpdateStatement | DeleteStatement, ...]
    using: Using


@dataclass(frozen=True, slots=True)
class Truncate:
    """`TRUNCATE`."""

    table: Name


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ADD. `is_ttl` marks a column with the row's TTL (`e bigint ttl`)."""

    name: str
    type: CqlType
    is_static: bool = False
    is_ttl: bool = False


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options after WITH.

    Attributes:
        values: options by their lower-case names; a map literal is a dict of strings.
        descending: clustering columns ordered DESC.
        is_compact: whether the table has COMPACT STORAGE.
    """

    values: Mapping[str, Term | dict[str, str]] = field(default_factory=dict)
    descending: frozenset[str] = frozenset()
    is_compact: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE`."""

    table: Name
    columns: tuple[ColumnDefinition, ...]
    partition_key: tuple[str, ...]
    clustering: tuple[str, ...]
    options: TableOptions
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateType:
    """`CREATE TYPE`."""

    type: Name
    fields: tuple[tuple[str, CqlType], ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`ALTER TABLE`. Exactly one of the attributes after `table` is set."""

    table: Name
    add: tuple[ColumnDefinition, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    alter: tuple[tuple[str, CqlType], ...] = ()
    options: TableOptions | None = None


@dataclass(frozen=True, slots=True)
class AlterType:
    """`ALTER TYPE`."""

    type: Name
    add: tuple[tuple[str, CqlType], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    alter: tuple[tuple[str, CqlType], ...] = ()


@dataclass(frozen=True, slots=True)
class DropTable:
    """`DROP TABLE`."""

    table: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """`CREATE MATERIALIZED VIEW`, with the parts that concern CDC."""

    view: Name
    base: Name
    options: TableOptions


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """`CREATE INDEX`. `using` is the class of a custom index, in lower case."""

    table: Name
    index: str | None
    column: str
    using: str | None


@dataclass(frozen=True, slots=True)
class DropIndex:
    """`DROP INDEX`."""

    index: Name


WriteStatement = InsertStatement | UpdateStatement | DeleteStatement
SchemaStatement = CreateTable | CreateType | AlterTable | AlterType | DropTable | CreateView | CreateIndex | DropIndex
Statement = WriteStatement | BatchStatement | Truncate | SchemaStatement
