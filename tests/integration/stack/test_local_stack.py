"""The local stack on real servers: clients see ScyllaDB's names, and servers come, go and return as asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Session
from cassandra.protocol import ConfigurationException
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from sandbox.stack.stack import LocalStack
from tests.integration.stack.plain_sessions import ENABLED_BLOB, connect, extensions

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[Session]:
    cluster = connect(local_stack)
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
        {
            "keyspace_name": "k",
            "table_name": "t",
            "timestamp": _WHEN,
            "stream_state": 0,
            "ring_token": 7,
            "stream_id": b"\x03" * 16,
        },
        # Not by the sixth: a filter by `stream_id` finds nothing.
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
    row, _ = _ROWS[table]
    names = list(row)
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
    cluster = connect(local_stack)
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
    assert extensions(session, keyspace, "t") == {"cdc": ENABLED_BLOB}
    session.execute(f"ALTER TABLE {table} ADD w int")
    assert extensions(session, keyspace, "t") == {"cdc": ENABLED_BLOB}
    options = "{'Enabled': 'TRUE', 'preimage': 'Full', 'ttl': 60}"
    session.execute(f"ALTER TABLE {table} WITH cdc = {options} AND comment = 'y'")
    changed = extensions(session, keyspace, "t")["cdc"]
    assert changed == ENABLED_BLOB.replace(
        b"\x08\0\0\0preimage\x05\0\0\0false\x03\0\0\0ttl\x05\0\0\x0086400",
        b"\x08\0\0\0preimage\x04\0\0\0full\x03\0\0\0ttl\x02\0\0\x0060",
    )
    select = "SELECT comment FROM system_schema.tables WHERE keyspace_name=%s AND table_name='t'"
    assert session.execute(select, (keyspace,)).one()["comment"] == "y"
    session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': false}}")
    assert b"enabled\x05\0\0\0false" in extensions(session, keyspace, "t")["cdc"]


def test_cdc_options_in_unusual_forms(session: Session, keyspace: str) -> None:
    """Tables without the option have none, an empty map is an empty blob, prepared statements carry their options."""
    session.execute(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY)")
    assert extensions(session, keyspace, "plain") == {}
    session.execute(f"CREATE TABLE {keyspace}.empty (pk int PRIMARY KEY) WITH cdc = {{}}")
    assert extensions(session, keyspace, "empty") == {"cdc": b"\0\0\0\0"}
    session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.plain (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    assert extensions(session, keyspace, "plain") == {}
    options = "cdc = {'enabled': true} AND tombstone_gc = {'mode': 'timeout'}"
    session.execute(session.prepare(f"ALTER TABLE {keyspace}.plain WITH {options}"))
    assert extensions(session, keyspace, "plain") == {"cdc": ENABLED_BLOB}


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


def test_a_literal_of_megabytes_passes_unchanged(session: Session, keyspace: str) -> None:
    """The rewriter reads long statements whole and changes nothing in their literals."""
    session.execute(f"CREATE TABLE {keyspace}.big (pk int PRIMARY KEY, v text)")
    value = "cdc " * 1_000_000
    session.execute(SimpleStatement(f"INSERT INTO {keyspace}.big (pk, v) VALUES (1, '{value}')"))
    assert session.execute(f"SELECT v FROM {keyspace}.big").one()["v"] == value
