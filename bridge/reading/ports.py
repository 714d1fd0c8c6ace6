"""What reading needs of a cluster. `bridge.adapters.scylla` implements it; tests use stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from schemas.cql.table import TableSchema
from schemas.cql.types import CqlType


class LogPages(Protocol):
    """Reads the rows of a CDC log, page by page."""

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Request one page of a stream's rows in a window, in the server's order.

        The future fails with RetriableError if another try may succeed.

        Args:
            stream: whose rows to read.
            window: the range of `cdc$time`.
            page_rows: the most rows in the page.
            paging_state: the preceding page's; None for the first page.
        """
        ...


class LogStreams(Protocol):
    """Finds out which streams of a CDC log have rows."""

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """Request the first page of the rows of several streams; its only column is the stream's id.

        The server chooses the order of the streams. The future, or the call, fails with BridgeError.

        Args:
            streams: at most `bridge.reading.stream_probe.STREAMS_PER_PROBE`.
            window: a window that has an end.
            page_rows: the most rows in the page.
        """
        ...


class Log(LogPages, LogStreams, Protocol):
    """Everything that a lane reads from a CDC log."""


class PreparedLog(Log, Protocol):
    """A log with the columns that the server reported when it prepared the statement."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the order of a row's cells."""
        ...

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns`; nothing is frozen in them."""
        ...


class TableDescriptions(Protocol):
    """Describes the tables of a cluster."""

    def describe_table(self, keyspace: str, table: str) -> TableSchema | None:
        """The base table's present schema; None if the table or its log does not exist."""
        ...

    def log_reader(self, keyspace: str, table: str) -> PreparedLog:
        """A reader of the table's log; it prepares its statements in this call."""
        ...
