"""CQL sessions that give rows as the raw cells of the wire, or decoded where small tables are read."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, ResponseFuture, Session
from cassandra.pool import Host
from cassandra.query import PreparedStatement

from bridge.adapters.scylla.connection import connect_driver
from bridge.adapters.scylla.errors import DRIVER_ERRORS, shorten, translate_error
from bridge.adapters.scylla.result_columns import ResultRows, result_columns
from bridge.adapters.scylla.routing import RoutedStatement
from bridge.config.document import ScyllaSettings
from bridge.model.log_rows import Cells, Page
from schemas.cql.types import CqlType

_log = logging.getLogger(__name__)

_PAGE_ROWS: Final = 5000


class NodeRows(NamedTuple):
    """The rows of a result, and the address of the node that gave all of them."""

    node: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that the server has parsed; valid for the session that prepared it."""

    cql: str
    statement: PreparedStatement

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the statement's result at the time of preparing."""
        return result_columns(self.statement.result_metadata or ()).names

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns` at the time of preparing; nothing is frozen in them."""
        return result_columns(self.statement.result_metadata or ()).types


class CqlSession:
    """A connected session. Thread-safe; each process has its own.

    A failed request raises RetriableError if another try may succeed, else BridgeError.
    """

    def __init__(self, cluster: Cluster, session: Session, settings: ScyllaSettings) -> None:
        self._cluster = cluster
        self._session = session
        self._prepared: dict[str, Prepared] = {}
        self.settings = settings
        self.address = ", ".join(settings.contact_points)

    @classmethod
    def connect(cls, settings: ScyllaSettings) -> Self:
        """Connect once.

        Raises:
            RetriableError: no contact point answers, or its name has no address; the message names them.
            StartupError: the cluster refuses the credentials, or has no data center of the configured name.
        """
        return cls(*connect_driver(settings), settings)

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._cluster.shutdown()

    @property
    def node_count(self) -> int:
        """How many nodes the driver knows, up or down."""
        return len(self._cluster.metadata.all_hosts())

    @property
    def nodes(self) -> frozenset[str]:
        """The addresses of the nodes that get requests: those of the data center that are up."""
        return frozenset(self._hosts)

    @property
    def _hosts(self) -> dict[str, Host]:
        return {str(host.endpoint): host for host in self._session.get_pool_state()}

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        """All rows of a small result, decoded by the driver, by the columns' own names.

        Args:
            cql: the statement.
            parameters: its values.
            consistency: name of a consistency level; None for the configured one.

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        return self.node_rows(cql, parameters, consistency).rows

    def node_rows(
        self,
        cql: str,
        parameters: Sequence[object] = (),
        consistency: str | None = None,
        node: str | None = None,
    ) -> NodeRows:
        """All rows of a small result, and the node that gave them.

        One node gives all pages, because another one may have another view of a virtual table.

        Args:
            cql: the statement.
            parameters: its values.
            consistency: name of a consistency level; None for the configured one.
            node: one of `nodes`, which gets the request; None for any.

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        prepared = self.prepare(cql)
        state: bytes | None = None
        host = None if node is None else self._hosts.get(node)
        found: list[dict[str, Any]] = []
        while True:
            future = self._send(
                prepared, parameters, page_rows=_PAGE_ROWS, paging_state=state, consistency=consistency, host=host
            )
            raw = self._await_rows(future, cql)
            host = host or future.coordinator_host
            columns = raw.columns
            found.extend(
                {
                    name: None if cell is None else kind.from_binary(cell, self._protocol_version)
                    for name, kind, cell in zip(columns.names, columns.driver_types, row, strict=True)
                }
                for row in raw
            )
            state = future._paging_state
            if not state:
                return NodeRows(self.address if host is None else str(host.endpoint), found)

    def cells(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> Iterator[Cells]:
        """The rows of a result of any size, page by page, as raw cells.

        Args:
            cql: the statement.
            parameters: its values.
            consistency: name of a consistency level; None for the configured one.

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        prepared = self.prepare(cql)
        state: bytes | None = None
        while True:
            page = self.page(
                prepared, parameters, page_rows=_PAGE_ROWS, paging_state=state, consistency=consistency
            ).result()
            yield from page.rows
            state = page.paging_state
            if not state:
                return

    def prepare(self, cql: str, *, again: bool = False) -> Prepared:
        """Prepare a statement; the session prepares each text once and remembers it.

        Args:
            cql: the statement.
            again: prepare it even if the session remembers it, to learn its present columns.

        Raises:
            RetriableError: the server did not answer in time.
            BridgeError: the server refuses the statement.
        """
        known = None if again else self._prepared.get(cql)
        if known is None:
            try:
                statement = self._session.prepare(cql)
            except DRIVER_ERRORS as error:
                raise translate_error(error, self.settings, cql) from error
            # Without a metadata id the server sends the metadata with each page (`RawResultMessage` says why).
            statement.update_result_metadata(statement.result_metadata, None)
            self._prepared[cql] = known = Prepared(cql, statement)
        return known

    def learn_replication(self, keyspace: str) -> None:
        """Read which nodes replicate which tokens of a keyspace; `page` needs it to send a request to an owner.

        The driver knows nothing else of the schema: it would read the whole schema again at each change. For tables in
        tablets the servers send the replicas with their answers; until then the driver uses this. A failure is logged
        only, because a request to another node also succeeds.
        """
        try:
            # No wait for schema agreement: at worst a request goes to another node first.
            self._cluster.refresh_keyspace_metadata(keyspace, max_schema_agreement_wait=0)
        except DRIVER_ERRORS as error:
            _log.warning(
                "ScyllaDB at %s: the replication of keyspace %s can't be read, so reads of its log may not go to the "
                "streams' owners: %s",
                *(self.address, keyspace, shorten(str(error))),
            )

    def page(
        self,
        prepared: Prepared,
        parameters: Sequence[object],
        *,
        page_rows: int,
        paging_state: bytes | None = None,
        consistency: str | None = None,
        routing_key: bytes | None = None,
    ) -> Future[Page]:
        """Request one page; the future fails with RetriableError or BridgeError.

        Args:
            prepared: the statement.
            parameters: its values.
            page_rows: the most rows in the page.
            paging_state: the preceding page's; None for the first page.
            consistency: name of a consistency level; None for the configured one.
            routing_key: the key to hash for the token whose owner (node and shard) gets the request, as
                `bridge.model.murmur3.key_with_token` makes it; None for the statement's partition key.
        """
        result: Future[Page] = Future()
        response = self._send(
            prepared,
            parameters,
            page_rows=page_rows,
            paging_state=paging_state,
            consistency=consistency,
            routing_key=routing_key,
        )

        def succeed(raw: ResultRows) -> None:
            result.set_result(Page(raw.columns.names, raw, response._paging_state, raw.columns.types))

        def fail(error: BaseException) -> None:
            result.set_exception(translate_error(error, self.settings, prepared.cql))

        response.add_callbacks(succeed, fail)
        return result

    @property
    def _protocol_version(self) -> int:
        version: int = self._session._protocol_version
        return version

    def _send(
        self,
        prepared: Prepared,
        parameters: Sequence[object],
        *,
        page_rows: int,
        paging_state: bytes | None,
        consistency: str | None,
        routing_key: bytes | None = None,
        host: Host | None = None,
    ) -> ResponseFuture:
        bound = RoutedStatement(prepared.statement, routing_key).bind(parameters)
        bound.fetch_size = page_rows
        if consistency is not None:
            bound.consistency_level = ConsistencyLevel.name_to_value[consistency]
        return self._session.execute_async(bound, paging_state=paging_state, host=host)

    def _await_rows(self, future: ResponseFuture, cql: str) -> ResultRows:
        try:
            # Not future.result(): its ResultSet would fetch further pages by itself.
            done: Future[ResultRows] = Future()
            future.add_callbacks(done.set_result, done.set_exception)
            return done.result()
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.settings, cql) from error


def timeuuid_parameter(timeuuid: bytes) -> uuid.UUID:
    """The 16 bytes of a timeuuid as the driver's parameter type."""
    return uuid.UUID(bytes=timeuuid)
