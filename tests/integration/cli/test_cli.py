"""The command in processes of its own, against real servers: what is refused, and what is shown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from bridge.adapters import connect
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.adapters.registry.client import Registry
from bridge.config.document import KafkaSettings, ScyllaSettings, validate
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.errors import StartupError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMillis
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.table_codec import TableCodec
from schemas.wire.framing import frame
from tests.unit.schemas.example_tables import STREAM, TIME, log_columns, row, table

pytestmark = pytest.mark.integration

_REPOSITORY = Path(__file__).resolve().parents[3]
_CLOSED = "127.0.0.1:1"
"""An address where nothing listens."""


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "bridge.cli.main", *words]


def _run(*words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*words), cwd=_REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@pytest.fixture(scope="module")
def keyspace(local_stack: LocalStack) -> Iterator[str]:
    """A keyspace with `plain` (no CDC), `captured` and `logless` (CDC enabled, its log table gone)."""
    name = f"cli_{uuid.uuid4().hex[:8]}"
    session = WritingSession.connect(ScyllaSettings(contact_points=local_stack.cql))
    log = (
        '("cdc$stream_id" blob, "cdc$time" timeuuid, "cdc$batch_seq_no" int, PRIMARY KEY ("cdc$stream_id", "cdc$time"))'
    )
    try:
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.execute(f"CREATE TABLE {name}.plain (pk int PRIMARY KEY, v int)")
        for captured in ("captured", "logless"):
            session.execute(
                f"CREATE TABLE {name}.{captured} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
            )
        session.execute(f"CREATE TABLE IF NOT EXISTS {name}.captured_scylla_cdc_log {log}")
        session.execute(f"DROP TABLE IF EXISTS {name}.logless_scylla_cdc_log")
        yield name
        session.execute(f"DROP KEYSPACE {name}")
    finally:
        session.close()


@pytest.fixture
def settings(local_stack: LocalStack, keyspace: str) -> dict[str, Any]:
    """A configuration in which everything is right."""
    return {
        "name": keyspace,
        "scylla": {"contact_points": [local_stack.cql]},
        "kafka": {"bootstrap_servers": [local_stack.kafka]},
        "registry": {"url": local_stack.registry},
        "tables": [f"{keyspace}.captured"],
        "startup": {"patience_s": 1},
    }


def _file(folder: Path, settings: dict[str, Any]) -> str:
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return str(path)


def _topics(stack: LocalStack) -> set[str]:
    return set(AdminClient({"bootstrap.servers": stack.kafka}).list_topics(timeout=10).topics)


def test_everything_right(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A good configuration is found good, and the plan names tables and topics."""
    done = _run("validate", "-c", _file(tmp_path, settings), "--online")
    assert done.returncode == 0, done.stderr
    assert f"{settings['name']}.captured: all are captured" in done.stdout
    assert f"{settings['name']}.progress.{settings['name']}.captured" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scylla": {"contact_points": [_CLOSED]}}, f"ScyllaDB at {_CLOSED} is not reachable (tried "),
        (
            {"scylla": {"contact_points": ["CQL"], "local_datacenter": "mars"}},
            "ScyllaDB at CQL: there is no data center 'mars', only 'datacenter1'; see scylla.local_datacenter",
        ),
        ({"kafka": {"bootstrap_servers": [_CLOSED]}}, f"Kafka at {_CLOSED} is not reachable (tried "),
        ({"registry": {"url": f"http://{_CLOSED}"}}, f"Schema registry at http://{_CLOSED}/ is not reachable (tried "),
        (
            {"registry": {"url": "REGISTRY/nowhere"}},
            "REGISTRY/nowhere: list schema types: does not know it (HTTP 404); is registry.url the base address",
        ),
        ({"tables": ["no_such_keyspace.t"]}, "table no_such_keyspace.t: there is no keyspace 'no_such_keyspace' at "),
        ({"tables": ["KEYSPACE.nothing"]}, "table KEYSPACE.nothing: there is no such table at "),
        ({"tables": ["KEYSPACE.plain"]}, "table KEYSPACE.plain: CDC is not enabled; enable it with ALTER TABLE "),
        ({"tables": ["KEYSPACE.logless"]}, "table KEYSPACE.logless: CDC is enabled but the log table "),
        ({"reading": {"confidence": 1}}, ": reading.confidence: unknown key; did you mean confidence_ms?"),
    ],
)
def test_refused(
    tmp_path: Path, local_stack: LocalStack, settings: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    """What does not hold is named with its address or place, exit status 2, before anything is written."""
    before = _topics(local_stack)

    def filled(text: str) -> str:
        for name, value in (
            ("KEYSPACE", settings["name"]),
            ("REGISTRY", local_stack.registry),
            ("CQL", local_stack.cql),
        ):
            text = text.replace(name, value)
        return text

    path = _file(tmp_path, {**settings, **json.loads(filled(json.dumps(change)))})
    done = _run("validate", "-c", path, "--online")
    assert done.returncode == 2, done.stderr
    assert filled(words) in done.stderr
    assert "Traceback" not in done.stderr
    assert _topics(local_stack) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kafka": {"bootstrap_servers": [_CLOSED]}}, f"Kafka at {_CLOSED} is not reachable (tried "),
        ({"tables": ["KEYSPACE.plain"]}, "table KEYSPACE.plain: CDC is not enabled; enable it with ALTER TABLE "),
        ({"reading": {"confidence": 1}}, ": reading.confidence: unknown key; did you mean confidence_ms?"),
    ],
)
def test_job_refuses(
    tmp_path: Path, local_stack: LocalStack, settings: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    """The job itself refuses the same before it starts Spark or writes anything."""
    before = _topics(local_stack)
    path = _file(tmp_path, {**settings, **json.loads(json.dumps(change).replace("KEYSPACE", settings["name"]))})
    done = _run("run", "-c", path)
    assert done.returncode == 2, done.stderr
    assert words.replace("KEYSPACE", settings["name"]) in done.stderr
    assert "Traceback" not in done.stderr
    assert _topics(local_stack) == before


def test_servers_that_are_mixed_up_are_told(
    local_stack: LocalStack, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server's port for another's, TLS and logins where there are none: the setting to look at, or a question."""
    monkeypatch.setattr(connect, "PING_TIMEOUT_S", 1.5)
    cql, kafka, registry = local_stack.cql, local_stack.kafka, local_stack.registry
    http = registry.removeprefix("http://").partition("/")[0]
    login = {"mechanism": "PLAIN", "username": "u", "password": {"file": __file__}}
    no_kafka = (
        "does not answer as Kafka does; is it the port of another server (kafka.bootstrap_servers), or does it want a "
        "login (kafka.sasl)?"
    )
    no_login = "takes no login there; leave kafka.sasl out, or name the port of a listener that takes one"
    no_registry = "no answer in HTTP (RemoteProtocolError); is registry.url the base address of a schema registry?"
    no_cql = "is that its port for CQL (scylla.contact_points)?"
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("scylla", {"contact_points": [kafka], "request_timeout_ms": 300}, no_cql),
        ("scylla", {"contact_points": [http], "request_timeout_ms": 300}, no_cql),
        ("kafka", {"bootstrap_servers": [cql]}, no_kafka),
        ("kafka", {"bootstrap_servers": [http]}, no_kafka),
        ("kafka", {"tls": {"enabled": True}}, f"Kafka at {kafka}: it does not speak TLS there; see kafka.tls.enabled"),
        ("kafka", {"sasl": login}, f"Kafka at {kafka} {no_login}"),
        ("registry", {"url": f"http://{kafka}"}, no_registry),
        ("registry", {"url": f"http://{cql}", "request_timeout_ms": 500}, "no answer in time; see registry.url"),
    ]
    opening: dict[str, Callable[..., Any]] = {
        "scylla": connect.open_scylla,
        "kafka": connect.open_kafka,
        "registry": connect.open_registry,
    }

    def told(case: tuple[str, dict[str, Any], str]) -> str:
        section, change, _ = case
        config = validate({**settings, section: {**settings[section], **change}})
        with pytest.raises(StartupError) as caught:
            opening[section](config, report=str, patience_s=0)
        return str(caught.value)

    with ThreadPoolExecutor(len(cases)) as threads:
        for case, words in zip(cases, threads.map(told, cases), strict=True):
            assert words.endswith(case[2]), case


def test_all_tables_at_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Every table that can't be captured is named in one go."""
    names = [f"{settings['name']}.{table}" for table in ("plain", "nothing", "captured", "logless")]
    done = _run("validate", "-c", _file(tmp_path, {**settings, "tables": names}), "--online")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("scylla-cdc-bridge: error: table ")]
    assert len(errors) == 3


@pytest.mark.parametrize("words", [["status"], ["consume", "--topic", "t"]])
def test_kafka_is_down(tmp_path: Path, settings: dict[str, Any], words: list[str]) -> None:
    """Commands that only look say which address does not answer, too."""
    path = _file(tmp_path, {**settings, "kafka": {"bootstrap_servers": [_CLOSED]}})
    done = _run(words[0], "-c", path, *words[1:])
    assert done.returncode == 2
    assert f"Kafka at {_CLOSED} is not reachable" in done.stderr


def test_interrupted_while_waiting(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Ctrl-C ends the waiting for a server at once, in the middle of a try or between two."""
    path = _file(tmp_path, {**settings, "kafka": {"bootstrap_servers": [_CLOSED]}, "startup": {"patience_s": 600}})
    with subprocess.Popen(
        _command("validate", "-c", path, "--online"), cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "is not reachable (try 2" in line:
                process.send_signal(signal.SIGINT)
                break
        assert process.wait(timeout=3) == 130


@pytest.fixture(scope="module")
def published(local_stack: LocalStack, keyspace: str) -> str:
    """Five changes in two partitions, and the progress of two lanes; gives the job's name."""
    name = f"job_{uuid.uuid4().hex[:8]}"
    kafka = KafkaSettings(bootstrap_servers=local_stack.kafka)
    progress = f"{name}.progress.{keyspace}.captured"
    admin = KafkaAdmin(kafka)
    admin.ensure_topic(f"{keyspace}.captured", 2, {})
    admin.ensure_topic(progress, 3, {"cleanup.policy": "compact"})
    of = table({"pk": "int"}, {}, {"v": "int"}, keyspace=keyspace, name="captured")
    codec = TableCodec(of, log_columns(of))
    registry = Registry(local_stack.registry)
    schema_id = registry.register(f"{keyspace}.captured-value", codec.value_avro_schema)
    registry.close()
    producer = TransactionalProducer(kafka, name, known_topic=progress)
    producer.init()
    for committed in (True, False):
        producer.begin()
        for number in range(5):
            cells = row(of, {"pk": bytes([0, 0, 0, number]), "cdc$deleted_v": b"\x01"})
            body = codec.encode(cells, operation=1, generation_ms=1_700_000_000_000, last_in_group=True)[1]
            header = (POSITION_HEADER, STREAM + TIME + number.to_bytes(4, "big"))
            producer.produce(f"{keyspace}.captured", bytes(1), frame(schema_id, body), [header], number % 2)
        for lane in (0, 1):
            cursor = Cursor.at_start_of(UnixMillis(1_700_000_000_000))
            value = LaneProgress(lane, Layout(2, cursor), cursor).to_bytes()
            producer.produce(progress, str(lane).encode(), value, partition=lane)
        if committed:
            producer.commit()
        else:
            producer.abort()
    producer.close()
    return name


def _documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents that follow each other in a text."""
    found: list[dict[str, Any]] = []
    while text.strip():
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


def _position_of(document: dict[str, Any]) -> str:
    position: str = document["position"]
    return position


class TestPublished:
    """With a topic and a progress topic as the job makes them."""

    def test_consume(self, tmp_path: Path, settings: dict[str, Any], published: str) -> None:
        """What was committed, and only that, is printed and decoded, up to the topic's end."""
        path = _file(tmp_path, {**settings, "name": published})
        words = ["consume", "-c", path, settings["tables"][0], "--from-beginning", "--until-end"]
        done = _run(*words, "--json")
        assert done.returncode == 0, done.stderr
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(documents) == 5
        # Two runs may read the partitions in another order.
        indented = _documents(_run(*words).stdout)
        assert sorted(indented, key=_position_of) == sorted(documents, key=_position_of)
        values = [document["value"] for document in documents]
        assert {value["source"]["table"] for value in values} == {"captured"}
        assert all((value["op"], value["columns"]) == ("update", {"v": {"value": None}}) for value in values)
        assert sorted(value["key"]["pk"] for value in values) == [0, 1, 2, 3, 4]
        assert {document["position"].rpartition("/")[2] for document in documents} == set("01234")

    def test_consume_most(self, tmp_path: Path, settings: dict[str, Any], published: str) -> None:
        """--max ends after so many records."""
        path = _file(tmp_path, {**settings, "name": published})
        done = _run("consume", "-c", path, "--topic", settings["tables"][0], "--from-beginning", "--max", "2")
        assert (done.returncode, len(_documents(done.stdout))) == (0, 2)

    def test_consume_until_interrupted(self, tmp_path: Path, settings: dict[str, Any], published: str) -> None:
        """Ctrl-C ends it cleanly."""
        path = _file(tmp_path, {**settings, "name": published})
        with subprocess.Popen(
            _command("consume", "-c", path, settings["tables"][0], "--from-beginning"),
            cwd=_REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=10)
            assert (process.returncode, errors) == (0, "")

    def test_status(self, tmp_path: Path, settings: dict[str, Any], published: str) -> None:
        """Each lane's committed progress is shown, and a table without any is said to have none."""
        tables = [*settings["tables"], f"{settings['name']}.other"]
        path = _file(tmp_path, {**settings, "name": published, "tables": tables})
        done = _run("status", "-c", path, "--json")
        assert done.returncode == 0, done.stderr
        captured, other = json.loads(done.stdout)["tables"]
        assert [lane["state"] for lane in captured["lanes"]] == ["assigned", "assigned", "retired"]
        assert captured["lanes"][0]["reached"] == "2023-11-14T22:13:20.000000Z"
        assert other["lanes"] == []
        done = _run("status", "-c", path)
        assert done.returncode == 0, done.stderr
        plain = done.stdout.splitlines()
        assert [line.split()[0] for line in plain[1:]] == [tables[0], tables[0], tables[1]]
        assert "no progress yet" in plain[-1]
