"""What a new user does on the local stack: CQL, a job, a look at what arrived, and a stop that hits every process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.adapters.scylla.stream_metadata import VnodeStreams, stream_metadata
from bridge.model.streams import MAX_TOKEN, TokenRange
from bridge.model.times import UnixMicros
from sandbox.cql.catalog import TableName
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.source import statements_of
from sandbox.local.stream_changes import Ahead, StreamChanges
from sandbox.scylla.cluster.simulated_cluster import clear_generations
from sandbox.scylla.write_times import system_clock_us
from sandbox.stack.scylla_versions import NEWEST, VERSIONS
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = pytest.mark.integration

_REPOSITORY = Path(__file__).resolve().parents[3]

FIRST = """
CREATE KEYSPACE first WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1};
USE first;
CREATE TYPE place (street text, "No" int);
CREATE TABLE "LineItems" (
    id int, line int, status text, note text, tags set<text>, at place, events list<int>, total int static,
    PRIMARY KEY (id, line)
) WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true};
INSERT INTO "LineItems" (id, line, status, note, tags, at, events, total)
    VALUES (7, 1, 'new', 'hi', {'a'}, {street: 'x', "No": 3}, [1, 2], 5);
"""
THEN = """
UPDATE first."LineItems" USING TTL 3600 SET status = 'paid', note = null, tags = tags + {'gift'}
    WHERE id = 7 AND line = 1 IF status = 'new';
ALTER TABLE first."LineItems" ADD extra bigint;
BEGIN BATCH
    INSERT INTO first."LineItems" (id, line, extra) VALUES (7, 2, 9);
    DELETE FROM first."LineItems" WHERE id = 7 AND line = 1;
APPLY BATCH;
"""


TABLETS = """
CREATE KEYSPACE depot WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}
    AND tablets = {'enabled': true, 'initial': 2};
CREATE TABLE depot.stock (id int PRIMARY KEY, pieces int) WITH cdc = {'enabled': true};
"""
STOCK = TableName("depot", "stock")
FIRST_WRITE, SECOND_WRITE = (f"INSERT INTO depot.stock (id, pieces) VALUES (1, {pieces});" for pieces in (1, 2))


def command(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridge.cli.main", *words],
        cwd=_REPOSITORY, input=text, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(params=[VERSIONS[0], NEWEST])
def dressed_stack(
    request: pytest.FixtureRequest, local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory, shared_jars: Path
) -> Iterator[LocalStack]:
    """A stack that shows the system tables of a version of ScyllaDB."""
    if request.param == NEWEST:
        yield local_stack
        return
    folder = tmp_path_factory.mktemp("older-stack")
    assert command("local", "up", "--folder", str(folder), "--scylla-version", request.param).returncode == 0
    stack = LocalStack.load(folder)
    try:
        yield stack
    finally:
        stack.down()


def test_first_steps(dressed_stack: LocalStack, tmp_path: Path) -> None:
    """Two invocations of `local cql` know of each other, their changes arrive, and SIGTERM to all of it is a stop.

    The log of a healthy job has no error, and nothing of Spark's log levels, refused statements and protocol versions.
    """
    local_stack = dressed_stack
    folder = ("--folder", str(local_stack.folder))
    file = tmp_path / "first.cql"
    file.write_text(FIRST, encoding="utf-8")
    for words, text in ((("-f", str(file)), None), ((), THEN)):
        done = command("local", "cql", *folder, *words, text=text)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "event loop" not in done.stdout + done.stderr.lower()
    # An insert is logged for static row and row each, an update for each TTL; a batch's rows in clustering order.
    table = {"name": 'first."LineItems"', "shape": "full"}
    with BridgeJob(local_stack, tmp_path, "steps", [table]) as job:
        job.start()
        (settings,) = job.config.tables
        wait_for("changes", lambda: job.arrived(job.config.topic_of(settings)) >= 6, timeout_s=240)
        assert job.process is not None
        jvm = job.jvm()
        os.killpg(job.process.pid, signal.SIGTERM)
        assert job.process.wait(60) == 0, job.log_tail()
        jvm.wait(30)
        log = job.log.read_text(encoding="utf-8")
        assert "stopped" in log
        assert "Py4J" not in log, job.log_tail()
        assert " ERROR " not in log, job.log_tail()
        for noise in ("log level", "Error preparing query", "Downgrading"):
            assert noise not in log, job.log_tail()
        consumed = command(
            "consume",
            "-c",
            str(tmp_path / "steps.yaml"),
            'first."LineItems"',
            "--from-beginning",
            "--until-end",
            "--json",
        )
    assert consumed.returncode == 0, consumed.stderr
    changes = [json.loads(line)["value"] for line in consumed.stdout.splitlines()]
    operations = ["static_update", "insert", "update", "update", "row_delete", "insert"]
    assert [change["op"] for change in changes] == operations
    _, inserted, nulled, updated, deleted, added = changes
    assert inserted["after"]["at"] == {"street": "x", "No": 3}
    assert (nulled["columns"]["note"], nulled["ttl"]) == ({"value": None}, None)
    assert (updated["before"]["status"], updated["after"]["status"], updated["ttl"]) == ("new", "paid", 3600)
    assert updated["after"]["tags"] == ["a", "gift"]
    assert deleted["before"]["status"] == "paid"
    assert added["columns"]["extra"] == {"value": 9}


def test_streams_change_when_the_user_says_so(session: WritingSession) -> None:
    """Programs that take turns write to the streams of the time, published or not; readers see them when they are."""
    now_us = system_clock_us()
    said: list[str] = []

    def changes() -> StreamChanges:
        return StreamChanges(session, said.append, lambda: now_us)

    def cql(text: str) -> None:
        LocalCql(session, said.append, lambda: now_us).run(statements_of(text, "text"), "text")

    def streams_of_log() -> list[bytes]:
        rows = session.rows('SELECT "cdc$stream_id" AS stream, "cdc$time" AS time FROM depot.stock_scylla_cdc_log')
        return [bytes(row["stream"]) for row in sorted(rows, key=lambda row: row["time"].time)]

    cql(TABLETS + FIRST_WRITE)
    start_ms = changes().resize(STOCK, "split", Ahead(5, publish=False), partial=False)
    now_us = UnixMicros(now_us + 6_000_000)
    cql(SECOND_WRITE)
    reader = stream_metadata(session, *STOCK)
    (first,) = reader.generations()
    changes().publish(STOCK)
    generations = stream_metadata(session, *STOCK).generations()
    assert [one.start_ms for one in generations] == [first.start_ms, start_ms]
    before, after = (
        {one.raw for one in reader.streams(start.start_ms, TokenRange(None, MAX_TOKEN))} for start in generations
    )
    assert (len(before), len(after)) == (2, 4)
    old, new = streams_of_log()
    assert (old in before, new in after) == (True, True)
    changes().old_format()
    seen = [one.start_ms for one in VnodeStreams(session).generations()]
    changes().new_generation(Ahead(5, publish=True))
    changes().upgrade()
    assert [one.start_ms for one in VnodeStreams(session).generations()][:-1] == seen
    cql("DROP KEYSPACE depot")
    assert stream_metadata(session, *STOCK).shared  # a keyspace that does not exist has no tablets
    clear_generations(session)
    session.execute("TRUNCATE system_distributed.cdc_streams_descriptions")
