"""The server of a run: a ScyllaDB, or the local stack's CQL server with the sandbox's CQL client before it.

Reads use the CQL driver for both.
"""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, RequestExecutionException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy
from cassandra.protocol import ConfigurationException, ServerError, SyntaxException
from cassandra.query import SimpleStatement, dict_factory

from bridge.config.document import ScyllaSettings
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.source import statements_of
from sandbox.errors import LocalStackError
from sandbox.writing_session import WritingSession

_PAGE: Final = 1000
_TRIES: Final = 5
_TIMEOUT_S: Final = 20.0
_UNSETTLED: Final = (OperationTimedOut, RequestExecutionException, NoHostAvailable, ServerError)


class RefusedError(Exception):
    """The server refuses a statement; nothing was changed."""


class UnsettledError(Exception):
    """The server did not confirm a statement: perhaps it took effect, perhaps it did not."""


def now_us() -> int:
    """The present in us since 1970."""
    return time.time_ns() // 1000


class Server(Protocol):
    """Runs statements. Not thread-safe.

    Attributes:
        is_real: whether it is a ScyllaDB. The local stack's server has no materialized views, writes no single elements
            of lists, and chooses the keys of list elements by its own clock.
        datacenter: the data center's name.
    """

    is_real: bool
    datacenter: str

    def execute(self, cql: str, timestamp_us: int) -> None:
        """Run a statement at this default timestamp in us, once.

        Raises:
            RefusedError, UnsettledError: it was refused, or not confirmed.
        """

    def rows(self, cql: str) -> list[dict[str, Any]]:
        """The rows of a SELECT."""

    def close(self) -> None:
        """Close all connections."""


class _Reader:
    """A session of the CQL driver."""

    def __init__(self, contact_points: list[str]) -> None:
        profile = ExecutionProfile(
            load_balancing_policy=RoundRobinPolicy(),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=ConsistencyLevel.QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=_TIMEOUT_S,
            row_factory=dict_factory,
        )
        places = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in contact_points)]
        self._cluster = Cluster(
            [host for host, _ in places],
            port=places[0][1],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=4,
            connect_timeout=_TIMEOUT_S,
            control_connection_timeout=_TIMEOUT_S,
        )
        self.session: Session = self._cluster.connect()
        self.datacenter = str(self._cluster.metadata.all_hosts()[0].datacenter)

    def rows(self, cql: str) -> list[dict[str, Any]]:
        for _ in range(_TRIES - 1):
            try:
                return list(self.session.execute(SimpleStatement(cql, fetch_size=_PAGE)))
            except _UNSETTLED:
                time.sleep(2)
        return list(self.session.execute(SimpleStatement(cql, fetch_size=_PAGE)))

    def close(self) -> None:
        self._cluster.shutdown()


class ScyllaServer(_Reader):
    """A ScyllaDB, which writes the logs itself."""

    is_real = True

    def __init__(self, contact_points: list[str]) -> None:
        super().__init__(contact_points)
        self._timestamp_us = 0
        # A statement that is sent again has the same timestamp.
        self.session.timestamp_generator = lambda: self._timestamp_us

    def execute(self, cql: str, timestamp_us: int) -> None:
        self._timestamp_us = timestamp_us
        try:
            self.session.execute(cql)
        except (InvalidRequest, ConfigurationException, SyntaxException) as error:
            raise RefusedError(f"{error}: {cql[:300]}") from error
        except _UNSETTLED as error:
            raise UnsettledError(f"{type(error).__name__}: {error}"[:300]) from error


class LocalServer(_Reader):
    """The local stack's server. Its log is written by the sandbox's CQL client."""

    is_real = False

    def __init__(self, address: str) -> None:
        super().__init__([address])
        self._timestamp_us = now_us()
        self._writing = WritingSession.connect(ScyllaSettings(contact_points=(address,), consistency="ONE"))
        # The server's cells get the timestamps that the client gives to their log rows.
        self._writing._session.timestamp_generator = lambda: self._timestamp_us
        self._client = LocalCql(self._writing, lambda _line: None, clock=lambda: self._timestamp_us)

    def execute(self, cql: str, timestamp_us: int) -> None:
        self._timestamp_us = timestamp_us
        try:
            self._client.run(statements_of(cql, "live"), "live")
        except LocalStackError as error:
            raise RefusedError(f"{error}: {cql[:300]}") from error

    def close(self) -> None:
        super().close()
        self._writing.close()
