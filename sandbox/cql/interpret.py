"""What a write statement changes: one mutation for each base partition, or none where its conditions do not hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, NamedTuple

from bridge.model.times import UnixMicros
from sandbox.cql.assignments import Assigner
from sandbox.cql.catalog import Catalog, Table, TableName
from sandbox.cql.conditions import holds
from sandbox.cql.list_keys import ListKeys
from sandbox.cql.literals import Serializer
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import (
    Assignment,
    BatchStatement,
    DeleteStatement,
    Element,
    InsertStatement,
    ListCell,
    Relation,
    Selector,
    UpdateStatement,
    Using,
    WriteStatement,
)
from sandbox.cql.parser.terms import UNSET, Term, bound, from_json
from sandbox.cql.where import Direction, Rows, ranges_of, rows_of
from sandbox.scylla.base.mutations import ColumnWrite, Insert, Mutation, Operation, PartitionDelete, RowDelete, Update
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.values.ordering import Key
from schemas.cql.table import Column

MAX_TTL_S: Final = 630_720_000
"""The longest TTL that the server accepts, 20 years."""

_FUTURE_US: Final = 3 * 86_400_000_000

BaseOf = Callable[[Table], BaseState]
"""Returns the present content of a table."""


class TableMutation(NamedTuple):
    """A mutation and its table."""

    table: TableName
    mutation: Mutation


@dataclass(frozen=True, slots=True)
class Request:
    """The times of a request.

    Attributes:
        timestamp_us: the client's timestamp of the protocol frame, else the server's, in Unix us.
        now_us: the server's clock in Unix us, which decides whether a TTL has expired.
        list_keys: timeuuids for added list cells. If empty, they are generated.
    """

    timestamp_us: UnixMicros
    now_us: UnixMicros
    list_keys: tuple[bytes, ...] = ()


class Interpreter:
    """Derives mutations from statements. It reads tables only for statements that need their content."""

    def __init__(self, catalog: Catalog, base_of: BaseOf) -> None:
        """Take the tables' definitions and contents. Both stay unchanged."""
        self._catalog = catalog
        self._base_of = base_of

    def mutations(
        self,
        statement: WriteStatement | BatchStatement,
        request: Request,
        parameters: Sequence[Term] = (),
    ) -> list[TableMutation]:
        """Derive the mutations of a statement or batch, in the order in which it first names their partitions.

        A conditional statement whose conditions do not hold has no mutations.

        Args:
            statement: the statement.
            request: times of the request.
            parameters: values of the markers; for a batch, those of all its statements in order.

        Raises:
            CqlError: ScyllaDB would refuse the statement, or the simulator does not support it.
        """
        if isinstance(statement, BatchStatement):
            stamp = timestamp_of(statement.using, parameters, request.now_us)
            request = request if stamp is None else replace(request, timestamp_us=stamp)
            statements: tuple[WriteStatement, ...] = statement.statements
        else:
            statements = (statement,)
        keys = ListKeys(request.list_keys)
        parts = [_Part(self._catalog, self._base_of, request, keys, parameters, one) for one in statements]
        if not all(part.is_allowed() for part in parts):
            return []
        gathered: dict[tuple[TableName, Key], list[Operation]] = {}
        for part in parts:
            for partition_key, operation in part.operations():
                gathered.setdefault((part.table.name, partition_key), []).append(operation)
        return [
            TableMutation(table, Mutation(partition_key, tuple(operations), request.timestamp_us))
            for (table, partition_key), operations in gathered.items()
        ]


def timestamp_of(using: Using, parameters: Sequence[Term], now_us: UnixMicros) -> UnixMicros | None:
    """Return the value of `USING TIMESTAMP` in Unix us; None if the statement has none.

    Raises:
        CqlError: the value is not a number, or more than three days ahead of the clock.
    """
    value = bound(using.timestamp, parameters)
    if value is UNSET:
        return None
    if not isinstance(value, int):
        raise CqlError(f"a timestamp is a number of microseconds, not {value!r}")
    if value > now_us + _FUTURE_US:
        raise CqlError(f"Cannot provide a timestamp more than 3 days into the future: {value}")
    return UnixMicros(value)


