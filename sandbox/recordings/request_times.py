"""Finds the timestamp of a recorded request in the log rows that it left. Pure.

A request without `USING TIMESTAMP` gets its timestamp from the server, and only the log shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bridge.model.times import UnixMicros
from sandbox.cql.catalog import Catalog
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.statements import BatchStatement, DeleteStatement, WriteStatement
from sandbox.cql.parser.terms import UNSET, Term, bound
from sandbox.scylla.values.nested import is_multi_cell


class RequestTimes:
    """The timestamps of one write request: those that its statements give, and the one of the request."""

    def __init__(self, entries: Iterable[tuple[str, Sequence[Term]]], catalog: Catalog) -> None:
        """Read the request's statements.

        Args:
            entries: one statement, or those of a batch of the native protocol, with the values of their markers.
            catalog: the tables at the time of the request.

        Raises:
            CqlError: a statement is not a write, or its table is not known.
        """
        self._given: list[tuple[UnixMicros, bool]] = []
        self._only_collections: list[bool] = []
        for text, parameters in entries:
            for statement, given in _writes(text, parameters):
                deletes = _whole_collections(statement, catalog)
                if given is None:
                    self._only_collections.append(bool(deletes) and all(deletes))
                else:
                    self._given.append((given, any(deletes)))

    def of_request(self, logged: Iterable[UnixMicros]) -> UnixMicros | None:
        """Return the timestamp of the statements that give none; None if there is no such statement, or no row of it.

        Args:
            logged: the microseconds of the groups that the request left.
        """
        explained = {at_us + later for at_us, deletes in self._given for later in range(1 + deletes)}
        left = set(logged) - explained
        if not left or not self._only_collections:
            return None
        # The deletion of a whole collection is logged a microsecond after its timestamp.
        return UnixMicros(min(left) - all(self._only_collections))

    def all(self, request_us: UnixMicros) -> set[UnixMicros]:
        """Return the timestamps of all statements, those without one of their own having the request's."""
        return {request_us, *(at_us for at_us, _deletes in self._given)}


def _writes(text: str, parameters: Sequence[Term]) -> Iterator[tuple[WriteStatement, UnixMicros | None]]:
    """The writes of a statement, each with the timestamp that it or its batch gives."""
    statement = statement_of(text)
    of_batch: Term = UNSET
    if isinstance(statement, BatchStatement):
        of_batch = bound(statement.using.timestamp, parameters)
        statements: tuple[WriteStatement, ...] = statement.statements
    else:
        assert isinstance(statement, WriteStatement)
        statements = (statement,)
    for one in statements:
        own = bound(one.using.timestamp, parameters)
        given = own if isinstance(own, int) else of_batch
        yield one, UnixMicros(given) if isinstance(given, int) else None


def _whole_collections(statement: WriteStatement, catalog: Catalog) -> list[bool]:
    """For each target of a DELETE whether it is a whole collection; empty for other statements."""
    targets = statement.targets if isinstance(statement, DeleteStatement) else ()
    columns = catalog.table(statement.table).table_schema.values
    collections = {column.name for column in columns if is_multi_cell(column.type)}
    return [selector is None and name in collections for name, selector in targets]
