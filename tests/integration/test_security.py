"""Real servers that let nobody in without certificates, logins and rights, and the bridge in front of them."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
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
from bridge.adapters.registry.client import Registry
from bridge.cli import main
from bridge.config.document import KafkaSettings, ScyllaSettings
from bridge.errors import AccessError, BridgeError, StartupError
from bridge.model.times import UnixMicros, UnixMillis
from bridge.runtime.java import find_java
from sandbox.cql.writing_session import WritingSession
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, mark_tablets
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.pacing import spread, system_clock_us
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.writer import Simulator
from sandbox.stack import processes, server
from sandbox.stack.cql_server import SUPERUSER
from sandbox.stack.jars import Jars
from sandbox.stack.ports import LOOPBACK, free_ports
from sandbox.stack.registry_server import RegistryServer
from sandbox.verify.checker import Checker
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.integration.running import BridgeJob, wait_for
from tests.integration.secure_servers import (
    REAUTHENTICATE_MS,
    USER,
    Certificates,
    Door,
    SecureCql,
    SecureKafka,
    TlsFront,
    TokenIssuer,
    closing,
)

pytestmark = pytest.mark.integration

SECOND = 1_000_000
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
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
    """What a lane does: make topics, open its id, read where it stands, publish a transaction, read it back."""
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "token", "OIDC", "mutual"])
def test_every_way_in(world: World, mechanism: str) -> None:
    """A lane's whole work is done over each way into Kafka; the job below has the remaining one."""
    world.allow_kafka(ACLS, "ways", "sec")
    assert around_trip(world.login(mechanism), "ways") == b"cursor"


