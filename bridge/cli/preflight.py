"""Everything that must hold before the first byte is written: servers that answer and let us in, and captured tables.

Used by the job at its start and by `scylla-cdc-bridge validate --online`; writes nothing anywhere.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from bridge.adapters import kubernetes
from bridge.adapters.connect import Report, call_registry, open_kafka, open_registry, open_scylla
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.registry import registration
from bridge.adapters.scylla.change_log import CdcOffError, ChangeLog
from bridge.adapters.scylla.stream_metadata import ONE_REPLICA
from bridge.config.document import BridgeConfig, TableSettings
from bridge.errors import BridgeError, RetriableError, StartupError
from bridge.planning.table_watch import CdcOptions
from bridge.runtime.retry import retry_until_reachable
from schemas.cql.table import TableSchema
from schemas.errors import SchemaError
from schemas.record_schemas import key_schema, value_schema
from schemas.shapes import shape_of

T = TypeVar("T")
_IN_PODS: Final = "k8s://"
_STANDALONE: Final = "spark://"
_MASTER_WITHIN_S: Final = 5.0
_CLOSING: Final = ("spark.authenticate", "spark.network.crypto.enabled")
"""What has Spark's processes know each other, and encrypt what they send."""
_Off = tuple[TableSettings, str]
"""A table on which CDC is off, and that in words."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found.

    Attributes:
        tables: the schema of each configured table, in the order of the configuration.
        nodes: ScyllaDB nodes that are known.
    """

    tables: tuple[TableSchema, ...]
    nodes: int


