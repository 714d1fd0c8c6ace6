"""The stack's Kafka: one KRaft node that is both broker and controller."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from bridge.runtime.java import Java
from sandbox.errors import LocalStackError
from sandbox.stack.jars import Jars
from sandbox.stack.ports import LOOPBACK

_PROBE_TIMEOUT_S = 2.0
_METADATA, _METADATA_VERSION = 3, 1
_BRIEFLY = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""JVM options for a program that runs for two seconds, while the other servers start on the same cores."""

_LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="warn">
  <Appenders>
    <Console name="stderr" target="SYSTEM_ERR"><PatternLayout pattern="%d %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers><Root level="info"><AppenderRef ref="stderr"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """Kafka in the folder `data`, for clients on `port`."""

    data: Path
    log: Path
    port: int
    controller_port: int
    java: Java
    jars: Jars
    name: str = "kafka"

    def prepare(self) -> None:
        """Write the configuration. At the first start, also format the storage."""
        self._log4j.write_text(_LOG4J, encoding="utf-8")
        self._properties.write_text(self._configuration(), encoding="utf-8")
        if not self._storage.joinpath("meta.properties").is_file():
            self._format()

    def command(self) -> list[str]:
        """Return the broker's command line."""
        return [*self._java_command(), "kafka.Kafka", str(self._properties)]

    def problem(self) -> str | None:
        """Read the cluster's metadata: the broker accepts topics as soon as the metadata lists the broker itself."""
        try:
            brokers = count_brokers(self.port)
        except OSError as error:
            return f"no answer on port {self.port} ({error})"
        return None if brokers else "the broker has not joined its cluster yet"

    @property
    def _storage(self) -> Path:
        return self.data / "log"

    @property
    def _properties(self) -> Path:
        return self.data / "server.properties"

    @property
    def _log4j(self) -> Path:
        return self.data / "log4j2.xml"

    def _java_command(self, *options: str) -> list[str]:
        return [
            *(self.java.command, *options, "-Xms128m", "-Xmx384m", f"-Dlog4j2.configurationFile={self._log4j}"),
            *("-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true", "-cp", self.jars.class_path("kafka")),
        ]

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if cluster_id.startswith("-"):
            cluster_id = "A" + cluster_id[1:]  # The tool would parse it as an option.
        options = ["--config", str(self._properties), "--cluster-id", cluster_id, "--standalone", "--ignore-formatted"]
        answer = subprocess.run(
            [*self._java_command(*_BRIEFLY), "kafka.tools.StorageTool", "format", *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if answer.returncode != 0:
            message = f"Kafka's storage in {self._storage} could not be formatted:\n{answer.stdout}{answer.stderr}"
            raise LocalStackError(message)

    def _configuration(self) -> str:
        listener, controller = f"{LOOPBACK}:{self.port}", f"{LOOPBACK}:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": controller,
            "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
            # With --standalone, the formatting tool reads the controller's address here.
            "advertised.listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._storage),
            "auto.create.topics.enable": "false",
            "delete.topic.enable": "true",
            # Few partitions of the internal topics: the first use waits mostly for their creation.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "8",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Abort a transaction within 1 s of its timeout. The default checks every 10 s.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.retention.hours": str(24 * 30),
            "message.max.bytes": str(64 * 1024 * 1024),
            "replica.fetch.max.bytes": str(64 * 1024 * 1024),
            "socket.request.max.bytes": str(256 * 1024 * 1024),
            # A killed broker can join again only after its old session has expired (9 s by default).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "num.network.threads": "2",
            "num.io.threads": "4",
            # The default of 128 MB would be a third of this heap.
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def count_brokers(port: int) -> int:
    """Return the number of brokers in the cluster of the Kafka on a loopback port.

    Raises:
        OSError: no answer within 2 s, or an answer that is not Kafka's.
    """
    correlation, client = 1, b"bridge-local"
    # An empty list of topics.
    body = struct.pack(">hhih", _METADATA, _METADATA_VERSION, correlation, len(client)) + client + struct.pack(">i", 0)
    with socket.create_connection((LOOPBACK, port), timeout=_PROBE_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answer:
            head = answer.read(12)
    if len(head) < 12:  # Length, correlation id, number of brokers: 4 bytes each.
        message = "the connection was closed"
        raise OSError(message)
    _, answered, brokers = struct.unpack(">iii", head)
    if answered != correlation:
        message = "the server is not Kafka"
        raise OSError(message)
    return int(brokers)
