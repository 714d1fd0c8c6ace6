"""The local stack on real servers: clients see ScyllaDB's names, and servers come, go and return as asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cassandra import AuthenticationFailed, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy
from cassandra.protocol import ConfigurationException
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sandbox.errors import LocalStackError
from sandbox.local import command
from sandbox.stack import processes
from sandbox.stack.ports import Ports, is_free
from sandbox.stack.stack import COMPONENTS, LocalStack

pytestmark = pytest.mark.integration

# The blob of {'enabled': true}: five options, sorted, each key and value with its length.
_ENABLED_BLOB = bytes.fromhex(
    "05000000"
    "0500000064656c7461" + "0400000066756c6c"
    "07000000656e61626c6564" + "0400000074727565"
    "09000000706f7374696d616765" + "0500000066616c7365"
    "08000000707265696d616765" + "0500000066616c7365"
    "0300000074746c" + "050000003836343030"
)


def _connect(stack: LocalStack, **options: Any) -> Cluster:
    host, _, port = stack.cql.partition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60.0, row_factory=dict_factory)
    return Cluster(
        [host],
        port=int(port),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.2, max_attempts=None),
        connect_timeout=30,
        **options,
    )


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[Session]:
    cluster = _connect(local_stack)
    yield cluster.connect()
    cluster.shutdown()


@pytest.fixture
def keyspace(session: Session) -> Iterator[str]:
    name = f"ks_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
        "AND tablets = {'enabled': false}"
    )
    yield name
    session.execute(f"DROP KEYSPACE {name}")


def _extensions(session: Session, keyspace: str, table: str) -> dict[str, bytes]:
    rows = session.execute(
        "SELECT extensions FROM system_schema.tables WHERE keyspace_name=%s AND table_name=%s", (keyspace, table)
    )
    return dict(rows.one()["extensions"] or {})


# Per system table: its name, a row (key columns first), how many of its columns are keys.
_WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
_ROWS: dict[str, tuple[dict[str, Any], int]] = {
    "system_distributed.cdc_generation_timestamps": ({"key": "timestamps", "time": _WHEN, "expired": None}, 2),
    "system_distributed.cdc_streams_descriptions_v2": (
        {"time": _WHEN, "range_end": -42, "streams": {b"\x01" * 16, b"\xff" * 16}},
        2,
    ),
    "system_distributed.cdc_streams_descriptions": ({"time": _WHEN, "streams": {b"\x02" * 16}, "expired": None}, 1),
    "system.cdc_local": ({"key": "mine", "streams_timestamp": _WHEN, "uuid": uuid.UUID(int=7)}, 1),
    "system.cdc_timestamps": ({"keyspace_name": "k", "table_name": "t", "timestamp": _WHEN}, 3),
    "system.cdc_streams": (
        {"keyspace_name": "k", "table_name": "t", "timestamp": _WHEN, "stream_state": 0, "stream_id": b"\x03" * 16},
        5,
    ),
    "system_schema.scylla_tables": (
        {"keyspace_name": "k", "table_name": "t", "partitioner": "com.scylladb.dht.CDCPartitioner"},
        2,
    ),
    "system_schema.scylla_keyspaces": ({"keyspace_name": "k", "initial_tablets": 4}, 1),
}


@pytest.mark.parametrize("table", _ROWS)
@pytest.mark.parametrize("way", ["simple", "prepared", "batch", "prepared batch"])
def test_system_tables_are_written_and_read_under_their_own_names(session: Session, table: str, way: str) -> None:
    """Every statement form reaches ScyllaDB's system tables without any change by the client."""
    row, keys = _ROWS[table]
    names, values = list(row), list(row.values())
    comparisons = [f"{name} = {{}}" for name in names[:keys]]

    def run(cql: str, arguments: list[Any], *, batch: bool) -> Any:
        statement: Any = cql.replace("{}", "?" if "prepared" in way else "%s")
        if "prepared" in way:
            statement = session.prepare(statement)
        if batch and "batch" in way:
            frame = BatchStatement(BatchType.UNLOGGED)
            frame.add(statement, arguments)
            return session.execute(frame)
        return session.execute(statement, arguments)

    run(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('{}' for _ in names)})", values, batch=True)
    select = f"SELECT {', '.join(names)} FROM {table} WHERE {' AND '.join(comparisons)}"
    found = run(select, values[:keys], batch=False).one()
    expected = {name: value.replace(tzinfo=None) if value is _WHEN else value for name, value in row.items()}
    assert {**found, **({"streams": set(found["streams"])} if "streams" in found else {})} == expected
    run(f"DELETE FROM {table} WHERE {' AND '.join(comparisons)}", values[:keys], batch=True)
    assert run(select, values[:keys], batch=False).one() is None


