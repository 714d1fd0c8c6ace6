"""Real servers that let nobody in without certificates, logins and rights, and the bridge in front of them."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.adapters.registry.client import Registry
from bridge.cli import main
from bridge.config.document import KafkaSettings, ScyllaSettings
from bridge.errors import AccessError, BridgeError, StartupError
from sandbox.scylla.cluster.older_versions import forget_upgrade, upgrade
from sandbox.scylla.oracle import ExpectedChange
from sandbox.stack.ports import LOOPBACK, free_ports
from sandbox.verify.checker import Checker
from sandbox.writing_session import WritingSession
from tests.integration.security.security_refusals import REFUSED
from tests.integration.security.security_world import (
    ACLS,
    BASE_TABLE,
    GRANTS,
    REQUESTS,
    Right,
    World,
    around_trip,
    publish,
    table,
    validate,
    without_topics,
)
from tests.integration.support.running import BridgeJob, wait_for
from tests.integration.support.secure_servers import REAUTHENTICATE_MS, USER, TlsFront

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "token", "OIDC", "mutual"])
def test_every_way_in(world: World, mechanism: str) -> None:
    """A lane's whole work is done over each way into Kafka; the job below has the remaining one."""
    world.allow_kafka(ACLS, "ways", "sec")
    assert around_trip(world.login(mechanism), "ways") == b"cursor"


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
    """If the topics exist with enough partitions, the job needs neither Create nor Alter."""
    without_topics(world)
    admin = KafkaAdmin(KafkaSettings.model_validate({"bootstrap_servers": world.broker}))
    admin.ensure_topic("sec.t", 1, {})
    admin.ensure_topic("made.progress.sec.t", 2, {"cleanup.policy": "compact"})
    world.allow_kafka([one for one in ACLS if one.words[0] not in ("Create", "Alter")], "made", "sec")
    assert around_trip(world.mapping("made", "sec")["kafka"], "made") == b"cursor"


OLDER_TABLE = "system_distributed.cdc_streams_descriptions"


@contextmanager
def before_upgrade(world: World) -> Iterator[None]:
    """A cluster whose generations ScyllaDB has not copied from the older table."""
    forget_upgrade(world.superuser)
    try:
        yield
    finally:
        upgrade(world.superuser, [])


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
        resource = right.filled("", keyspace)[1]
        with before_upgrade(world) if resource == OLDER_TABLE else nullcontext():
            status, lines = validate(mapping, tmp_path, capsys)
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


def _job_settings(world: World, mapping: dict[str, Any], folder: Path, listen: int) -> dict[str, Any]:
    """The mapping as a job with a port and an event log whose bytes can be searched."""
    settings = {
        **{section: mapping[section] for section in ("scylla", "kafka", "registry", "startup")},
        "publishing": {"topic": "{keyspace}.{table}"},
        "monitoring": {"listen": f"{LOOPBACK}:{listen}"},
        "spark": {
            "lanes": 2,
            "properties": {
                "spark.local.dir": str(folder / "scratch"),
                "spark.eventLog.enabled": True,
                "spark.eventLog.dir": str(folder),
                # Whose bytes would tell nothing.
                "spark.eventLog.compress": False,
            },
        },
    }
    settings["kafka"]["properties"] = {"debug": "security,conf"}
    return settings


def _wait_for_all(job: BridgeJob, reader: KafkaSettings, count: int) -> None:
    wait_for("the change topic", lambda: KafkaAdmin(reader).partitions("sec.t") == 2, 400)
    with CommittedReader(reader) as consumer:
        consumer.follow("sec.t", range(2))
        arrived = 0

        def all_arrived() -> bool:
            nonlocal arrived
            assert job.process is not None
            assert job.process.poll() is None, job.log_tail()
            arrived += len(consumer.poll(500, 1.0))
            return arrived >= count

        wait_for("the changes", all_arrived, 400)


def _pages(listen: int) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    addresses = [f"http://{LOOPBACK}:{listen}{path}" for path in ("/", "/metrics", "/healthz", "/readyz")]
    return b"".join(opener.open(address, timeout=10).read() for address in addresses)


def test_job_through_all_of_it(world: World, written: list[ExpectedChange], tmp_path: Path) -> None:
    """With the least rights a job carries every change over TLS and logins; a failed and a good run tell no secret.

    The failed run lacks the right to its transactional ids, so that everything is started before it ends.
    """
    without_topics(world)
    world.allow_all("job", "sec")
    world.allow_kafka([one for one in ACLS if one.words[1] != "transactional id"], "job", "sec")
    (listen,) = free_ports(1)
    settings = _job_settings(world, world.mapping("job", "sec"), tmp_path, listen)
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
        _wait_for_all(job, reader, len(written))
        (tmp_path / "pages").write_bytes(_pages(listen))
        assert job.process is not None
        shown = shown_of(psutil.Process(job.process.pid))
        assert job.stop() == 0, job.log_tail()
        with CommittedReader(reader) as consumer:
            for record in consumer.read_to_end("sec.t", range(2), 60):
                checker_of.see(record)
    verdict = checker_of.close()
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    (tmp_path / "processes").write_bytes(shown)
    assert b"org.apache.spark" in shown
    _search_for_secrets(world, tmp_path)


def _search_for_secrets(world: World, folder: Path) -> None:
    searched = [path for path in folder.rglob("*") if path.is_file()]
    kinds = {path.relative_to(folder).parts[0] for path in searched}
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
