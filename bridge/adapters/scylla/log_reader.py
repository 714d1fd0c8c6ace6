"""Requests pages of a table's CDC log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from bridge.adapters.scylla.session import CqlSession, Prepared, timeuuid_parameter
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.murmur3 import key_with_token
from bridge.model.streams import StreamId
from schemas.cql.names import quoted
from schemas.cql.table import LOG_TABLE_SUFFIX
from schemas.cql.types import CqlType


class LogReader:
    """Requests pages of one log table, for a stream and a window at a time.

    Args:
        session: connected to the cluster.
        keyspace: the table's.
        table: name of the base table.
    """

    def __init__(self, session: CqlSession, keyspace: str, table: str) -> None:
        self._session = session
        log_table = f"{quoted(keyspace)}.{quoted(table + LOG_TABLE_SUFFIX)}"
        session.learn_replication(keyspace)
        # Identifiers can't be bound, so they are quoted.
        start = f'SELECT * FROM {log_table} WHERE "cdc$stream_id" = ? AND "cdc$time" >= ?'  # noqa: S608
        # Prepare again, so that `columns` are the present ones.
        self._bounded: Prepared = session.prepare(f'{start} AND "cdc$time" < ? BYPASS CACHE', again=True)
        self._unbounded: Prepared = session.prepare(f"{start} BYPASS CACHE", again=True)
        self._columns, self._types = self._bounded.columns, self._bounded.types
        # No PER PARTITION LIMIT: ScyllaDB filters by it in a paged query, and reports a next page after two rows.
        self._streams_of_rows = (
            f'SELECT "cdc$stream_id" FROM {log_table} WHERE "cdc$stream_id" IN ? '  # noqa: S608
            'AND "cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns in the order of a row's cells, at the time when this reader was made."""
        return self._columns

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns`; nothing is frozen in them."""
        return self._types

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Request one page of a stream's rows in a window, in the server's order.

        The stream's owner gets the request. The future fails with RetriableError or BridgeError.

        Args:
            stream: whose rows to read.
            window: the range of `cdc$time`.
            page_rows: the most rows in the page.
            paging_state: the preceding page's; None for the first page.
        """
        parameters: list[object] = [stream.raw, timeuuid_parameter(window.lower_timeuuid)]
        upper = window.upper_timeuuid
        prepared = self._unbounded
        if upper is not None:
            parameters.append(timeuuid_parameter(upper))
            prepared = self._bounded
        # The driver knows only the cluster's partitioner; the log has its own. So the key is made from the token.
        return self._session.page(
            prepared,
            parameters,
            page_rows=page_rows,
            paging_state=paging_state,
            routing_key=key_with_token(stream.token),
        )

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """Request the first page of several streams' rows in a window; its only column is the stream's id.

        The owner of the first stream gets the request. The future fails with RetriableError or BridgeError.

        Args:
            streams: at most as many as the server allows in one `IN`.
            window: a window that has an end.
            page_rows: the most rows in the page.
        """
        lower, upper = window.lower_timeuuid, window.upper_timeuuid
        assert upper is not None
        # Prepared on first use: a table that is written steadily never needs this statement.
        return self._session.page(
            self._session.prepare(self._streams_of_rows),
            [[stream.raw for stream in streams], timeuuid_parameter(lower), timeuuid_parameter(upper)],
            page_rows=page_rows,
            routing_key=key_with_token(streams[0].token),
        )
