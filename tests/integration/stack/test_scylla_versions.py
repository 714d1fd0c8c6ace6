"""The bridge on a server that shows the system tables of one version of ScyllaDB after the other, as upgraded nodes do.

The columns are those that the versions' own sources give these tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.stream_metadata import VnodeStreams, stream_metadata
from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.config.document import ScyllaSettings
from bridge.errors import BridgeError
from bridge.model.streams import MAX_TOKEN, StreamId, TokenRange
from bridge.model.times import UnixMillis
from bridge.runtime.java import find_java
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.source import statements_of
from sandbox.errors import LocalStackError
from sandbox.scylla.cluster.older_versions import forget_upgrade, publish_old, upgrade
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.stack import processes, server
from sandbox.stack.cql_server import CqlServer
from sandbox.stack.jars import Jars
from sandbox.stack.ports import free_ports
from sandbox.stack.scylla_versions import LAST_WITH_MARK, NEWEST, VERSIONS, check_upgrade, system_tables
from sandbox.writing_session import WritingSession

pytestmark = pytest.mark.integration

WHOLE = TokenRange(None, MAX_TOKEN)
SINCE_5_2 = {
    ("system_schema", "scylla_keyspaces"): {"keyspace_name", "storage_type", "storage_options"},
    ("system_schema", "scylla_tables"): {"keyspace_name", "table_name", "version", "cdc", "partitioner"},
    ("system", "cdc_local"): {"key", "streams_timestamp", "uuid"},
    ("system", "versions"): {"key", "build_id", "build_mode", "version"},
    ("system_distributed", "cdc_generation_timestamps"): {"key", "time", "expired"},
    ("system_distributed", "cdc_streams_descriptions_v2"): {"time", "range_end", "streams"},
}
LATER = (
    ("6.2", "system_schema", "scylla_keyspaces", {"initial_tablets"}),
    ("6.2", "system_schema", "scylla_tables", {"committed_by_group0"}),
    ("2025.4", "system_schema", "scylla_tables", {"tablets"}),
    ("2025.4", "system", "cdc_timestamps", {"keyspace_name", "table_name", "timestamp"}),
    ("2025.4", "system", "cdc_streams", {"keyspace_name", "table_name", "timestamp", "stream_state", "stream_id"}),
    ("2026.2", "system_schema", "scylla_keyspaces", {"consistency"}),
    ("2026.2", "system_schema", "scylla_tables", {"storage_engine"}),
)
OF_THE_STACK = {"ring_token", "no_stream_id"}
"""Columns that sort the rows of `cdc_streams` here as ScyllaDB does by itself, and filter them as wrongly."""


def is_in(since: str, version: str) -> bool:
    return VERSIONS.index(since) <= VERSIONS.index(version)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, shared_jars: Path) -> Iterator[WritingSession]:
    """A server that was started as the oldest version."""
    folder = tmp_path_factory.mktemp("versions")
    java = find_java()
    jars = Jars(shared_jars, java)
    jars.ensure(print)
    port, storage_port = free_ports(2)
    node = CqlServer(folder / "cql", folder / "cql.log", port, storage_port, java, jars, version=VERSIONS[0])
    process = server.launch(node)
    try:
        server.wait_ready(node, process, timeout_s=300)
        made = WritingSession.connect(ScyllaSettings(contact_points=(f"127.0.0.1:{port}",), consistency="ONE"))
        yield made
        made.close()
    finally:
        processes.kill(process)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest, session: WritingSession) -> str:
    """The server as a node that was upgraded to one version after the other."""
    session.execute("USE scylla_system_tables")
    for statement in system_tables(request.param):
        session.execute(statement)
    return str(request.param)


def cql(session: WritingSession, text: str) -> None:
    LocalCql(session, lambda _: None).run(statements_of(text, "text"), "text")


def keyspace_of(version: str, kind: str) -> str:
    return f"{kind}_{version.replace('.', '_')}"


def create_keyspace(session: WritingSession, name: str, tablets: str = "") -> None:
    strategy = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    cql(session, f"CREATE KEYSPACE {name} WITH replication = {strategy}{tablets};")


def test_system_tables_are_those_of_the_version(session: WritingSession, version: str) -> None:
    """Tables that came later are absent, and so are their columns."""
    expected = {table: set(columns) for table, columns in SINCE_5_2.items()}
    for since, keyspace, table, columns in LATER:
        if is_in(since, version):
            expected.setdefault((keyspace, table), set()).update(columns)
    tables = {*SINCE_5_2, *((keyspace, table) for _, keyspace, table, _ in LATER)}
    query = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{}' AND table_name = '{}'"
    found = {table: {row["column_name"] for row in session.rows(query.format(*table))} for table in tables}
    assert {table: columns - OF_THE_STACK for table, columns in found.items() if columns} == expected


def test_bridge_reads_vnodes(session: WritingSession, version: str, caplog: pytest.LogCaptureFixture) -> None:
    """A captured table's streams are found, and the server refuses no statement on the way."""
    keyspace = keyspace_of(version, "vnodes")
    create_keyspace(session, keyspace)
    cql(session, f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}};")
    assert session.rows("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?", (keyspace,)) == []
    fresh = WritingSession.connect(session.settings)
    try:
        with caplog.at_level(logging.WARNING):
            log = ChangeLog(fresh)
            log.check_captured(keyspace, "t")
            log.check_readable(keyspace, "t")
            metadata = log.stream_metadata(keyspace, "t")
            assert type(metadata) is VnodeStreams
            newest = metadata.generations()[-1]
            assert metadata.count(newest.start_ms) == len(metadata.streams(newest.start_ms, WHOLE)) > 0
            assert not metadata.may_lag
        assert caplog.messages == []
    finally:
        fresh.close()


