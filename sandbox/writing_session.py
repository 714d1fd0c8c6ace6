"""A CQL session that also writes: the simulator writes base tables, logs and metadata with it.

The only module of the sandbox that imports the CQL driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import ResponseFuture
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement

from bridge.adapters.scylla.errors import DRIVER_ERRORS, translate_error
from bridge.adapters.scylla.session import CqlSession, Prepared
from bridge.model.log_rows import Cells

UNSET: Final[Any] = UNSET_VALUE
"""A cell of a write that leaves its column unchanged."""

_TIMEOUT_S: Final = 60


class WritingSession(CqlSession):
    """A `CqlSession` that runs DDL statements, and statements whose parameters are already serialized."""

    def execute(self, cql: str) -> None:
        """Run a statement that has no parameters and returns no rows (DDL, for one).

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        try:
            self._session.execute(cql, timeout=_TIMEOUT_S)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.settings, cql) from error

    def cells_of(self, prepared: Prepared, cells: Sequence[bytes | None]) -> Iterator[Cells]:
        """The rows of a query as raw cells, page by page.

        Args:
            prepared: the query.
            cells: its parameters, serialized.

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        bound = _bind(prepared, cells)
        state: bytes | None = None
        while True:
            future = self._session.execute_async(bound, paging_state=state)
            yield from self._await_rows(future, prepared.cql)
            state = future._paging_state  # noqa: SLF001  # the driver has no public way to a raw page's state
            if not state:
                return

    def write_raw(self, prepared: Prepared, cells: Sequence[bytes | None]) -> Future[None]:
        """Run a prepared statement; the future fails with RetriableError or BridgeError.

        Args:
            prepared: the statement.
            cells: its parameters, serialized; None writes null, `UNSET` leaves the column unchanged.
        """
        return self._run(_bind(prepared, cells), prepared.cql)

    def write_batch(self, prepared: Prepared, rows: Iterable[Sequence[bytes | None]]) -> Future[None]:
        """Run a prepared statement for several rows of one partition, in an unlogged batch.

        The future fails with RetriableError or BridgeError.

        Args:
            prepared: the statement.
            rows: the serialized parameters of each row.
        """
        batch = BatchStatement(batch_type=BatchType.UNLOGGED, consistency_level=ConsistencyLevel.ONE)
        for cells in rows:
            batch.add(_bind(prepared, cells))
        return self._run(batch, prepared.cql)

    def write_all(self, writes: Iterable[Callable[[], Future[None]]], in_flight: int = 64) -> int:
        """Run writes concurrently and wait for all of them.

        Args:
            writes: each starts a write.
            in_flight: the most writes under way at a time.

        Returns:
            The number of writes.

        Raises:
            RetriableError, BridgeError: the first failure.
        """
        pending: deque[Future[None]] = deque()
        count = 0
        for start in writes:
            if len(pending) >= in_flight:
                pending.popleft().result()
            pending.append(start())
            count += 1
        for future in pending:
            future.result()
        return count

    def _run(self, statement: BoundStatement | BatchStatement, cql: str) -> Future[None]:
        result: Future[None] = Future()
        response: ResponseFuture = self._session.execute_async(statement, timeout=_TIMEOUT_S)
        response.add_callbacks(
            lambda _rows: result.set_result(None),
            lambda error: result.set_exception(translate_error(error, self.settings, cql)),
        )
        return result


def _bind(prepared: Prepared, cells: Sequence[bytes | None]) -> BoundStatement:
    bound = BoundStatement(prepared.statement)
    # `bind` would serialize Python values; these are serialized already.
    bound.values = list(cells)
    bound.consistency_level = ConsistencyLevel.ONE
    return bound