@pytest.mark.parametrize("table", [table for table in _ROWS if table != "system.cdc_local"])
def test_system_tables_can_be_truncated(session: Session, table: str) -> None:
    """TRUNCATE empties a system table, with and without the word TABLE."""
    row, keys = _ROWS[table]
    names = list(row)[:keys]
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('%s' for _ in names)})"
    for truncate in ("TRUNCATE", "truncate table"):
        session.execute(insert, [row[name] for name in names])
        session.execute(f"{truncate} {table}")
        assert session.execute(f"SELECT * FROM {table}").one() is None


def test_update_and_bare_names_and_quoted_names(session: Session, local_stack: LocalStack) -> None:
    """UPDATE, a bare name after USE, quoted names and a comment in the middle of a name reach the same table."""
    session.execute("UPDATE \"system\".cdc_local USING TIMEOUT 5s SET uuid = uuid() WHERE key = 'u'")
    update = "UPDATE System /* a */ . /* b */ CDC_LOCAL USING TTL 500 AND TIMEOUT 1m"
    session.execute(f"{update} SET uuid = uuid() WHERE key = 'v'")
    cluster = _connect(local_stack)
    try:
        bare = cluster.connect("system")
        assert {row["key"] for row in bare.execute("SELECT key FROM cdc_local WHERE key IN ('u', 'v')")} == {"u", "v"}
        bare.execute("DELETE FROM cdc_local WHERE key IN ('u', 'v')")
    finally:
        cluster.shutdown()


def test_literals_names_and_comments_are_left_alone(session: Session, keyspace: str) -> None:
    """What looks like ScyllaDB's words inside a literal, a quoted name or a comment stays as written."""
    text = "FROM system.cdc_local BYPASS CACHE, 'USING TIMEOUT 5s' WITH cdc = {'enabled': true} -- no /* comment"
    session.execute(
        f'CREATE TABLE {keyspace}.l (pk int PRIMARY KEY, "BYPASS CACHE" text, cdc text) -- AND cdc = {{}}\n'
    )
    session.execute(
        f'INSERT INTO {keyspace}.l (pk, "BYPASS CACHE", cdc) VALUES (1, %s, $${text}$$) '
        "/* USING TIMEOUT 1s */ USING TTL 100 AND TIMEOUT 2h30m",
        (text,),
    )
    row = session.execute(f"SELECT * FROM {keyspace}.l WHERE pk = 1 BYPASS CACHE USING TIMEOUT 500ms").one()
    assert (row["BYPASS CACHE"], row["cdc"]) == (text, text)


def test_cdc_options_are_visible_as_on_scylladb(session: Session, keyspace: str) -> None:
    """CREATE stores ScyllaDB's blob in the extensions of the base table; ALTER replaces it whole."""
    table = f"{keyspace}.t"
    create = f"CREATE TABLE {table} (pk int PRIMARY KEY, v int)"
    session.execute(f"{create} WITH comment = 'x' AND cdc = {{'enabled': true}}")
    assert _extensions(session, keyspace, "t") == {"cdc": _ENABLED_BLOB}
    session.execute(f"ALTER TABLE {table} ADD w int")
    assert _extensions(session, keyspace, "t") == {"cdc": _ENABLED_BLOB}
    options = "{'Enabled': 'TRUE', 'preimage': 'Full', 'ttl': 60}"
    session.execute(f"ALTER TABLE {table} WITH cdc = {options} AND comment = 'y'")
    changed = _extensions(session, keyspace, "t")["cdc"]
    assert changed == _ENABLED_BLOB.replace(
        b"\x08\0\0\0preimage\x05\0\0\0false\x03\0\0\0ttl\x05\0\0\x0086400",
        b"\x08\0\0\0preimage\x04\0\0\0full\x03\0\0\0ttl\x02\0\0\x0060",
    )
    select = "SELECT comment FROM system_schema.tables WHERE keyspace_name=%s AND table_name='t'"
    assert session.execute(select, (keyspace,)).one()["comment"] == "y"
    session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': false}}")
    assert b"enabled\x05\0\0\0false" in _extensions(session, keyspace, "t")["cdc"]


