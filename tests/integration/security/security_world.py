"""Servers that let nobody in without certificates, logins and rights, and what the bridge's user is allowed there."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.cli import main
from bridge.config.document import KafkaSettings, ScyllaSettings
from bridge.model.times import UnixMicros, UnixMillis
from bridge.runtime.java import find_java
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, mark_tablets
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack import processes, server
from sandbox.stack.cql_server import SUPERUSER
from sandbox.stack.jars import Jars
from sandbox.stack.ports import LOOPBACK, free_ports
from sandbox.stack.registry_server import RegistryServer
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.integration.support.running import wait_for
from tests.integration.support.secure_servers import (
    USER,
    Certificates,
    Door,
    SecureCql,
    SecureKafka,
    TokenIssuer,
    closing,
)

SECOND = 1_000_000
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
STAND_INS = ("scylla_system_tables.scylla_keyspaces", "scylla_system_tables.scylla_tables")
"""Where the local stack keeps what is in ScyllaDB's `system_schema`, which every role may read."""


@dataclass(frozen=True)
class Right:
    """A row of one of the documented lists, with the place holders of names still in it."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)

    def filled(self, name: str, keyspace: str, table: str = "t") -> tuple[str, ...]:
        return tuple(word.format(name=name, keyspace=keyspace, table=table, subject="[^/]+") for word in self.words)


def documented(heading: str, pattern: str) -> list[Right]:
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n#")[0]
    return [Right(found) for found in re.findall(pattern, section, re.MULTILINE)]


ACLS = documented("Kafka", r"^\| `(\w+)` \| ([\w ]+) \| `([^`]+)` \|")
GRANTS = documented("ScyllaDB", r"^\| `(SELECT) ON ([^`]+)` \| ([\w ]+):")
REQUESTS = documented("Schema registry", r"^\| `(GET|POST) ([^`]+)` \|")
BASE_TABLE = "{keyspace}.{table}"
"""What newer releases of ScyllaDB look at, and Cassandra does not."""


@dataclass
class World:
    """The servers, who may come in, and what they must not learn of each other."""

    folder: Path
    certificates: Certificates
    kafka: SecureKafka
    cql: SecureCql
    registry: RegistryServer
    door: Door
    issuer: TokenIssuer
    passwords: dict[str, str]
    superuser: WritingSession = field(init=False)
    granted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        address = f"{LOOPBACK}:{self.cql.port}"
        password = {"file": self.secret("superuser", SUPERUSER.password)}
        settings = {"contact_points": address, "username": SUPERUSER.user, "password": password, "consistency": "ONE"}
        self.superuser = WritingSession.connect(ScyllaSettings.model_validate(settings))
        self.execute(f"CREATE ROLE {USER} WITH LOGIN = true AND PASSWORD = '{self.passwords['scylla']}'")
        self.admin = AdminClient({"bootstrap.servers": self.broker})
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.set_kafka_password(mechanism, self.passwords[mechanism])

    @property
    def broker(self) -> str:
        """The listener of the tests themselves."""
        return f"{LOOPBACK}:{self.kafka.port}"

    def secret(self, name: str, value: str | None = None) -> str:
        path = self.folder / f"secret-{name}"
        if value is not None or not path.exists():
            path.write_text((self.passwords[name] if value is None else value) + "\n")
        return str(path)

    def execute(self, *statements: str) -> None:
        for cql in statements:
            self.superuser.execute(cql)

    def set_kafka_password(self, mechanism: str, password: str) -> None:
        info = ScramCredentialInfo(getattr(ScramMechanism, mechanism.replace("-", "_")), 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result(30)

    def tls(self, **more: Any) -> dict[str, Any]:
        return {"enabled": True, "ca_file": str(self.certificates.authority.file), **more}

    def mutual(self, **more: Any) -> dict[str, Any]:
        shown = self.certificates.client
        files = {"client_certificate_file": str(shown.certificate), "client_key_file": str(shown.key)}
        return self.tls(**files, **more)

    def login(self, mechanism: str) -> dict[str, Any]:
        """The sections of `kafka` for a way in."""
        entry: dict[str, Any] = {"bootstrap_servers": self.kafka.address("LOGIN"), "tls": self.tls()}
        match mechanism:
            case "mutual":
                return {"bootstrap_servers": self.kafka.address("MUTUAL"), "tls": self.mutual()}
            case "token":
                sasl = {"mechanism": "OAUTHBEARER", "token": {"file": self.secret("token", self.issuer.token())}}
            case "OIDC":
                sasl = {
                    "mechanism": "OAUTHBEARER",
                    "token_endpoint_url": self.issuer.url,
                    "token_endpoint_ca_file": str(self.certificates.authority.file),
                    "client_id": USER,
                    "client_secret": {"file": self.secret("OIDC")},
                }
            case _:
                sasl = {"mechanism": mechanism, "username": USER, "password": {"file": self.secret(mechanism)}}
        return {**entry, "sasl": sasl}

    def mapping(self, name: str, keyspace: str) -> dict[str, Any]:
        """A configuration in which everything is right."""
        return {
            "name": name,
            "scylla": {
                "contact_points": f"{LOOPBACK}:{self.cql.port}",
                "username": USER,
                "password": {"file": self.secret("scylla")},
                "tls": self.mutual(),
            },
            "kafka": self.login("SCRAM-SHA-512") | {"transaction_timeout_ms": 20_000, "partitions": 2},
            "registry": {
                "url": self.door.url,
                "username": USER,
                "password": {"file": self.secret("registry")},
                "ca_file": str(self.certificates.authority.file),
            },
            "tables": [f"{keyspace}.t"],
            "startup": {"patience_s": 30},
        }

    def allow_kafka(self, rights: Sequence[Right], name: str, keyspace: str) -> None:
        """The bridge's user may do just this."""
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for done in self.admin.delete_acls([everything]).values():
            done.result(30)
        wanted = []
        for operation, kind, resource in (right.filled(name, keyspace) for right in rights):
            prefix = resource.removesuffix("*")
            pattern = ResourcePatternType.LITERAL if prefix == resource else ResourcePatternType.PREFIXED
            what = getattr(ResourceType, kind.upper().replace(" ", "_"))
            how = getattr(AclOperation, operation.upper())
            wanted.append(AclBinding(what, prefix, pattern, f"User:{USER}", "*", how, AclPermissionType.ALLOW))
        for done in self.admin.create_acls(wanted).values():
            done.result(30)
        # The authorizer reads them from the log of the cluster's metadata, a moment later.
        wait_for("the ACLs", lambda: len(self.admin.describe_acls(everything).result(30)) == len(wanted), 30)

    def allow_cql(self, rights: Sequence[Right], keyspace: str) -> None:
        wanted = {*STAND_INS, *(right.filled("", keyspace)[1] for right in rights)}
        self.execute(*(f"REVOKE SELECT ON {one} FROM {USER}" for one in self.granted - wanted))
        self.execute(*(f"GRANT SELECT ON {one} TO {USER}" for one in wanted - self.granted))
        self.granted = wanted

    def allow_registry(self, rights: Sequence[Right]) -> None:
        patterns = [f"{method} {path}" for method, path in (right.filled("", "") for right in rights)]
        self.door.allowed = lambda method, path: any(re.fullmatch(one, f"{method} {path}") for one in patterns)

    def allow_all(self, name: str, keyspace: str) -> None:
        self.allow_kafka(ACLS, name, keyspace)
        self.allow_cql(GRANTS, keyspace)
        self.allow_registry(REQUESTS)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=10).topics)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, shared_jars: Path) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("secure")
    made = Certificates.make(folder)
    java = find_java()
    jars = Jars(shared_jars, java)
    jars.ensure(print)
    kafka_port, controller, *listeners, cql, storage, registry_port = free_ports(9)
    names = ("scylla", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OIDC", "registry")
    passwords = {name: f"{name}-{secrets.token_hex(12)}" for name in names}
    bearer = secrets.token_hex(16)
    issuer = TokenIssuer(folder / "keys.json", made.server, (USER, passwords["OIDC"]))
    kafka = SecureKafka(
        folder / "kafka",
        folder / "kafka.log",
        kafka_port,
        controller,
        java,
        jars,
        certificates=made,
        ports=dict(zip(("LOGIN", "MUTUAL", "EXPIRED", "ELSEWHERE"), listeners, strict=True)),
        password=passwords["PLAIN"],
        keys=folder / "keys.json",
    )
    cql_server = SecureCql(
        folder / "cql", folder / "cql.log", cql, storage, java, jars, password=True, certificates=made
    )
    registry = RegistryServer(folder / "registry", folder / "registry.log", registry_port, java, jars)
    servers: list[server.Server] = [kafka, cql_server, registry]
    door = Door(registry.url, made.server, (USER, passwords["registry"]), bearer)
    # Formatting Kafka's storage takes as long as its start: the others need not wait for it.
    with ThreadPoolExecutor(3) as pool:
        started = list(pool.map(server.launch, servers))
    try:
        for one, process in zip(servers, started, strict=True):
            server.wait_ready(one, process, timeout_s=180)
        with closing(issuer, door):
            found = World(folder, made, kafka, cql_server, registry, door, issuer, passwords)
            yield found
            found.superuser.close()
    finally:
        for process in started:
            processes.kill(process)


def table(keyspace: str) -> TableSchema:
    columns = (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("bigint"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    )
    return TableSchema(keyspace, "t", columns)


@pytest.fixture(scope="module")
def written(world: World) -> list[ExpectedChange]:
    """A table with vnodes and changes of the last minute, and one with tablets and none."""
    cluster = SimulatedCluster(world.superuser, seed=6)
    cluster.reset()
    now_us = system_clock_us()
    for ago_s in (60, 30):
        cluster.add_generation(UnixMillis((now_us - ago_s * SECOND) // 1000))
    simulated = SimulatedTable(table("sec"))
    simulated.create(world.superuser)
    simulator = Simulator(world.superuser, cluster, [simulated], seed=6)
    start_us, until_us = UnixMicros(now_us - 55 * SECOND), UnixMicros(now_us - 5 * SECOND)
    workload = Workload(simulated.table_schema, seed=6, keys=50)
    simulator.load(simulated, spread(workload, count=300, start_us=start_us, until_us=until_us))
    SimulatedTable(table("sec_tablets")).create(world.superuser)
    mark_tablets(world.superuser, "sec_tablets")
    tablets = SimulatedTablets(world.superuser, "sec_tablets", "t", seed=6)
    tablets.create(UnixMillis((now_us - 60 * SECOND) // 1000), 2)
    return list(simulator.oracle)


def validate(mapping: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """`validate --online` and the lines of its errors."""
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    capsys.readouterr()
    status = main.main(["validate", "-c", str(path), "--online"])
    return status, capsys.readouterr().err.splitlines()


def around_trip(settings: dict[str, Any], name: str) -> bytes | None:
    """Do what a lane does: create topics, open its id, read its progress, publish a transaction, and read it back."""
    kafka = KafkaSettings.model_validate(settings)
    admin = KafkaAdmin(kafka)
    admin.ping()
    progress = f"{name}.progress.sec.t"
    admin.ensure_topic("sec.t", 1, {})
    admin.ensure_topic(progress, 1, {"cleanup.policy": "compact"})
    admin.ensure_topic(progress, 2, {}, grow=True)
    producer = TransactionalProducer(kafka, f"{name}.sec.t.0", known_topic=progress)
    try:
        producer.init()
        with CommittedReader(kafka) as reader:
            reader.last_record(progress, 0, 20)
            publish(producer, progress)
            assert admin.has_records("sec.t")
            found = reader.last_record(progress, 0, 20)
            return None if found is None else found.value
    finally:
        producer.close()


def publish(producer: TransactionalProducer, progress: str) -> None:
    producer.begin()
    producer.produce("sec.t", b"key", b"value")
    producer.produce(progress, b"key", b"cursor", partition=0)
    producer.commit()


def without_topics(world: World) -> None:
    doomed = [topic for topic in world.topics() if not topic.startswith("__")]
    if doomed:
        for done in world.admin.delete_topics(doomed, operation_timeout=30).values():
            done.result(30)
        wait_for("the topics' end", lambda: not world.topics() & set(doomed), 30)
