"""The source by itself, as a PySpark user has it: no Kafka, no registry, no job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.config.document import ScyllaSettings
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[3]
SCHEMA = TableSchema(
    "alone",
    "t",
    (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    ),
)

# A user's program: what has arrived is written as text, so that another process can look at it.
PROGRAM = """
import sys
from pyspark.sql import SparkSession, functions as f
from spark.source.source import ScyllaCdcSource

address, checkpoint, output, trigger = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
session.dataSource.register(ScyllaCdcSource)
changes = (
    session.readStream.format("scylla-cdc")
    .option("scylla.contact_points", address)
    .option("table", "alone.t")
    .option("reading.confidence_ms", "0")
    .option("payload", "json")
    .option("lanes", "2")
    .load()
)
writer = (
    changes.select(f.col("key").cast("string"), f.col("value").cast("string"))
    .writeStream.format("json")
    .option("path", output)
    .option("checkpointLocation", checkpoint)
)
if trigger == "available-now":
    writer.trigger(availableNow=True).start().awaitTermination()
else:
    query = writer.trigger(processingTime="200 milliseconds").start()
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        query.awaitTermination(1)  # raises what ended the query
    query.stop()
"""


def run(stack: LocalStack, folder: Path, trigger: str) -> list[dict[str, str]]:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    output = folder / "output"
    kept = {name: os.environ[name] for name in ("JDK_JAVA_OPTIONS", "PYTHONPYCACHEPREFIX") if name in os.environ}
    finished = subprocess.run(
        [sys.executable, str(program), stack.cql, str(folder / "checkpoint"), str(output), trigger],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [json.loads(line) for file in output.glob("*.json") for line in file.read_text().split("\n") if line]


def test_source_alone_gives_every_change_once_over_restarts(local_stack: LocalStack, tmp_path: Path) -> None:
    """AvailableNow reads what is there; a second run goes on from there, with a processing-time trigger too."""
    session = WritingSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    cluster = SimulatedCluster(session, seed=11)
    cluster.reset()
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 120_000))
    table = SimulatedTable(SCHEMA)
    table.drop(session)
    table.create(session)
    simulator = Simulator(session, cluster, [table], seed=11)
    workload = Workload(SCHEMA, seed=11, keys=50)
    simulator.load(
        table, spread(workload, count=400, start_us=UnixMicros(now_us - 100_000_000), until_us=UnixMicros(now_us - 10))
    )
    first = run(local_stack, tmp_path, "available-now")
    assert len(first) == len(simulator.oracle)
    now_us = system_clock_us()
    simulator.load(table, spread(workload, count=100, start_us=UnixMicros(now_us), until_us=UnixMicros(now_us + 100)))
    session.close()
    seen = run(local_stack, tmp_path, "processing-time")
    positions = {
        (source["stream_id"], source["time"], source["batch_seq_no"])
        for source in (json.loads(row["value"])["source"] for row in seen)
    }
    assert len(seen) == len(positions) == len(simulator.oracle)
    expected = sorted(
        (change.operation, int.from_bytes(change.partition_key[0], "big", signed=True)) for change in simulator.oracle
    )
    operations = (json.loads(row["value"])["source"]["operation"] for row in seen)
    found = zip(operations, (json.loads(row["key"])["pk"] for row in seen), strict=True)
    assert sorted(found) == expected