def check(
    config: BridgeConfig,
    *,
    report: Report,
    warn: Report | None = None,
    resuming: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Preflight:
    """Look at ScyllaDB, Kafka, the registry and every table; everything that is wrong is said together.

    Servers that are not there yet are waited for, `startup.patience_s` in all, each being tried at least once. Wrong
    credentials are not tried again.

    Args:
        config: the job's configuration.
        report: gets a line for each try that failed and for each server that answers.
        warn: gets a line for each secret that is sent readable, and one for a network of Spark's that is open; None,
            `report` does.
        resuming: whether a table on which CDC is off will do if changes of it were published before: what its log
            still holds is to be read then.
        clock: monotonic seconds.

    Raises:
        StartupError: one or more problems, a line each.
    """
    deadline_s = clock() + config.startup.patience_s
    for words in (*_readable_secrets(config), *_open_network(config)):
        (warn or report)(words)
    for words in _starts_to_come(config, datetime.now(UTC)):
        report(words)
    problems: list[str] = []

    def attempt(step: Callable[[float], T]) -> T | None:
        try:
            return step(max(0.0, deadline_s - clock()))
        except StartupError as error:
            problems.append(str(error))
            return None

    off: list[_Off] = []
    found = attempt(lambda left_s: _tables(config, problems, off, report, left_s))
    admin = attempt(lambda left_s: _kafka(config, report, left_s))
    for table, words in off:
        if resuming and admin is not None and _has_progress(config, admin, table):
            report(f"{words}. Going on with what its log holds")
        else:
            problems.append(words)
    tables = () if found is None else found.tables
    attempt(lambda left_s: _registry(config, tables, problems, report, left_s))
    if config.spark.master.startswith(_STANDALONE):
        attempt(lambda left_s: _master(config, report, left_s))
    if config.spark.master.startswith(_IN_PODS) and kubernetes.ACCOUNT.exists():
        attempt(lambda left_s: _executors(config, report, left_s))
    if problems or found is None:
        raise StartupError("\n".join(problems))
    return found


def _readable_secrets(config: BridgeConfig) -> Iterator[str]:
    """What is sent for everyone on the way to read."""
    if config.scylla.username is not None and not config.scylla.tls.enabled:
        yield "scylla.password is sent readable; scylla.tls.enabled would encrypt it"
    if config.kafka.sasl.mechanism in ("PLAIN", "OAUTHBEARER") and not config.kafka.tls.enabled:
        yield f"{config.kafka.sasl.credentials}: sent readable; kafka.tls.enabled would encrypt it"
    endpoint = config.kafka.sasl.token_endpoint_url
    if endpoint is not None and not str(endpoint).startswith("https:"):
        yield "kafka.sasl.client_secret is sent readable; an https token_endpoint_url would encrypt it"
    has_identity = config.registry.username is not None or config.registry.token is not None
    if has_identity and config.registry.url.scheme != "https":
        yield "registry: credentials are sent readable; an https address would encrypt them"


def _open_network(config: BridgeConfig) -> Iterator[str]:
    """What is missing for Spark's processes to trust nobody else, where they are on several machines."""
    master, properties = config.spark.master, config.spark.properties
    if master.startswith("local") or all(str(properties.get(name)).lower() == "true" for name in _CLOSING):
        return
    # On Kubernetes and YARN Spark makes a secret of its own.
    secret = (
        ", and spark.authenticate.secret in the spark-defaults.conf of the folder SPARK_CONF_DIR, here and on the "
        "cluster's machines"
        if master.startswith(_STANDALONE)
        else ""
    )
    yield (
        "driver and executors take orders from whoever reaches their ports, and send each other changes readable; set "
        f"{' and '.join(_CLOSING)} to true under spark.properties{secret} (docs/security.md)"
    )


def _starts_to_come(config: BridgeConfig, now: datetime) -> Iterator[str]:
    """Tables that would be refused when they have no progress yet: by the servers' time, later on."""
    for table in config.tables:
        start = table.start or config.reading.start
        if isinstance(start, datetime) and start > now:
            words = "is still to come: without progress it is refused"
            yield f"table {table.name}: its start, {start.isoformat()}, {words}"


def _tables(config: BridgeConfig, problems: list[str], off: list[_Off], report: Report, patience_s: float) -> Preflight:
    session = open_scylla(config, report=report, patience_s=patience_s)
    try:
        nodes = session.node_count
        report(f"ScyllaDB at {session.address} answers ({nodes} node{'' if nodes == 1 else 's'} known)")
        if nodes > 1 and config.scylla.metadata_consistency in ONE_REPLICA:
            report(
                f"scylla.metadata_consistency: {config.scylla.metadata_consistency} is taken for QUORUM, because a "
                "node that lags behind the others would hide a generation"
            )
        log = ChangeLog(session)
        schemas = []
        for table in config.tables:
            try:
                try:
                    schema = log.check_captured(table.keyspace, table.table)
                except CdcOffError as error:
                    schema = _with_log_left(log, table, error)
                    off.append((table, str(error)))
                log.check_readable(table.keyspace, table.table)
                # A column type that can't be carried is better known now than at the first change.
                output = config.output_of(table).options(config.name)
                key_schema(schema, output)
                value_schema(schema, output)
                options = log.cdc_options(table.keyspace, table.table)
                if options is not None:
                    for advice in shape_of(output.shape).advice(options):
                        report(f"table {schema.full_name}: {advice}")
                check_ttl(options, config.reading.confidence_ms, schema.full_name)
            except RetriableError as error:
                raise StartupError(str(error)) from error
            except (BridgeError, SchemaError) as error:
                problems.append(str(error))
            else:
                schemas.append(schema)
    finally:
        session.close()
    return Preflight(tuple(schemas), nodes)


def _with_log_left(log: ChangeLog, table: TableSettings, off: CdcOffError) -> TableSchema:
    """The schema of a table whose CDC is off but whose log is still there; without a log, `off` says it all."""
    try:
        return log.check_captured(table.keyspace, table.table, even_if_off=True)
    except RetriableError:
        raise
    except StartupError:
        raise off from None


def check_ttl(options: CdcOptions | None, confidence_ms: int, table: str) -> None:
    """Does the log keep changes for longer than they are waited for?

    Raises:
        StartupError: it does not, so that each would expire unread.
    """
    ttl_s = 0 if options is None else options.ttl_s
    if ttl_s and ttl_s * 1000 <= confidence_ms:
        raise StartupError(
            f"table {table}: its log keeps changes for {ttl_s} s (cdc option 'ttl'), and they are read when they are "
            f"{confidence_ms / 1000:g} s old (reading.confidence_ms): all would expire unread. Raise the one, or lower "
            "the other"
        )


def _kafka(config: BridgeConfig, report: Report, patience_s: float) -> KafkaAdmin:
    admin = open_kafka(config, report=report, patience_s=patience_s)
    report(f"Kafka at {', '.join(config.kafka.bootstrap_servers)} answers")
    topics = {topic for table in config.tables for topic in (config.topic_of(table), config.progress_topic_of(table))}
    try:
        settings = admin.topic_settings(sorted(topics))
    except RetriableError as error:
        raise StartupError(str(error)) from error
    for table in config.tables:
        for words in ill_kept(config, table, settings):
            report(words)
    return admin


def ill_kept(config: BridgeConfig, table: TableSettings, settings: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Topics, made by others, in which Kafka would not keep what is written there; `settings` by topic."""
    progress, change = config.progress_topic_of(table), config.topic_of(table)
    policy = settings.get(progress, {}).get("cleanup.policy", "compact")
    if "delete" in policy:
        yield (
            f"progress topic {progress}: its cleanup.policy is {policy}: Kafka deletes the cursors of a table which "
            "stands still for longer than its retention; set it to compact"
        )
    policy, shape = settings.get(change, {}).get("cleanup.policy", "delete"), config.output_of(table).shape
    if "compact" in policy and not shape_of(shape).by_row:
        yield (
            f"change topic {change}: its cleanup.policy is {policy}, so that Kafka keeps each key's last change alone; "
            f"with the shape {shape} the others are needed as well: set it to delete, or take another shape"
        )


def _has_progress(config: BridgeConfig, admin: KafkaAdmin, table: TableSettings) -> bool:
    topic = config.progress_topic_of(table)
    with CommittedReader(config.kafka, client_id="scylla-cdc-bridge-preflight") as reader:
        return any(reader.end(topic, lane) > 0 for lane in range(admin.partitions(topic)))


def _master(config: BridgeConfig, report: Report, patience_s: float) -> None:
    """Does a master of the standalone cluster answer? If none does, Spark gives up after a minute and names none."""
    addresses = config.spark.master.removeprefix(_STANDALONE)

    def ask() -> str:
        problems = []
        for address in addresses.split(","):
            host, _, port = address.rpartition(":")
            if not port.isdigit():
                raise StartupError(f"spark.master: {address!r} has no port, as in spark://{address}:7077")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _MASTER_WITHIN_S).close()
            except OSError as error:
                problems.append(f"{address}: {error}")
            else:
                return address
        raise RetriableError("; ".join(problems))

    answering = retry_until_reachable("spark.master", config.spark.master, ask, patience_s=patience_s, report=report)
    report(f"Spark's master at {answering} answers")


def _executors(config: BridgeConfig, report: Report, patience_s: float) -> None:
    """May this pod make the executors' pods? If not, Spark would only wait for them for ever."""
    server = config.spark.master.removeprefix(_IN_PODS)
    address = server if "://" in server else f"https://{server}"
    namespace = str(config.spark.properties.get("spark.kubernetes.namespace", "default"))
    ask = partial(kubernetes.missing_pod_verbs, address, namespace)
    missing = retry_until_reachable(
        "Kubernetes", address, ask, patience_s=patience_s, report=report, setting="spark.master"
    )
    if missing:
        raise StartupError(
            f"Kubernetes at {address}: the pod's service account may not {', '.join(missing)} pods in the namespace "
            f"{namespace}, which executors need; bind a Role with these verbs to it (the chart does with rbac.create)"
        )
    report(f"Kubernetes at {address} lets us make executors in the namespace {namespace}")


def _registry(
    config: BridgeConfig, tables: Sequence[TableSchema], problems: list[str], report: Report, patience_s: float
) -> None:
    registry = open_registry(config, report=report, patience_s=patience_s)
    try:
        report(f"Schema registry at {registry.address} answers")
        for table in tables:
            for needed in registration.needed_by(config, table):
                # Refused now, a schema is known by name before the first change waits for it.
                attempt = partial(registration.check, registry, config.registry, needed)
                try:
                    call_registry(attempt)
                except (StartupError, RetriableError) as error:
                    problems.append(f"{needed.table}: {error}")
    finally:
        registry.close()
