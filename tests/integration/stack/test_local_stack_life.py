"""Starts, stops and crashes of the local stack's servers, and what Kafka and the registry keep."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra import AuthenticationFailed
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import NoHostAvailable, Session
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sandbox.errors import LocalStackError
from sandbox.local import command
from sandbox.stack import processes
from sandbox.stack.ports import Ports, is_free
from sandbox.stack.scylla_versions import NEWEST
from sandbox.stack.stack import COMPONENTS, LocalStack
from tests.integration.stack.plain_sessions import ENABLED_BLOB, connect, extensions

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[Session]:
    """A session that connects again at once when the server is back."""
    cluster = connect(local_stack)
    yield cluster.connect()
    cluster.shutdown()


def _create_topic(stack: LocalStack, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def test_a_kafka_transaction_commits_and_aborts(local_stack: LocalStack) -> None:
    """A read_committed consumer sees what was committed and nothing of what was aborted."""
    topic = f"t-{uuid.uuid4().hex}"
    _create_topic(local_stack, topic)
    producer = Producer({"bootstrap.servers": local_stack.kafka, "transactional.id": topic})
    producer.init_transactions(30)
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    consumer = Consumer(
        {
            "bootstrap.servers": local_stack.kafka,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"committed"
    finally:
        consumer.close()


def _registry_client(stack: LocalStack) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": stack.registry})


def test_the_registry_keeps_ids_over_a_restart(local_stack: LocalStack) -> None:
    """Ids survive; the same schema in other spacing is the same; incompatible changes are refused by default."""
    subject = f"s-{uuid.uuid4().hex}"
    one = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    client = _registry_client(local_stack)
    assert client.get_compatibility() == "BACKWARD"
    schema_id = client.register_schema(subject, Schema(one, "AVRO"))
    local_stack.stop("registry")
    assert local_stack.pid("registry") is None
    local_stack.start("registry")
    client = _registry_client(local_stack)
    assert client.register_schema(subject, Schema(one.replace(" ", ""), "AVRO")) == schema_id
    assert client.get_latest_version(subject).schema_id == schema_id
    other = one.replace('"int"', '"string"')
    assert client.test_compatibility(subject, Schema(other, "AVRO")) is False


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_killed_server_comes_back_with_its_data(local_stack: LocalStack, session: Session, component: Any) -> None:
    """After kill -9 and a start: same port, and what was stored is there."""
    topic, table = f"k-{uuid.uuid4().hex}", f"k{uuid.uuid4().hex}.t"
    _create_topic(local_stack, topic)
    session.execute(
        f"CREATE KEYSPACE {table[:-2]} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.execute(f"CREATE TABLE {table} (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    before = local_stack.pid(component)
    local_stack.kill(component)
    assert local_stack.pid(component) is None
    assert [status.name for status in local_stack.status() if not status.is_up] == [component]
    local_stack.start(component)
    assert local_stack.pid(component) not in (None, before)
    assert all(status.is_up for status in local_stack.status())
    assert topic in AdminClient({"bootstrap.servers": local_stack.kafka}).list_topics(timeout=30).topics
    cluster = connect(local_stack)
    try:
        assert extensions(cluster.connect(), table[:-2], "t") == {"cdc": ENABLED_BLOB}
    finally:
        cluster.shutdown()


def test_a_second_start_is_refused(local_stack: LocalStack, shared_jars: Path) -> None:
    """`up` on a running folder and `start` of a running server say so, and change nothing."""
    before = [local_stack.pid(name) for name in COMPONENTS]
    with pytest.raises(LocalStackError, match=f"already runs in {local_stack.folder}.*local down --folder"):
        LocalStack.up(local_stack.folder, jars=shared_jars)
    with pytest.raises(LocalStackError, match="runs already"):
        local_stack.start("kafka")
    assert [local_stack.pid(name) for name in COMPONENTS] == before


def test_load_sees_the_running_stack(local_stack: LocalStack) -> None:
    """Another program finds the same addresses and processes through the folder."""
    loaded = LocalStack.load(local_stack.folder)
    assert (loaded.cql, loaded.kafka, loaded.registry) == (local_stack.cql, local_stack.kafka, local_stack.registry)
    assert [loaded.pid(name) for name in COMPONENTS] == [local_stack.pid(name) for name in COMPONENTS]


def test_a_whole_life_of_one_stack(tmp_path: Path, shared_jars: Path) -> None:
    """Password login; half dead and repaired by `up`; a failing `up` leaves nothing; `down` leaves no process."""
    lines: list[str] = []
    stack = LocalStack.up(tmp_path, jars=shared_jars, cql_password=True, report=lines.append)
    try:
        good = connect(stack, auth_provider=PlainTextAuthProvider("cassandra", "cassandra"))
        assert good.connect().execute("SELECT version FROM system.versions").one()["version"] == f"{NEWEST}.0"
        good.shutdown()
        bad = connect(stack, auth_provider=PlainTextAuthProvider("cassandra", "wrong"))
        with pytest.raises(NoHostAvailable) as refused:
            bad.connect()
        bad.shutdown()
        assert all(isinstance(error, AuthenticationFailed) for error in refused.value.errors.values())

        pids = {name: stack.pid(name) for name in COMPONENTS}
        # Behind the stack's back, as a crash of the machine's would: the state file still names the process.
        identity = processes.ProcessIdentity(pids["kafka"] or 0, processes.start_mark(pids["kafka"] or 0) or "")
        processes.kill(identity)
        assert command.run(command.parse(["status", "--folder", str(tmp_path)])) == 1
        stack = LocalStack.up(tmp_path, jars=shared_jars, report=lines.append)
        assert any("not stopped properly" in line for line in lines)
        assert stack.pid("cql") == pids["cql"]
        assert stack.pid("kafka") not in (None, pids["kafka"])
        assert command.run(command.parse(["status", "--folder", str(tmp_path)])) == 0
    finally:
        left = [stack.pid(name) for name in COMPONENTS]
        stack.down()
    assert [processes.start_mark(pid or 0) for pid in left] == [None, None, None]
    assert all(is_free(int(address.rsplit(":", 1)[1])) for address in (stack.cql, stack.kafka))
    with pytest.raises(LocalStackError, match="No local stack runs in"):
        LocalStack.load(tmp_path)


def test_a_failing_up_leaves_nothing_running(tmp_path: Path, shared_jars: Path) -> None:
    """When one server can't start, the message shows its log, and the others are stopped again."""
    tmp_path.joinpath("data", "cql").mkdir(parents=True)
    tmp_path.joinpath("data", "cql", "commitlog").write_text("a file where a folder must be", encoding="utf-8")
    with pytest.raises(LocalStackError, match=r"(?s)cql ended while it was starting.*cql\.log"):
        LocalStack.up(tmp_path, jars=shared_jars, ports=Ports())
    with pytest.raises(LocalStackError, match="No local stack runs in"):
        LocalStack.load(tmp_path)