def test_tablets(session: WritingSession, version: str, caplog: pytest.LogCaptureFixture) -> None:
    """Unknown before 6.0, without CDC before 2025.4; then each table has streams, listed in token order."""
    keyspace = keyspace_of(version, "tablets")
    tablets = " AND tablets = {'enabled': true, 'initial': 4}"
    create_table = f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}};"
    if not is_in("6.2", version):
        with pytest.raises(LocalStackError, match="Unknown property 'tablets'"):
            create_keyspace(session, keyspace, tablets)
        return
    create_keyspace(session, keyspace, tablets)
    if not is_in("2025.4", version):
        with pytest.raises(LocalStackError, match=rf"table {keyspace}\.t, because keyspace uses tablets\. See issue"):
            cql(session, create_table)
        return
    cql(session, create_table)
    cql(session, f"ALTER TABLE {keyspace}.t WITH tablets = {{'min_tablet_count': 16}};")
    fresh = WritingSession.connect(session.settings)
    try:
        with caplog.at_level(logging.WARNING):
            ChangeLog(fresh).check_readable(keyspace, "t")
            metadata = stream_metadata(fresh, keyspace, "t")
            assert type(metadata) is TabletStreams
            first, second, third = (one.start_ms for one in metadata.generations())
            assert [metadata.count(one) for one in (first, second, third)] == [4, 8, 16]
            assert third - second == 187
            assert len(metadata.streams(third, WHOLE)) == 16
        assert caplog.messages == []
        query = "SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? AND timestamp = ?"
        listed = [StreamId(bytes(row["stream_id"])) for row in fresh.rows(query, (keyspace, "t", first))][:4]
        assert [one.token for one in listed] == sorted(one.token for one in listed)
        filtered = f"{query} AND stream_state = ? AND stream_id = ?"
        assert fresh.rows(filtered, (keyspace, "t", first, 0, listed[0].raw)) == []
    finally:
        fresh.close()


def test_generations_of_a_node_without_the_mark(session: WritingSession, version: str) -> None:
    """From 2026.2 on a new node has no mark, but knows all generations; before, the copy is marked."""
    forget_upgrade(session)
    cluster = SimulatedCluster(session, seed=3)
    cluster.reset()
    try:
        old = [cluster.add_generation(UnixMillis(1_700_000_000_000 + at), publish=False) for at in (0, 1000)]
        for generation in old:
            publish_old(session, generation)
        assert upgrade(session, old[1:]) == is_in(version, LAST_WITH_MARK)
        later = cluster.add_generation(UnixMillis(1_700_000_002_000))
        metadata = VnodeStreams(session)
        known = [one.start_ms for one in metadata.generations()]
        assert known[-2:] == [old[1].start_ms, later.start_ms]
        assert (len(known) == 3) == (version == NEWEST)
        for generation in (old[1], later):
            assert set(metadata.streams(generation.start_ms, WHOLE)) == set(generation.streams())
        assert not metadata.may_lag
    finally:
        session.execute("TRUNCATE system_distributed.cdc_streams_descriptions")
        cluster.reset()


def test_version_never_goes_back() -> None:
    """Data of a later version, and versions that are not known, are refused."""
    check_upgrade("5.2", NEWEST)
    with pytest.raises(
        LocalStackError, match=r"data are those of ScyllaDB 2026\.2, and ScyllaDB has no way back to 5\.2"
    ):
        check_upgrade(NEWEST, "5.2")
    with pytest.raises(LocalStackError, match=r"ScyllaDB 4\.4 is not known here\. Choose one of 5\.2, "):
        check_upgrade(NEWEST, "4.4")


def test_cdc_options_of_the_version(session: WritingSession) -> None:
    """A server of an earlier version refuses the options that 2026.2 added for its own use."""
    keyspace = "cdc_options"
    create_keyspace(session, keyspace)
    for option in ("enable_requested", "tablet_merge_blocked"):
        with pytest.raises(BridgeError, match=f"Invalid CDC option: {option}"):
            session.execute(f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY) WITH cdc = {{'{option}': true}}")