REFUSED: dict[str, tuple[Callable[[World, dict[str, Any]], Any], str]] = {
    "kafka, wrong CA": (
        lambda world, c: c["kafka"]["tls"].update(ca_file=str(world.certificates.stranger.file)),
        "Kafka at {kafka}: its certificate is from an authority that kafka.tls.ca_file does not name",
    ),
    "kafka, expired": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("EXPIRED"), sasl={}),
        "Kafka at {kafka}: its certificate has expired; see kafka.tls",
    ),
    "kafka, wrong host": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("ELSEWHERE"), sasl={}),
        "Kafka at {kafka}: its certificate is for another host; see kafka.tls",
    ),
    "kafka, wrong password": (
        lambda world, c: c["kafka"]["sasl"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "Kafka at {kafka} refuses the login; see kafka.sasl.username and kafka.sasl.password",
    ),
    "kafka, wrong client secret": (
        lambda world, c: c.update(kafka=_with_secret(world.login("OIDC"), world.secret("wrong", "not-this-one"))),
        "Kafka at {kafka} refuses the login; see kafka.sasl.token_endpoint_url, client_id and client_secret",
    ),
    "kafka, expired token": (
        lambda world, c: c["kafka"].update(
            sasl={"mechanism": "OAUTHBEARER", "token": {"file": world.secret("old", world.issuer.token(life_s=-60))}}
        ),
        "kafka.sasl.token: the token has expired",
    ),
    "kafka, no client certificate": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("MUTUAL"), sasl={}),
        "Kafka at {kafka}: it does not accept a client without a certificate; set kafka.tls.client_certificate_file",
    ),
    "kafka, no TLS": (
        lambda world, c: c["kafka"].update(tls={}),
        "Kafka at {kafka}: it speaks TLS; set kafka.tls.enabled",
    ),
    "scylla, wrong CA": (
        lambda world, c: c["scylla"]["tls"].update(ca_file=str(world.certificates.stranger.file)),
        "ScyllaDB at {scylla}: its certificate is from an authority that scylla.tls.ca_file does not name",
    ),
    "scylla, expired": (
        lambda world, c: _behind(world, c, "expired"),
        "ScyllaDB at {scylla}: its certificate has expired; see scylla.tls",
    ),
    "scylla, wrong host": (
        lambda world, c: _behind(world, c, "elsewhere"),
        "ScyllaDB at {scylla}: its certificate is for another host; see scylla.tls",
    ),
    "scylla, wrong password": (
        lambda world, c: c["scylla"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "ScyllaDB at {scylla} refused the username or password (scylla.username, scylla.password)",
    ),
    "scylla, a stranger's certificate": (
        lambda world, c: c["scylla"].update(tls=_strangers(world)),
        "ScyllaDB at {scylla}: it does not accept the certificate in scylla.tls.client_certificate_file",
    ),
    "scylla, key file missing": (
        lambda _world, c: c["scylla"]["tls"].update(client_key_file="/nowhere/key.pem"),
        "scylla.tls.client_certificate_file: ",
    ),
    "registry, wrong CA": (
        lambda world, c: c["registry"].update(ca_file=str(world.certificates.stranger.file)),
        "schema registry {registry}: ",
    ),
    "registry, wrong password": (
        lambda world, c: c["registry"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "schema registry {registry}: ",
    ),
}


def _with_secret(kafka: dict[str, Any], path: str) -> dict[str, Any]:
    return {**kafka, "sasl": {**kafka["sasl"], "client_secret": {"file": path}}}


def _strangers(world: World) -> dict[str, Any]:
    shown = world.certificates.strangers_client
    return world.tls(client_certificate_file=str(shown.certificate), client_key_file=str(shown.key))


def _behind(world: World, mapping: dict[str, Any], certificate: str) -> TlsFront:
    front = TlsFront((LOOPBACK, world.cql.port), getattr(world.certificates, certificate))
    mapping["scylla"]["contact_points"] = front.address
    return front


@pytest.mark.parametrize("case", REFUSED)
def test_refused(
    world: World, written: list[ExpectedChange], tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """Each is one line that names server and setting, at once, with exit status 2; nothing is made, no secret told."""
    assert written
    change, words = REFUSED[case]
    world.allow_all("refused", "sec")
    mapping = world.mapping("refused", "sec")
    topics = world.topics()
    front = change(world, mapping)
    began_s = time.monotonic()
    status, lines = validate(mapping, tmp_path, capsys)
    took_s = time.monotonic() - began_s
    if isinstance(front, TlsFront):
        front.close()
    assert status == 2
    assert len(lines) == 1, lines
    expected = words.format(
        kafka=mapping["kafka"]["bootstrap_servers"],
        scylla=mapping["scylla"]["contact_points"],
        registry=mapping["registry"]["url"],
    )
    assert lines[0].startswith(f"scylla-cdc-bridge: error: {expected}")
    assert "not-this-one" not in lines[0]
    assert took_s < mapping["startup"]["patience_s"], "it was tried again and again"
    assert world.topics() == topics


@pytest.mark.parametrize("right", ACLS, ids=str)
def test_kafka_right_is_needed(world: World, right: Right) -> None:
    """Without one of the documented ACLs the work ends with an error that names it."""
    without_topics(world)
    kept = [one for one in ACLS if one is not right]
    world.allow_kafka(kept, "least", "sec")
    operation, kind, resource = right.filled("least", "sec")
    if operation not in ("Create", "Alter"):
        admin = KafkaAdmin(KafkaSettings.model_validate({"bootstrap_servers": world.broker}))
        admin.ensure_topic("sec.t", 1, {})
        admin.ensure_topic("least.progress.sec.t", 2, {})
    with pytest.raises(StartupError) as caught:
        around_trip(world.mapping("least", "sec")["kafka"], "least")
    named = re.search(r"needs the right (.*)$", str(caught.value))
    assert named is not None, caught.value
    assert operation in named[1]
    assert f"{kind} {resource.removesuffix('*')}" in named[1]


def test_rights_to_topics_that_are_there_are_not_needed(world: World) -> None:
    """Whoever has made the topics, with enough partitions, need not allow Create and Alter."""
    without_topics(world)
    admin = KafkaAdmin(KafkaSettings.model_validate({"bootstrap_servers": world.broker}))
    admin.ensure_topic("sec.t", 1, {})
    admin.ensure_topic("made.progress.sec.t", 2, {"cleanup.policy": "compact"})
    world.allow_kafka([one for one in ACLS if one.words[0] not in ("Create", "Alter")], "made", "sec")
    assert around_trip(world.mapping("made", "sec")["kafka"], "made") == b"cursor"


@pytest.mark.parametrize("keyspace", ["sec", "sec_tablets"])
def test_grants_suffice_and_each_is_needed(
    world: World,
    written: list[ExpectedChange],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    keyspace: str,
) -> None:
    """With the grants of the table's kind a start goes on; without one it is refused, and the message names it."""
    assert written
    world.allow_all("grants", keyspace)
    kind = "vnodes" if keyspace == "sec" else "tablets"
    needed = [one for one in GRANTS if one.words[1] != BASE_TABLE and one.words[2] in ("all tables", kind)]
    assert len(needed) == (5 if keyspace == "sec" else 3)
    mapping = world.mapping("grants", keyspace)
    world.allow_cql(needed, keyspace)
    assert validate(mapping, tmp_path, capsys) == (0, [])
    for right in needed:
        world.allow_cql([one for one in needed if one is not right], keyspace)
        status, lines = validate(mapping, tmp_path, capsys)
        resource = right.filled("", keyspace)[1]
        assert status == 2, resource
        assert len(lines) == 1, lines
        assert re.search(rf"no SELECT permission on <table \w+\.{resource.partition('.')[2]}>", lines[0]), lines


def test_registry_requests_suffice_and_each_is_needed(
    world: World, written: list[ExpectedChange], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the documented requests schemas are checked and registered; each that is forbidden is named."""
    assert written
    world.allow_all("scopes", "sec")
    mapping = world.mapping("scopes", "sec")
    mapping["registry"]["subject_name_strategy"] = "TopicRecordName"

    def register(topic: str) -> tuple[int, list[str]]:
        mapping["tables"] = [{"name": "sec.t", "topic": topic}]
        found, lines = validate(mapping, tmp_path, capsys)
        if found == 0:
            found = main.main(["schemas", "-c", str(tmp_path / "bridge.yaml"), "--register"])
            lines = capsys.readouterr().err.splitlines()
        return found, lines

    world.door.asked.clear()
    assert register("first") == (0, [])
    # A subject that holds another schema: only then its rule is asked.
    mapping["output"] = {"decimals": "string", "times": "time-micros", "shape": "full"}
    register("first")
    used = {f"{method} {path}" for method, path in world.door.asked}
    patterns = [" ".join(one.filled("", "")) for one in REQUESTS]
    unused = [one for one in patterns if not any(re.fullmatch(one, asked) for asked in used)]
    assert unused == []
    mapping["output"] = {}
    for number, right in enumerate(REQUESTS):
        if "compatibility" in right.words[1]:
            continue  # asked by the way only: the refusal of a registry that lacks it is gone without
        world.allow_registry([one for one in REQUESTS if one is not right])
        status, lines = register(f"topic-{number}")
        assert status != 0, right
        assert lines, right
        request = " ".join(right.filled("", ""))
        for line in lines:
            assert re.search(rf"^scylla-cdc-bridge: error: .*\(HTTP 403, .*{request} is not allowed", line), line
    # What is there needs no right to register.
    world.allow_registry([one for one in REQUESTS if not one.words[1].endswith("/versions")])
    mapping["tables"] = [{"name": "sec.t", "topic": "first"}]
    mapping["registry"]["auto_register"] = False
    assert validate(mapping, tmp_path, capsys) == (0, [])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "token"])
def test_login_is_renewed_without_a_restart(world: World, mechanism: str) -> None:
    """A producer that is at work goes on when its password or token is replaced and the old one is refused."""
    world.allow_kafka(ACLS, "renewed", "sec")
    settings = world.login(mechanism)
    around_trip(settings, "renewed")
    life_s = 5
    old_ends_s = time.monotonic() + life_s
    if mechanism == "token":
        world.secret("token", world.issuer.token(life_s=life_s))
    progress = "renewed.progress.sec.t"
    producer = TransactionalProducer(KafkaSettings.model_validate(settings), "renewed.sec.t.0", known_topic=progress)
    producer.init()
    publish(producer, progress)
    if mechanism == "token":
        world.secret("token", world.issuer.token())
    else:
        old = settings["sasl"] | {"password": {"file": world.secret("old", world.passwords[mechanism])}}
        world.passwords[mechanism] = f"renewed-{secrets.token_hex(12)}"
        world.secret(mechanism, world.passwords[mechanism])
        world.set_kafka_password(mechanism, world.passwords[mechanism])
        old_ends_s = time.monotonic()
    # The broker asks for the login again and again.
    until_s = old_ends_s + 1.5 * REAUTHENTICATE_MS / 1000
    count = 0
    while time.monotonic() < until_s:
        publish(producer, "renewed.progress.sec.t")
        count += 1
    producer.close()
    assert count > 1
    if mechanism != "token":
        with pytest.raises(AccessError, match=r"kafka\.sasl\.username and kafka\.sasl\.password"):
            KafkaAdmin(KafkaSettings.model_validate(settings | {"sasl": old})).ping()


def test_scylla_password_and_certificate_are_renewed(world: World, tmp_path: Path) -> None:
    """A session whose connections break goes on with another password and another certificate from the same files."""
    stranger = world.certificates.stranger
    front = TlsFront((LOOPBACK, world.cql.port), world.certificates.server, trusts=world.certificates.authority.file)
    shown = {name: tmp_path / name for name in ("ca", "certificate", "key")}

    def show(authority: Path, certificate: Path, key: Path) -> None:
        for path, source in zip(shown.values(), (authority, certificate, key), strict=True):
            path.write_text(source.read_text())

    client = world.certificates.client
    show(world.certificates.authority.file, client.certificate, client.key)
    tls = {
        "enabled": True,
        "ca_file": str(shown["ca"]),
        "client_certificate_file": str(shown["certificate"]),
        "client_key_file": str(shown["key"]),
    }
    scylla = world.mapping("x", "sec")["scylla"] | {"contact_points": front.address, "tls": tls}
    session = WritingSession.connect(ScyllaSettings.model_validate(scylla))
    try:
        world.passwords["scylla"] = f"renewed-{secrets.token_hex(12)}"
        world.execute(f"ALTER ROLE {USER} WITH PASSWORD = '{world.passwords['scylla']}'")
        world.secret("scylla", world.passwords["scylla"])
        theirs = stranger.issue("renewed-server")
        show(stranger.file, world.certificates.strangers_client.certificate, world.certificates.strangers_client.key)
        front.present(theirs, trusts=stranger.file)
        front.drop_connections()

        def answers() -> bool:
            try:
                return session.rows("SELECT key FROM system.local") != []
            except BridgeError:
                return False

        wait_for("an answer over a new connection", answers, 60)
    finally:
        session.close()
        front.close()


def test_job_through_all_of_it(world: World, written: list[ExpectedChange], tmp_path: Path) -> None:
    """With the least rights a job carries every change over TLS and logins; a failed and a good run tell no secret.

    The failed run lacks the right to its transactional ids, so that everything is started before it ends.
    """
    without_topics(world)
    world.allow_all("job", "sec")
    world.allow_kafka([one for one in ACLS if one.words[1] != "transactional id"], "job", "sec")
    mapping = world.mapping("job", "sec")
    (listen,) = free_ports(1)
    settings = {
        **{section: mapping[section] for section in ("scylla", "kafka", "registry", "startup")},
        "publishing": {"topic": "{keyspace}.{table}"},
        "monitoring": {"listen": f"{LOOPBACK}:{listen}"},
        "spark": {
            "lanes": 2,
            "properties": {
                "spark.local.dir": str(tmp_path / "scratch"),
                "spark.eventLog.enabled": True,
                "spark.eventLog.dir": str(tmp_path),
                # Whose bytes would tell nothing.
                "spark.eventLog.compress": False,
            },
        },
    }
    settings["kafka"]["properties"] = {"debug": "security,conf"}
    stack: Any = SimpleNamespace(cql="", kafka="", registry="")
    with BridgeJob(stack, tmp_path, "job", ["sec.t"], settings) as job:
        failed = job.start("--once", "--log-level", "debug").wait(400)
        assert failed == 1, job.log_tail()
        log = job.log.read_text(encoding="utf-8")
        assert "sec.t stops: " in log
        assert re.search(r"the bridge's user needs the right Write on transactional id job\.sec\.t\.\d", log)

        world.allow_kafka(ACLS, "job", "sec")
        job.start("--log-level", "debug")
        reader = KafkaSettings.model_validate({"bootstrap_servers": world.broker})
        checker_of = Checker([table("sec")], Registry(world.registry.url))
        checker_of.expect(written)

        wait_for("the change topic", lambda: KafkaAdmin(reader).partitions("sec.t") == 2, 400)
        with CommittedReader(reader) as consumer:
            consumer.follow("sec.t", range(2))
            arrived = 0

            def all_arrived() -> bool:
                nonlocal arrived
                assert job.process is not None
                assert job.process.poll() is None, job.log_tail()
                arrived += len(consumer.poll(500, 1.0))
                return arrived >= len(written)

            wait_for("the changes", all_arrived, 400)
        pages = [
            urllib.request.build_opener(urllib.request.ProxyHandler({}))
            .open(f"http://{LOOPBACK}:{listen}{path}", timeout=10)
            .read()
            for path in ("/", "/metrics", "/healthz", "/readyz")
        ]
        assert job.process is not None
        shown = shown_of(psutil.Process(job.process.pid))
        assert job.stop() == 0, job.log_tail()
        with CommittedReader(reader) as consumer:
            for record in consumer.read_to_end("sec.t", range(2), 60):
                checker_of.see(record)
    verdict = checker_of.close()
    assert verdict.clean, f"{verdict}\n{verdict.examples}"

    (tmp_path / "pages").write_bytes(b"".join(pages))
    (tmp_path / "processes").write_bytes(shown)
    assert b"org.apache.spark" in shown
    searched = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {path.relative_to(tmp_path).parts[0] for path in searched}
    assert {"job.log", "checkpoint", "pages", "processes"} <= kinds
    events = [line for path in searched if path.name.startswith("events_") for line in path.read_bytes().splitlines()]
    assert {"SparkListenerEnvironmentUpdate", "SparkListenerTaskEnd"} <= {json.loads(line)["Event"] for line in events}
    for name, secret in world.passwords.items():
        for form in written_forms(secret):
            leaks = [str(path) for path in searched if form in path.read_bytes()]
            assert leaks == [], name


def shown_of(first: psutil.Process) -> bytes:
    """The command lines and environments of a process and of all that it has started."""
    found = b""
    for process in (first, *first.children(recursive=True)):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for told in ("cmdline", "environ"):
                found += Path(f"/proc/{process.pid}/{told}").read_bytes() + b"\n"
    return found


def written_forms(secret: str) -> list[bytes]:
    """A password in plain, and as HTTP's Basic and SASL's PLAIN send it."""
    logins = (secret, f"{USER}:{secret}", f"\0{USER}\0{secret}")
    return [secret.encode(), *(base64.b64encode(login.encode()).rstrip(b"=") for login in logins)]