def test_cdc_options_in_unusual_forms(session: Session, keyspace: str) -> None:
    """Tables without the option have none, an empty map is an empty blob, prepared statements carry their options."""
    session.execute(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY)")
    assert _extensions(session, keyspace, "plain") == {}
    session.execute(f"CREATE TABLE {keyspace}.empty (pk int PRIMARY KEY) WITH cdc = {{}}")
    assert _extensions(session, keyspace, "empty") == {"cdc": b"\0\0\0\0"}
    session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.plain (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    assert _extensions(session, keyspace, "plain") == {}
    options = "cdc = {'enabled': true} AND tombstone_gc = {'mode': 'timeout'}"
    session.execute(session.prepare(f"ALTER TABLE {keyspace}.plain WITH {options}"))
    assert _extensions(session, keyspace, "plain") == {"cdc": _ENABLED_BLOB}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{'enabled': true, 'unknown': 1}", "Invalid CDC option: unknown"),
        ("{'enabled': true, 'ttl': -1}", "Invalid CDC option: ttl must be >= 0"),
        ("{'enabled': true, 'ttl': 'soon'}", 'Invalid value for CDC option "ttl": soon'),
        ("{'enabled': 'YES'}", 'Invalid value for CDC option "enabled": YES'),
        ("{'enabled': true, 'preimage': 'half'}", 'Invalid value for CDC option "preimage": half'),
        ("{'enabled': true, 'delta': 'off'}", 'Invalid value for CDC option "delta": off'),
    ],
)
def test_bad_cdc_options_are_refused(session: Session, keyspace: str, options: str, message: str) -> None:
    """The refusals are ScyllaDB's, by kind and by text, and leave no table behind."""
    with pytest.raises(ConfigurationException, match=message.replace("(", r"\(")):
        session.execute(f"CREATE TABLE {keyspace}.bad (pk int PRIMARY KEY, v int) WITH cdc = {options}")
    with pytest.raises(InvalidRequest):
        session.execute(f"SELECT * FROM {keyspace}.bad")


def test_tables_that_cannot_have_a_log_are_refused(session: Session, keyspace: str) -> None:
    """No CDC on counters, views and logs, nor where the log's name is taken; ALTER must say `enabled`."""
    session.execute(f"CREATE TABLE {keyspace}.base (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    session.execute(f"CREATE TABLE {keyspace}.n_scylla_cdc_log (pk int PRIMARY KEY)")
    for cql, message in (
        ("CREATE TABLE {}.c (pk int PRIMARY KEY, c counter) WITH cdc = {{'enabled': true}}", "Counter support not"),
        ("CREATE TABLE {}.base_scylla_cdc_log (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}", "nested CDC logs"),
        ("CREATE TABLE {}.n (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}", "already exists"),
        ("ALTER TABLE {}.base WITH cdc = {{'ttl': 1}}", "enabled"),
        (
            "CREATE MATERIALIZED VIEW {0}.m AS SELECT * FROM {0}.base WHERE v IS NOT NULL AND pk IS NOT NULL "
            "PRIMARY KEY (v, pk) WITH cdc = {{'enabled': true}}",
            "materialized view",
        ),
    ):
        with pytest.raises(InvalidRequest, match=message):
            session.execute(cql.format(keyspace))


def test_limits_do_not_stand_in_the_way(session: Session, keyspace: str) -> None:
    """A log table's own form, a TTL of 20 years, 16 MB in one batch: all are taken."""
    log = f"{keyspace}.t_scylla_cdc_log"
    session.execute(
        f'CREATE TABLE {log} ("cdc$stream_id" blob, "cdc$time" timeuuid, "cdc$batch_seq_no" int, v blob, '
        'PRIMARY KEY ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")) '
        'WITH CLUSTERING ORDER BY ("cdc$time" ASC, "cdc$batch_seq_no" ASC) AND gc_grace_seconds = 0'
    )
    insert = session.prepare(
        f'INSERT INTO {log} ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", v) VALUES (?, ?, ?, ?) USING TTL ?'
    )
    batch = BatchStatement(BatchType.UNLOGGED)
    moment = uuid.uuid1()
    for number in range(16):
        batch.add(insert, (b"\0" * 16, moment, number, bytes(1024 * 1024), 20 * 365 * 24 * 3600))
    session.execute(batch)
    assert session.execute(f"SELECT count(*) AS rows FROM {log}").one()["rows"] == 16


def test_schema_metadata_of_the_driver_is_whole(session: Session, keyspace: str) -> None:
    """The driver's own view of the schema is current right after CREATE TABLE with cdc."""
    session.execute(f"CREATE TABLE {keyspace}.seen (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    assert list(session.cluster.metadata.keyspaces[keyspace].tables["seen"].columns) == ["pk", "v"]


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
    cluster = _connect(local_stack)
    try:
        assert _extensions(cluster.connect(), table[:-2], "t") == {"cdc": _ENABLED_BLOB}
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
        good = _connect(stack, auth_provider=PlainTextAuthProvider("cassandra", "cassandra"))
        assert good.connect().execute("SELECT key FROM system.cdc_local").one()["key"] == "rewritten"
        good.shutdown()
        bad = _connect(stack, auth_provider=PlainTextAuthProvider("cassandra", "wrong"))
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


def test_a_literal_of_megabytes_passes_unchanged(session: Session, keyspace: str) -> None:
    """The rewriter reads long statements whole and changes nothing in their literals."""
    session.execute(f"CREATE TABLE {keyspace}.big (pk int PRIMARY KEY, v text)")
    value = "cdc " * 1_000_000
    session.execute(SimpleStatement(f"INSERT INTO {keyspace}.big (pk, v) VALUES (1, '{value}')"))
    assert session.execute(f"SELECT v FROM {keyspace}.big").one()["v"] == value
