"""Connects to the servers of a configuration, with retries, and translates the registry's errors into the bridge's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.registry.access import BearerToken, Credentials, Hints, Identity, Tls
from bridge.adapters.registry.client import Registry, SchemaIdStore
from bridge.adapters.scylla.session import CqlSession
from bridge.config.document import BridgeConfig, RegistrySettings
from bridge.errors import RetriableError, StartupError
from bridge.runtime import log_setup
from bridge.runtime.background import run_interruptibly
from bridge.runtime.retry import retry_until_reachable
from schemas.errors import RegistryAccessError, RegistryError, UnregisteredSchemaError

T = TypeVar("T")
Report = Callable[[str], None]

PING_TIMEOUT_S = 5.0
_REGISTRY_URL: Final = "registry.url"

_CORRECTABLE: Final = (RegistryAccessError, UnregisteredSchemaError)
"""Errors that an operator can correct while the job runs."""


def open_scylla(config: BridgeConfig, *, report: Report, patience_s: float | None = None) -> CqlSession:
    """Connect to ScyllaDB.

    Args:
        config: the job's configuration.
        report: receives one line for each failed try.
        patience_s: how long to try, in s; None for `startup.patience_s`.

    Raises:
        StartupError: no node answers within that time, or the credentials are wrong.
    """

    def connect() -> CqlSession:
        with log_setup.silence_library("cassandra"):
            return CqlSession.connect(config.scylla)

    address = ", ".join(config.scylla.contact_points)
    setting, patience_s = "scylla.contact_points", _patience_or_default(config, patience_s)
    return retry_until_reachable("ScyllaDB", address, connect, patience_s=patience_s, report=report, setting=setting)


def open_kafka(config: BridgeConfig, *, report: Report, patience_s: float | None = None) -> KafkaAdmin:
    """Connect an administration client to Kafka.

    Args:
        config: the job's configuration.
        report: receives one line for each failed try.
        patience_s: how long to try, in s; None for `startup.patience_s`.

    Raises:
        StartupError: no broker answers within that time, or the brokers refuse the login.
    """
    admin = KafkaAdmin(config.kafka)

    def ping() -> KafkaAdmin:
        with log_setup.silence_library("librdkafka"):
            run_interruptibly(lambda: admin.ping(PING_TIMEOUT_S))
        return admin

    address = ", ".join(config.kafka.bootstrap_servers)
    setting, patience_s = "kafka.bootstrap_servers", _patience_or_default(config, patience_s)
    return retry_until_reachable("Kafka", address, ping, patience_s=patience_s, report=report, setting=setting)


def open_registry(config: BridgeConfig, *, report: Report, patience_s: float | None = None) -> Registry:
    """Connect to the schema registry.

    Args:
        config: the job's configuration.
        report: receives one line for each failed try.
        patience_s: how long to try, in s; None for `startup.patience_s`.

    Raises:
        StartupError: the registry does not answer within that time, or refuses the credentials.
    """
    registry = call_registry(lambda: make_registry(config.registry))

    def ping() -> Registry:
        call_registry(registry.ping)
        return registry

    what, address, patience_s = "Schema registry", registry.address, _patience_or_default(config, patience_s)
    return retry_until_reachable(what, address, ping, patience_s=patience_s, report=report, setting=_REGISTRY_URL)


def make_registry(settings: RegistrySettings, known: SchemaIdStore | None = None) -> Registry:
    """Make a client of the schema registry; it reads the password or token again whenever the registry refuses it.

    Nothing is sent in this call.

    Args:
        settings: address, credentials and TLS of the registry.
        known: a store of schema ids, read before the registry is asked; None for no store.

    Raises:
        StartupError: a secret can't be read.
        RegistryError: the address, the credentials or the TLS files are unusable.
    """
    key_password = settings.client_key_password
    tls = Tls(
        ca_file=settings.ca_file,
        certificate_file=settings.client_certificate_file,
        key_file=settings.client_key_file,
        key_password=None if key_password is None else partial(key_password.reveal, "registry.client_key_password"),
    )
    timeout_s = settings.request_timeout_ms / 1000
    return Registry(
        str(settings.url), auth=_auth(settings), tls=tls, timeout_s=timeout_s, known=known, hints=_hints(settings)
    )


def _hints(settings: RegistrySettings) -> Hints:
    if settings.token is not None:
        credentials = "registry.token"
    elif settings.username is not None:
        credentials = "registry.username and registry.password"
    else:
        credentials = "registry.username and registry.password, or registry.token"
    return Hints(credentials, "registry.ca_file", "registry.client_certificate_file", _REGISTRY_URL)


def _auth(settings: RegistrySettings) -> Callable[[], Identity] | None:
    token, username, password = settings.token, settings.username, settings.password
    if token is not None:
        cluster = settings.logical_cluster or ""
        return lambda: BearerToken(token.reveal("registry.token").strip(), cluster, settings.identity_pool)
    if username is not None and password is not None:
        return lambda: Credentials(username, password.reveal("registry.password"))
    return None


def call_registry(call: Callable[[], T]) -> T:
    """The result of a call to the registry, with its errors translated.

    Raises:
        RetriableError: the registry did not answer, or is busy.
        StartupError: the registry refuses the request, or the server is no registry.
    """
    try:
        return call()
    except RegistryError as error:
        if error.retriable:
            raise RetriableError(str(error)) from error
        raise StartupError(str(error)) from error


def call_registry_while_running(call: Callable[[], T]) -> T:
    """The result of a call to the registry while the job runs; errors that an operator can correct are retriable.

    Raises:
        RetriableError: the registry did not answer, or refuses the credentials (secrets and certificates are not always
            rotated on both sides at the same time), or lacks a schema that another system registers.
        StartupError: the registry refuses the schema, or the server is no registry.
    """
    try:
        return call_registry(call)
    except StartupError as error:
        cause = error.__cause__
        if isinstance(cause, RegistryError) and not isinstance(cause, _CORRECTABLE):
            raise
        # This includes a secret that can't be read: its file may be about to be replaced.
        raise RetriableError(str(error)) from error


def _patience_or_default(config: BridgeConfig, patience_s: float | None) -> float:
    return config.startup.patience_s if patience_s is None else patience_s
