"""CQL sessions: the only module that imports `cassandra`.

Rows come as the raw cells of the wire, never through the driver's own types: those can't hold every CQL value (a
timestamp beyond year 9999, for one) and rename columns. Decoded rows are given where small tables are read.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Final

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestExecutionException,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    UnsupportedOperation,
    WriteFailure,
    WriteTimeout,
)
from cassandra.auth import AuthProvider, PlainTextAuthenticator
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    Session,
)
from cassandra.connection import ConnectionException
from cassandra.metadata import Murmur3Token
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import ErrorMessage, ResultMessage, SyntaxException, _ProtocolHandler
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

from bridge.adapters import tls
from bridge.adapters.scylla.result_columns import ResultRows, known_metadata, result_columns
from bridge.adapters.tls import RenewingContext
from bridge.adapters.tls_probe import what_is_wrong
from bridge.config.document import ScyllaSettings, Secret
from bridge.errors import AccessError, BridgeError, RefusedError, RetriableError, StartupError
from bridge.model.log_rows import Cells, Page
from bridge.model.streams import Token
from schemas.cql.types import CqlType

_log = logging.getLogger(__name__)

UNSET: Final[Any] = UNSET_VALUE
"""Among the cells of a write: leave this column alone."""

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_TWO_INTS: Final = Struct(">ii")

_at_end: Any = getattr(sys.modules.get("cassandra.io.libevreactor"), "_atexit_cleanup", None)
if _at_end is not None:
    # At its process's end the driver waits for its event loop, which sleeps until the timers of finished requests are
    # due, and after 5 s warns of an open session. Commands close theirs, and the job ends without such hooks.
    atexit.unregister(_at_end)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that the server has parsed; good for the session that prepared it."""

    cql: str
    statement: PreparedStatement

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the values that the statement takes, in their order."""
        return tuple(column.name for column in self.statement.column_metadata)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the statement's result, as they were when it was prepared."""
        return result_columns(self.statement.result_metadata or ()).names

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns`, as `Page.types`."""
        return result_columns(self.statement.result_metadata or ()).types


class _PresentPassword(AuthProvider):  # type: ignore[misc]  # the driver has no types
    """Gives each new connection the password that its place holds by then."""

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def new_authenticator(self, host: str) -> PlainTextAuthenticator:
        return PlainTextAuthenticator(self._username, self._password.reveal("scylla.password"))


class CqlSession:
    """A connected session; thread-safe. Failures come as RetriableError, or BridgeError where trying again is no use.

    Used on the driver by the planner and in each lane's worker: one a process.
    """

    def __init__(self, cluster: Cluster, session: Session, settings: ScyllaSettings) -> None:
        self._cluster = cluster
        self._session = session
        self.settings = settings
        self.address = ", ".join(settings.contact_points)

    @classmethod
    def connect(cls, settings: ScyllaSettings) -> CqlSession:
        """Connect once.

        Raises:
            RetriableError: no contact point answers, or has an address; the message names them.
            StartupError: the cluster refuses the credentials.
        """
        endpoints = [_host_and_port(point) for point in settings.contact_points]
        # Without a name the driver takes the first contact point's data center: LOCAL_QUORUM must be the writers'.
        nearby = DCAwareRoundRobinPolicy(local_dc=settings.local_datacenter or "")
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(nearby),
            consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
            request_timeout=settings.request_timeout_ms / 1000,
            row_factory=_keep,
        )
        auth = None
        if settings.username is not None and settings.password is not None:
            settings.password.reveal(
                "scylla.password"
            )  # if it is not there, that is better said here than by a thread of the driver's
            auth = _PresentPassword(settings.username, settings.password)
        try:
            cluster = Cluster(
                contact_points=endpoints,
                # Nodes do not say on which port they listen for CQL: those found later are asked on the first one's.
                port=endpoints[0][1],
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                auth_provider=auth,
                # A resumed session shows and verifies no certificate, and belongs to a context that may be renewed.
                ssl_session_cache=None,
                ssl_context=RenewingContext.of(settings.tls, "scylla.tls") if settings.tls.enabled else None,
                schema_metadata_enabled=False,
                reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
                connect_timeout=settings.request_timeout_ms / 1000,
                control_connection_timeout=settings.request_timeout_ms / 1000,
                compression=False,
                connection_class=_Connection,
            )
        except UnresolvableContactPoints:
            raise RetriableError(
                f"ScyllaDB at {', '.join(settings.contact_points)}: no address is known for that name; see "
                "scylla.contact_points"
            ) from None
        try:
            session = cluster.connect()
        except (NoHostAvailable, DriverException, UnsupportedOperation, ErrorMessage, OSError) as error:
            known = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter is not None})
            cluster.shutdown()
            if isinstance(error, NoHostAvailable) and known and settings.local_datacenter not in (None, *known):
                raise StartupError(
                    f"ScyllaDB at {', '.join(settings.contact_points)}: there is no data center "
                    f"{settings.local_datacenter!r}, only {', '.join(map(repr, known))}; see scylla.local_datacenter"
                ) from error
            meant = _translate(error, settings, "connecting")
            if isinstance(meant, RetriableError):
                _look_at_tls(settings)
            raise meant from error
        session.client_protocol_handler = _RawProtocolHandler
        return cls(cluster, session, settings)

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._cluster.shutdown()

    @property
    def node_count(self) -> int:
        """Nodes that the driver knows, up or down."""
        return len(self._cluster.metadata.all_hosts())

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        """Every row of a small result, decoded by the driver, with the columns' own names.

        Raises:
            RetriableError: the server did not answer in time or lacks replicas.
            BridgeError: the server refuses the statement.
        """
        prepared = self.prepare(cql)
        state: bytes | None = None
        found: list[dict[str, Any]] = []
        while True:
            future = self._send(prepared, parameters, page_rows=5000, paging_state=state, consistency=consistency)
            raw = self._result(future, cql)
            columns = raw.columns
            found.extend(
                {
                    name: None if cell is None else kind.from_binary(cell, self._protocol)
                    for name, kind, cell in zip(columns.names, columns.kinds, row, strict=True)
                }
                for row in raw
            )
            state = future._paging_state
            if not state:
                return found

    def cells(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> Iterator[Cells]:
        """The rows of a result, whatever its size, as raw cells.

        Raises:
            RetriableError, BridgeError: as `rows`.
        """
        prepared = self.prepare(cql)
        state: bytes | None = None
        while True:
            page = self.page(prepared, parameters, page_rows=5000, paging_state=state, consistency=consistency).result()
            yield from page.rows
            state = page.paging_state
            if not state:
                return

    def cells_of(self, prepared: Prepared, cells: Sequence[bytes | None]) -> Iterator[Cells]:
        """The rows of a query whose parameters are already serialized, as raw cells.

        Raises:
            RetriableError, BridgeError: as `rows`.
        """
        bound = self._bound(prepared, cells)
        state: bytes | None = None
        while True:
            future = self._session.execute_async(bound, paging_state=state)
            yield from self._result(future, prepared.cql)
            state = future._paging_state
            if not state:
                return

    def execute(self, cql: str, consistency: str | None = None) -> None:
        """Run a statement that has no parameters and gives no rows (DDL for one).

        Raises:
            RetriableError, BridgeError: as `rows`.
        """
        try:
            self._session.execute(cql, timeout=60)
        except _FAILURES as error:
            raise _translate(error, self.settings, cql) from error

    def prepare(self, cql: str, *, anew: bool = False) -> Prepared:
        """Have the server parse a statement, once for each text; with `anew` also one that it has parsed before.

        Raises:
            RetriableError, BridgeError: as `rows`.
        """
        known = None if anew else self._prepared.get(cql)
        if known is None:
            try:
                statement = self._session.prepare(cql)
            except _FAILURES as error:
                raise _translate(error, self.settings, cql) from error
            # Without its id the server has to send each page's metadata (see `_RawResultMessage`).
            statement.update_result_metadata(statement.result_metadata, None)
            self._prepared[cql] = known = Prepared(cql, statement)
        return known

    def learn_replication(self, keyspace: str) -> None:
        """Learn which nodes have which of a keyspace's tokens, as it is now: `page` needs it to ask one that has them.

        All else of the schema stays unknown to the driver, which would read it whole again at every change of it. For
        tables in tablets the servers tell with their answers; until then the driver goes by this. When no server tells
        now, that is logged: requests then take a detour, and that is all.
        """
        try:
            # Nodes that do not agree yet at worst make a request take a detour.
            self._cluster.refresh_keyspace_metadata(keyspace, max_schema_agreement_wait=0)
        except _FAILURES as error:
            _log.warning(
                "ScyllaDB at %s does not tell how keyspace %s is replicated, so its log is not read from the owners of "
                "the streams: %s",
                *(self.address, keyspace, _short(str(error))),
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
        """Ask for one page; the future fails with RetriableError or BridgeError.

        Args:
            prepared: the statement.
            parameters: its values.
            page_rows: most rows in the page.
            paging_state: of the page before.
            consistency: unless the settings' will do.
            routing_key: what to hash for the token whose owner is to be asked, node and shard; see
                `bridge.model.murmur3.key_with_token`. Unset, the statement's partition key.
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

        def arrived(raw: ResultRows) -> None:
            result.set_result(Page(raw.columns.names, raw, response._paging_state, raw.columns.types))

        def failed(error: BaseException) -> None:
            result.set_exception(_translate(error, self.settings, prepared.cql))

        response.add_callbacks(arrived, failed)
        return result

    def write_raw(self, prepared: Prepared, cells: Sequence[bytes | None]) -> Future[None]:
        """Run a prepared statement with parameters that are already serialized; None writes null, UNSET nothing."""
        return self._run(self._bound(prepared, cells), prepared.cql)

    def write_batch(self, prepared: Prepared, rows: Iterable[Sequence[bytes | None]]) -> Future[None]:
        """Run a prepared statement for several rows of one partition in an unlogged batch."""
        batch = BatchStatement(batch_type=BatchType.UNLOGGED, consistency_level=ConsistencyLevel.ONE)
        for cells in rows:
            batch.add(self._bound(prepared, cells))
        return self._run(batch, prepared.cql)

    def write_all(self, writes: Iterable[Callable[[], Future[None]]], in_flight: int = 64) -> int:
        """Run writes with at most `in_flight` of them under way, and say how many there were.

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

    @property
    def _protocol(self) -> int:
        version: int = self._session._protocol_version
        return version

    @property
    def _prepared(self) -> dict[str, Prepared]:
        cache: dict[str, Prepared] = self.__dict__.setdefault("_statements", {})
        return cache

    def _bound(self, prepared: Prepared, cells: Sequence[bytes | None]) -> BoundStatement:
        bound = BoundStatement(prepared.statement)
        # The driver would serialize Python values; these are the wire's bytes already.
        bound.values = list(cells)
        bound.consistency_level = ConsistencyLevel.ONE
        return bound

    def _run(self, statement: BoundStatement | BatchStatement, cql: str) -> Future[None]:
        result: Future[None] = Future()
        response: ResponseFuture = self._session.execute_async(statement, timeout=60)
        response.add_callbacks(
            lambda _rows: result.set_result(None),
            lambda error: result.set_exception(_translate(error, self.settings, cql)),
        )
        return result

    def _send(
        self,
        prepared: Prepared,
        parameters: Sequence[object],
        *,
        page_rows: int,
        paging_state: bytes | None,
        consistency: str | None,
        routing_key: bytes | None = None,
    ) -> ResponseFuture:
        bound = _Routed(prepared.statement, routing_key).bind(parameters)
        bound.fetch_size = page_rows
        if consistency is not None:
            bound.consistency_level = ConsistencyLevel.name_to_value[consistency]
        return self._session.execute_async(bound, paging_state=paging_state)

    def _result(self, future: ResponseFuture, cql: str) -> ResultRows:
        try:
            # Not future.result(): its ResultSet would fetch further pages by itself.
            done: Future[ResultRows] = Future()
            future.add_callbacks(done.set_result, done.set_exception)
            return done.result()
        except _FAILURES as error:
            raise _translate(error, self.settings, cql) from error


def token_of(key: bytes) -> Token:
    """A serialized partition key's token, as `bridge.model.murmur3.murmur3_token`; in C, so a hundred times faster."""
    return Token(Murmur3Token.hash_fn(key))


def timeuuid_parameter(timeuuid: bytes) -> uuid.UUID:
    """A timeuuid's 16 bytes as the driver wants its parameter."""
    return uuid.UUID(bytes=timeuuid)


class _Routed(BoundStatement):  # type: ignore[misc]  # the driver has no types
    """A statement that goes to the owner of another key than the one it is about, if that is given."""

    def __init__(self, statement: PreparedStatement, routing_key: bytes | None) -> None:
        super().__init__(statement)
        self._other_key = routing_key

    @property
    def routing_key(self) -> bytes | None:
        """What the driver hashes to choose node, tablet and shard."""
        if self._other_key is not None:
            return self._other_key
        key: bytes | None = super().routing_key
        return key


class _Connection(Cluster.connection_class):  # type: ignore[misc]  # the driver has no types
    """A connection that takes a page in few turns: the driver's own 4 KiB are 30 rows or so."""

    in_buffer_size = 1 << 16


class _RawResultMessage(ResultMessage):  # type: ignore[misc]  # the driver has no types
    """A result whose cells stay bytes, and whose columns are what this very result says.

    With ScyllaDB's extension SCYLLA_USE_METADATA_ID, and with protocol 5, the driver keeps the metadata of a prepared
    statement and asks the server to leave it out of the pages. It pairs metadata and id with care; but a page that was
    decoded by another page's columns would give wrong values in silence, so here ids are dropped wherever they come
    in: a statement without one is answered with the metadata, always.
    """

    def recv_results_prepared(
        self, f: Any, protocol_version: int, protocol_features: object, user_type_map: Mapping[str, Any]
    ) -> None:
        super().recv_results_prepared(f, protocol_version, protocol_features, user_type_map)
        self.result_metadata_id = None

    def recv_results_rows(
        self,
        f: Any,
        protocol_version: int,
        user_type_map: Mapping[str, Any],
        result_metadata: Sequence[Any] | None,
        column_encryption_policy: object,
    ) -> None:
        begins = f.tell()
        body = f.read()
        flags, count = _TWO_INTS.unpack_from(body, 0)
        if flags & self._NO_METADATA_FLAG:
            raise DriverException("the server left a result's columns out although it was asked for them")
        at = _TWO_INTS.size
        if flags & self._HAS_MORE_PAGES_FLAG:
            (length,) = _INT.unpack_from(body, at)
            at += 4
            if length >= 0:
                self.paging_state = body[at : at + length]
                at += length
        if flags & self._METADATA_ID_FLAG:
            (length,) = _SHORT.unpack_from(body, at)
            at += 2 + length
        shape = flags & self._FLAGS_GLOBAL_TABLES_SPEC
        found = known_metadata.find(shape, count, body, at)
        if found is None:
            f.seek(begins)
            self.recv_results_metadata(f, user_type_map)
            self.result_metadata_id = None
            columns = result_columns(self.column_metadata or ())
            end = f.tell() - begins
            known_metadata.add(shape, count, body[at:end], columns)
        else:
            columns, end = found
        self.column_names = columns.names
        self.column_types = columns.kinds
        self.parsed_rows = ResultRows(body, end, columns)


class _RawProtocolHandler(_ProtocolHandler):  # type: ignore[misc]  # the driver has no types
    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _RawResultMessage,
    }


def _keep(_names: object, rows: object) -> object:
    return rows


def _host_and_port(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return host.strip("[]"), int(port)


_FAILURES: Final = (NoHostAvailable, DriverException, ErrorMessage, ConnectionException, OSError)

_MEANING: Final[tuple[tuple[type[BaseException], type[BridgeError], str], ...]] = (
    # What the driver raises, what that means here, and how the message begins. The first match counts.
    (AuthenticationFailed, AccessError, "refused the username or password (scylla.username, scylla.password)"),
    (Unauthorized, StartupError, "does not allow"),
    (SyntaxException, BridgeError, "does not understand"),
    (InvalidRequest, RefusedError, "refuses"),
    (Unavailable, RetriableError, "has too few live replicas for"),
    (ReadTimeout, RetriableError, "timed out reading for"),
    (WriteTimeout, RetriableError, "timed out writing for"),
    (ReadFailure, RetriableError, "failed reading for"),
    (WriteFailure, RetriableError, "failed writing for"),
    (OperationTimedOut, RetriableError, "did not answer in time to"),
    (RequestExecutionException, RetriableError, "failed at"),
    (ConnectionException, RetriableError, "lost the connection while at"),
    (NoHostAvailable, RetriableError, "can't be reached for"),
    (ErrorMessage, RetriableError, "answered with an error to"),
    (OSError, RetriableError, "can't be reached for"),
)


def _translate(error: BaseException, settings: ScyllaSettings, what: str) -> BridgeError:
    address = ", ".join(settings.contact_points)
    cause = error
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        inner = [found for found in error.errors.values() if isinstance(found, BaseException)]
        # One node's refusal of the credentials or of the TLS handshake is the cluster's.
        for kind in (AuthenticationFailed, StartupError):
            cause = next((found for found in inner if isinstance(found, kind)), cause)
    if (
        "[SSL" in str(cause)
        and (words := tls.explained(_ssl_words(str(cause)), settings.tls, "scylla.tls")) is not None
    ):
        return AccessError(f"ScyllaDB at {address}: {words}")
    if isinstance(cause, StartupError):  # a secret or a certificate that could not be read for a new connection
        return cause
    if isinstance(cause, NoHostAvailable) and isinstance(cause.errors, dict) and cause.errors:
        tried = "; ".join(f"{node}: {_node_words(found)}" for node, found in cause.errors.items())
        return RetriableError(f"ScyllaDB at {address} can't be reached for {_short(what)}: {_short(tried)}")
    if isinstance(cause, NoHostAvailable) and isinstance(cause.errors, list) and cause.errors:
        nodes, port = ", ".join(map(str, cause.errors)), settings.contact_points[0].rpartition(":")[2]
        return RetriableError(
            f"ScyllaDB at {address} can't be reached for {_short(what)}: none of the nodes that it names "
            f"({nodes}) takes connections on port {port}, that of the first contact point; see scylla.contact_points"
        )
    for kind, ours, failed in _MEANING:
        if isinstance(cause, kind):
            return ours(f"ScyllaDB at {address} {failed} {_short(what)}: {_short(str(cause))}")
    return BridgeError(f"ScyllaDB at {address}: unexpected {type(cause).__name__} at {_short(what)}: {cause}")


def _node_words(error: object) -> str:
    """What a node answered, without what Python adds to it."""
    if isinstance(error, OperationTimedOut) and isinstance(error.errors, str):
        # Its own text has fields of the class that are not set.
        return f"{error.errors[:1].lower()}{error.errors[1:]}; is that its port for CQL (scylla.contact_points)?"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower() or str(error)
    return str(error) or type(error).__name__


def _look_at_tls(settings: ScyllaSettings) -> None:
    """Find out what a connection that only broke off does not tell."""
    for point in settings.contact_points:
        wrong = what_is_wrong(point, settings.tls, "scylla.tls")
        if wrong is not None:
            raise AccessError(f"ScyllaDB at {point}: {wrong}")


def _ssl_words(text: str) -> str:
    """What OpenSSL said, out of what the driver made of it."""
    return text[text.index("[SSL") :].partition(" (_ssl.c:")[0]


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 300 else flat[:297] + "..."
