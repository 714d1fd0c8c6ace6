"""The stack's CQL server: Apache Cassandra with an extension that lets clients use it like ScyllaDB.

The extension (`java/`) rewrites statements. ScyllaDB's system tables are in a keyspace of their own, which this module
creates when the server is ready. The simulator fills these tables and writes the CDC logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bridge.runtime.java import Java
from sandbox.stack.cql_wire import CqlConnection, Credentials
from sandbox.stack.jars import Jars
from sandbox.stack.ports import LOOPBACK
from sandbox.stack.scylla_versions import NEWEST, system_tables

SUPERUSER = Credentials("cassandra", "cassandra")

_KEYSPACE = "scylla_system_tables"  # StatementRewriter.java has the same name.
_PROBE_TIMEOUT_S = 30.0  # Creating a table on a busy machine takes seconds.

# The settings that differ from Cassandra's defaults, and those without a default. Limits are raised if ScyllaDB has
# none or if load tests would reach them. Waits that only a cluster needs are short.
_YAML = """\
cluster_name: scylla-cdc-bridge local stack
auto_bootstrap: false
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{seed}:{storage_port}"}}]
listen_address: {host}
rpc_address: {host}
storage_port: {storage_port}
native_transport_port: {port}
authenticator: {authenticator}
authorizer: AllowAllAuthorizer
data_file_directories: [{data}/data]
commitlog_directory: {data}/commitlog
hints_directory: {data}/hints
saved_caches_directory: {data}/saved_caches
cdc_raw_directory: {data}/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 1000ms
commitlog_segment_size: 64MiB
auto_snapshot: false
snapshot_before_compaction: false
incremental_backups: false
# Allows a TTL of 20 years to end after 2038, as on ScyllaDB.
storage_compatibility_mode: NONE
memtable_heap_space: 192MiB
memtable_offheap_space: 192MiB
file_cache_size: 64MiB
networking_cache_size: 64MiB
key_cache_size: 16MiB
counter_cache_size: 0MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_counter_writes: 4
concurrent_compactors: 1
native_transport_max_threads: 32
native_transport_max_frame_size: 256MiB
native_transport_max_request_data_in_flight: 512MiB
native_transport_max_request_data_in_flight_per_ip: 512MiB
max_mutation_size: 31MiB
batch_size_warn_threshold: 1GiB
batch_size_fail_threshold: 1GiB
unlogged_batch_across_partitions_warn_threshold: 100000
tombstone_warn_threshold: 1000000000
tombstone_failure_threshold: 1000000000
read_request_timeout: 30000ms
range_request_timeout: 60000ms
write_request_timeout: 30000ms
truncate_request_timeout: 60000ms
request_timeout: 60000ms
materialized_views_enabled: true
drop_compact_storage_enabled: false
"""

_LOGBACK = """\
<configuration scan="false">
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level [%thread] %logger{36} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="stdout"/></root>
</configuration>
"""

# The internals of Java 17 that Cassandra 5.0 needs.
_EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)


@dataclass(frozen=True, slots=True)
class CqlServer:
    """The CQL server in the folder `data`, for clients on `port`. With `password`, it requires a login.

    It shows the system tables of the ScyllaDB `version`.

    Several servers form a cluster if they have the same ports, different `host`s 127.0.0.x, and the first one's host as
    `seed`. Start each one after the previous one is ready.
    """

    data: Path
    log: Path
    port: int
    storage_port: int
    java: Java
    jars: Jars
    password: bool = False
    name: str = "cql"
    host: str = LOOPBACK
    seed: str = LOOPBACK
    heap_mib: int = 768
    version: str = NEWEST

    def prepare(self) -> None:
        """Write the configuration."""
        configuration = _YAML.format(
            host=self.host,
            seed=self.seed,
            port=self.port,
            storage_port=self.storage_port,
            data=self.data,
            authenticator="PasswordAuthenticator" if self.password else "AllowAllAuthenticator",
        )
        self._yaml.write_text(configuration, encoding="utf-8")
        self._logback.write_text(_LOGBACK, encoding="utf-8")

    def command(self) -> list[str]:
        """Return the server's command line."""
        properties = {
            "cassandra.config": self._yaml.as_uri(),
            "logback.configurationFile": str(self._logback),
            "cassandra.storagedir": str(self.data),
            "cassandra.custom_query_handler_class": "scyllacdcbridge.local.ScyllaQueryHandler",
            "scyllacdcbridge.scylla_version": self.version,
            # Also the time in which a joining server may find the others.
            "cassandra.ring_delay_ms": "100" if self.host == self.seed else "30000",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.initial_token_allocation": "random",
            "java.io.tmpdir": str(self.data),
            "java.security.manager": "allow",
            "java.net.preferIPv4Stack": "true",
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
        }
        return [
            *(self.java.command, "-Xms256m", f"-Xmx{self.heap_mib}m", "-Xss512k", "-XX:MaxDirectMemorySize=512m"),
            "-XX:+ExitOnOutOfMemoryError",
            f"-javaagent:{self.jars.jar('cql', 'jamm-')}",
            *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
            *(f"-D{key}={value}" for key, value in properties.items()),
            *("-cp", self.jars.class_path("cql"), "org.apache.cassandra.service.CassandraDaemon"),
        ]

    def problem(self) -> str | None:
        """Log in. At the first start, or with data of another version, create ScyllaDB's system tables."""
        try:
            with CqlConnection(
                self.host,
                self.port,
                credentials=SUPERUSER if self.password else None,
                timeout_s=_PROBE_TIMEOUT_S,
            ) as connection:
                connection.run("SELECT key FROM system.local")
                statements = list(system_tables(self.version))
                wanted = "\n".join(statements)
                if not self._made.exists() or self._made.read_text(encoding="utf-8") != wanted:
                    _make_system_tables(connection, statements)
                    self._made.write_text(wanted, encoding="utf-8")
        except OSError as error:
            return f"no good answer on port {self.port} ({error})"
        return None

    @property
    def _made(self) -> Path:
        # A table that a test has dropped (an older ScyllaDB lacks some) must stay dropped after a restart.
        return self.data / "system-tables-were-made"

    @property
    def _yaml(self) -> Path:
        return self.data / "cassandra.yaml"

    @property
    def _logback(self) -> Path:
        return self.data / "logback.xml"


def _make_system_tables(connection: CqlConnection, statements: Iterable[str]) -> None:
    connection.run(
        f"CREATE KEYSPACE IF NOT EXISTS {_KEYSPACE} "
        "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    connection.run(f"USE {_KEYSPACE}")
    for statement in statements:
        connection.run(statement)