class _Part:
    """One statement of a request."""

    def __init__(
        self,
        catalog: Catalog,
        base_of: BaseOf,
        request: Request,
        keys: ListKeys,
        parameters: Sequence[Term],
        statement: WriteStatement,
    ) -> None:
        self.table = catalog.table(statement.table)
        self._schema = self.table.table_schema
        self._base_of = base_of
        self._request = request
        self._parameters = parameters
        self._statement = statement
        self._serializer = Serializer(catalog.user_types(self._schema.keyspace))
        self._own_us = timestamp_of(statement.using, parameters, request.now_us)
        stamp_us = request.timestamp_us if self._own_us is None else self._own_us
        self._assigner = Assigner(self._serializer, keys, stamp_us)
        self._ttl_s = self._ttl()

    def is_allowed(self) -> bool:
        """Whether the statement's conditions hold; True if it has none."""
        conditions = self._statement.conditions
        if conditions is None:
            return True
        for partition_key, clustering in self._named_rows():
            base = self._base_of(self.table)
            relations = tuple(self._bound_relation(relation) for relation in conditions.relations)
            static = base.static(partition_key, self._request.now_us)
            if self._is_row(clustering):
                found = base.row(partition_key, clustering, self._request.now_us)
            else:
                found = None if static.is_empty else static
            if not holds(replace(conditions, relations=relations), self._schema, found, static, self._serializer):
                return False
        return True

    def operations(self) -> Iterator[tuple[Key, Operation]]:
        """The statement's operations, each with its partition key."""
        match self._statement:
            case InsertStatement() as statement:
                yield self._insert(statement)
            case UpdateStatement() as statement:
                yield from self._update(statement)
            case DeleteStatement() as statement:
                yield from self._delete(statement)

    def _is_row(self, clustering: Key) -> bool:
        return bool(clustering) or not self._schema.clustering

    def _named_rows(self) -> Iterator[tuple[Key, Key]]:
        if isinstance(self._statement, InsertStatement):
            values = self._inserted(self._statement)
            yield self._key(self._schema.partition_key, values), self._clustering_key(values)
            return
        rows = self._rows(self._statement.where)
        for partition_key in rows.partition_keys:
            for prefix in rows.prefixes:
                if 0 < len(prefix) < len(self._schema.clustering) or rows.bounds is not None:
                    raise self._error("conditions need the whole primary key")
                yield partition_key, prefix

    def _rows(self, where: Sequence[Relation]) -> Rows:
        relations = [self._bound_relation(relation) for relation in where]
        return rows_of(self._schema, relations, self._serializer)

    def _bound_relation(self, relation: Relation) -> Relation:
        value = bound(relation.value, self._parameters)
        return replace(relation, value=value, selector=self._bound_selector(relation.selector))

    def _bound_selector(self, selector: Selector) -> Selector:
        if isinstance(selector, Element | ListCell):
            return replace(selector, key=bound(selector.key, self._parameters))
        return selector

    def _ttl(self) -> int:
        ttl = bound(self._statement.using.ttl, self._parameters)
        if ttl is UNSET:
            return self.table.default_ttl_s
        if not isinstance(ttl, int):
            raise self._error(f"Invalid null value of TTL: {ttl!r}")
        if not 0 <= ttl <= MAX_TTL_S:
            raise self._error(f"ttl is too large or negative. requested ({ttl}) maximum ({MAX_TTL_S})")
        return ttl

    def _insert(self, statement: InsertStatement) -> tuple[Key, Operation]:
        values = self._inserted(statement)
        keys = {column.name for column in (*self._schema.partition_key, *self._schema.clustering)}
        assignments = [Assignment(name, None, "set", value) for name, value in values.items() if name not in keys]
        clustering = self._clustering_key(values)
        partition_key = self._key(self._schema.partition_key, values)
        cells = self._cells(assignments, partition_key, clustering)
        return partition_key, Insert(clustering, cells, self._ttl_s, self._own_us)

    def _inserted(self, statement: InsertStatement) -> dict[str, Term]:
        """The statement's values by column name."""
        if not statement.columns:
            return self._from_json(statement)
        values = dict(zip(statement.columns, statement.values, strict=True))
        return {name: bound(value, self._parameters) for name, value in values.items()}

    def _from_json(self, statement: InsertStatement) -> dict[str, Term]:
        text = bound(statement.json, self._parameters)
        if not isinstance(text, str):
            raise self._error(f"INSERT JSON needs a text, not {text!r}")
        form = json.loads(text, parse_float=Decimal)
        # Names in the JSON text are lower-cased like identifiers, unless they have quotes of their own.
        given = {name[1:-1] if name.startswith('"') else name.lower(): from_json(value) for name, value in form.items()}
        if statement.keeps_others:
            return given
        return {**dict.fromkeys(column.name for column in self._schema.columns if not column.is_hidden), **given}

    def _clustering_key(self, values: Mapping[str, Term]) -> Key:
        columns = self._schema.clustering
        given = [column for column in columns if values.get(column.name) is not None]
        if given and len(given) == len(columns):
            return self._key(columns, values)
        keys = {column.name for column in (*self._schema.partition_key, *columns)}
        statics = {column.name for column in self._schema.statics}
        if given or not statics or not values.keys() - keys <= statics or values.keys() & {c.name for c in columns}:
            missing = [column.name for column in columns if column not in given]
            if missing:
                raise self._error(f"Missing mandatory PRIMARY KEY part {missing[0]}")
        return ()

    def _key(self, columns: Sequence[Column], values: Mapping[str, Term]) -> Key:
        missing = [column.name for column in columns if values.get(column.name, UNSET) is UNSET]
        if missing:
            raise self._error(f"Missing mandatory PRIMARY KEY part {missing[0]}")
        return tuple(self._serializer.value(column.type, values[column.name]) for column in columns)

    def _update(self, statement: UpdateStatement) -> Iterator[tuple[Key, Operation]]:
        assignments = [
            replace(
                assignment,
                value=bound(assignment.value, self._parameters),
                selector=self._bound_selector(assignment.selector),
            )
            for assignment in statement.assignments
        ]
        yield from self._writes(statement.where, assignments)

    def _writes(self, where: Sequence[Relation], assignments: Sequence[Assignment]) -> Iterator[tuple[Key, Operation]]:
        rows = self._rows(where)
        statics = {column.name for column in self._schema.statics}
        needs_row = any(assignment.column not in statics for assignment in assignments)
        for partition_key in rows.partition_keys:
            for prefix in rows.prefixes:
                is_whole = len(prefix) == len(self._schema.clustering)
                if rows.bounds is not None or not (is_whole or (not prefix and not needs_row)):
                    raise self._error("a write needs the whole primary key, or only static columns")
                cells = self._cells(assignments, partition_key, prefix)
                yield partition_key, Update(prefix, cells, self._ttl_s, self._own_us)

    def _delete(self, statement: DeleteStatement) -> Iterator[tuple[Key, Operation]]:
        if statement.targets:
            deletions = [
                Assignment(column, self._bound_selector(selector), "set" if selector else "delete", None)
                for column, selector in statement.targets
            ]
            yield from self._writes(statement.where, deletions)
            return
        rows = self._rows(statement.where)
        for partition_key in rows.partition_keys:
            for prefix in rows.prefixes:
                for operation in self._deletes(prefix, rows):
                    yield partition_key, operation

    def _deletes(self, prefix: Key, rows: Rows) -> Iterator[Operation]:
        columns = self._schema.clustering
        if rows.bounds is None and not prefix:
            yield PartitionDelete(self._own_us)
        elif rows.bounds is None and len(prefix) == len(columns):
            yield RowDelete(prefix, self._own_us)
        elif self.table.is_compact:
            raise self._error('Range deletions on "compact storage" schemas are not supported')
        else:
            directions = [Direction(self._serializer.order(column.type), column.descending) for column in columns]
            for range_delete in ranges_of(prefix, rows.bounds, directions):
                yield replace(range_delete, timestamp_us=self._own_us)

    def _cells(self, assignments: Sequence[Assignment], partition_key: Key, clustering: Key) -> dict[str, ColumnWrite]:
        columns = {column.name: column for column in self._schema.values}
        statics = {column.name for column in self._schema.statics}
        cells: dict[str, ColumnWrite] = {}
        for assignment in assignments:
            column = columns.get(assignment.column)
            if column is None:
                raise self._error(f"there is no column {assignment.column!r} to write")

            def stored(name: str = column.name, *, is_static: bool = column.name in statics) -> Mapping[bytes, bytes]:
                base, now_us = self._base_of(self.table), self._request.now_us
                row = base.static(partition_key, now_us) if is_static else base.row(partition_key, clustering, now_us)
                return {} if row is None else row.collections.get(name, {})

            self._assigner.write(cells, column, assignment, stored)
        return cells

    def _error(self, reason: str) -> CqlError:
        return CqlError(f"table {self._schema.full_name}: {reason}")
