"""Connects the CQL driver to a cluster."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from cassandra import ConsistencyLevel, DriverException, UnresolvableContactPoints, UnsupportedOperation
from cassandra.auth import AuthProvider, PlainTextAuthenticator
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import ErrorMessage

from bridge.adapters.scylla.errors import raise_tls_problem, translate_error
from bridge.adapters.scylla.raw_protocol import LargeReadConnection, RawProtocolHandler
from bridge.adapters.tls import RenewingContext
from bridge.config.document import ScyllaSettings, Secret
from bridge.errors import RetriableError, StartupError

_exit_hook: Any = getattr(sys.modules.get("cassandra.io.libevreactor"), "_atexit_cleanup", None)
if _exit_hook is not None:
    # At process exit this hook waits for the driver's event loop, which sleeps until the timers of finished requests
    # expire; after 5 s the driver warns of an open session. It is not needed: commands close their sessions, and the
    # job ends without exit hooks.
    atexit.unregister(_exit_hook)


def connect_driver(settings: ScyllaSettings) -> tuple[Cluster, Session]:
    """Connect the driver once; rows of the session arrive as raw cells.

    Args:
        settings: contact points, credentials, TLS, timeouts and consistency.

    Raises:
        RetriableError: no contact point answers, or its name has no address; the message names them.
        StartupError: the cluster refuses the credentials, or has no data center of the configured name.
    """
    try:
        cluster = _make_cluster(settings)
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
        translated = translate_error(error, settings, "connecting")
        if isinstance(translated, RetriableError):
            raise_tls_problem(settings)
        raise translated from error
    session.client_protocol_handler = RawProtocolHandler
    return cluster, session


def _make_cluster(settings: ScyllaSettings) -> Cluster:
    endpoints = [_host_and_port(point) for point in settings.contact_points]
    # Without a name the policy takes the data center of the first contact point. It must be the writers' data center,
    # or reads with LOCAL_QUORUM miss what they write.
    nearby = DCAwareRoundRobinPolicy(local_dc=settings.local_datacenter or "")
    timeout_s = settings.request_timeout_ms / 1000
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(nearby),
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=timeout_s,
        row_factory=_keep_rows,
    )
    auth = None
    if settings.username is not None and settings.password is not None:
        # If the secret can't be read, fail here: an error in the driver's thread is harder to understand.
        settings.password.reveal("scylla.password")
        auth = _CurrentPassword(settings.username, settings.password)
    return Cluster(
        contact_points=endpoints,
        # Nodes do not publish their CQL port. The driver uses the first contact point's port for discovered nodes.
        port=endpoints[0][1],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=auth,
        # ScyllaDB's version. By default the driver tries version 5 first and logs a warning.
        protocol_version=4,
        # A resumed session neither shows nor verifies a certificate, and it belongs to a context that may be renewed.
        ssl_session_cache=None,
        ssl_context=RenewingContext.of(settings.tls, "scylla.tls") if settings.tls.enabled else None,
        schema_metadata_enabled=False,
        reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
        connect_timeout=timeout_s,
        control_connection_timeout=timeout_s,
        compression=False,
        connection_class=LargeReadConnection,
    )


class _CurrentPassword(AuthProvider):  # type: ignore[misc]  # the driver has no types
    """Reads the password again for each new connection."""

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def new_authenticator(self, host: str) -> PlainTextAuthenticator:
        return PlainTextAuthenticator(self._username, self._password.reveal("scylla.password"))


def _keep_rows(_names: object, rows: object) -> object:
    return rows


def _host_and_port(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return host.strip("[]"), int(port)
