"""Runs each stage of a bridge alone, as a plain loop, for comparison.

- `read`: scylla-driver reads the table's whole log, stream by stream, as dict rows.
- `encode`: fastavro writes key and envelope of each change from prepared dicts.
- `produce`: a transactional producer with the bridge's settings sends such records with their header.

Each loop runs in as many processes as the bridge has lanes. `python -m bench.stages` is one of these processes.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Any, Final

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cassandra.query import dict_factory
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from bench.data import fill, topics
from bench.data.tables import KEYSPACE
from bench.errors import BenchError
from bench.figures import Figures
from bench.processes.bridge_run import ROOT, Servers, environment
from bench.processes.watch import Watch
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession
from bridge.config.document import KafkaSettings
from bridge.encoding import grouping
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedChange, GroupEncoder
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId, lane_range
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from bridge.reading.table_capture import CapturedTable, capture
from schemas.options import RecordForm
from schemas.table_codec import TableCodec
from schemas.wire.framing import header

STAGES: Final = ("read", "encode", "produce")
_SAMPLE: Final = 20_000
_MOST_CHANGES: Final = 500_000
_PER_TRANSACTION: Final = 50_000
_READY_S: Final = 120.0
_TIMEOUT_S: Final = 600.0

Loop = Callable[[], int]
"""Runs a stage once; says how many changes it handled."""


def measure(servers: Servers, table: str, *, changes: int, parts: int, watch: Watch) -> dict[str, Figures]:
    """Run every stage over a table with a full log.

    Args:
        servers: addresses of the servers.
        table: name of one of `bench.data.tables`.
        changes: largest number of changes for each stage; `read` handles all.
        parts: number of parallel processes.
        watch: measures the servers.

    Returns:
        For each stage `per_s` and `cpu_s_per_million`, of all its processes together, and `cores` of the servers and of
        the machine meanwhile.

    Raises:
        BenchError: a process failed or did not end in time.
    """
    found = {}
    for stage in STAGES:
        topic = f"bench-stage-{table}-{time.time_ns() // 1_000_000}"
        if stage == "produce":
            settings = KafkaSettings(bootstrap_servers=(servers.kafka,))
            KafkaAdmin(settings).ensure_topic(topic, settings.partitions, {})
        count = max(1, min(changes, _MOST_CHANGES) // parts)
        found[stage] = _run(stage, servers, table, topic, count, parts, watch)
        if stage == "produce":
            topics.delete(servers.kafka, topic)
    return found


def _run(stage: str, servers: Servers, table: str, topic: str, count: int, parts: int, watch: Watch) -> Figures:
    with ExitStack() as stack:
        processes = []
        for part in range(parts):
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "bench.stages", stage, "--cql", servers.cql, "--kafka", servers.kafka,
                    "--table", table, "--topic", topic, "--count", str(count), "--part", f"{part}/{parts}",
                ],
                cwd=ROOT, env=environment(), text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(_end, process)
            processes.append(process)
        for process in processes:
            _line(stage, process, _READY_S)
        began_s = time.time()
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        results = [_line(stage, process, _TIMEOUT_S) for process in processes]
        ended_s = time.time()
    changes = sum(result["changes"] for result in results)
    return {
        "per_s": changes / max(result["seconds"] for result in results),
        "cpu_s_per_million": sum(result["cpu_s"] for result in results) / changes * 1e6,
        "cores": watch.cores_between(began_s, ended_s),
    }


def _line(stage: str, process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    # A process that says nothing in time is killed, which ends the wait for its line.
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    if not line:
        raise BenchError(f"the {stage} loop ended with status {process.wait()}, or took too long")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


# -- the loops, each in a process of its own ------------------------------------------------------------------------


def _streams(log: ChangeLog, table: str) -> list[tuple[UnixMillis, StreamId]]:
    metadata = log.stream_metadata(KEYSPACE, table)
    return [
        (generation.start_ms, stream)
        for generation in metadata.generations()
        for stream in metadata.streams(generation.start_ms, lane_range(0, 1))
    ]


def _read_loop(session: CqlSession, cql: str, table: str, part: int, parts: int) -> Loop:
    streams = [stream.raw for _, stream in _streams(ChangeLog(session), table)][part::parts]
    host, _, port = cql.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), row_factory=dict_factory, request_timeout=60)
    plain = Cluster(
        [host], port=int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile}, schema_metadata_enabled=False
    ).connect()
    prepared = plain.prepare(f'SELECT * FROM {KEYSPACE}."{table}_scylla_cdc_log" WHERE "cdc$stream_id" = ?')

    def loop() -> int:
        count = 0
        for stream in streams:
            for _row in plain.execute(prepared, (stream,)):
                count += 1
        return count

    return loop


def _sample(session: CqlSession, table: str) -> tuple[TableCodec, list[EncodedChange]]:
    """Return some of the table's changes as the bridge encodes them."""
    log = ChangeLog(session)
    captured = capture(log, KEYSPACE, table)
    return captured.codec, list(islice(_encoded(log, table, captured), _SAMPLE))


def _encoded(log: ChangeLog, table: str, captured: CapturedTable) -> Iterator[EncodedChange]:
    encoder = GroupEncoder(captured.codec, captured.layout, (KEYSPACE, table), RecordForm())
    for generation_ms, stream in _streams(log, table):
        start_us = millis_to_micros(generation_ms)
        window = Window(start_us, UnixMicros(time.time_ns() // 1000))
        state: bytes | None = None
        while True:
            page = captured.reader.page(stream, window, page_rows=5000, paging_state=state).result(60)
            for group in grouping.groups(iter(page.rows), captured.layout, incomplete="deliver"):
                yield from encoder.encode(group, generation_ms)
            state = page.paging_state
            if state is None:
                break


def _encode_loop(session: CqlSession, table: str, count: int) -> Loop:
    codec, sample = _sample(session, table)
    key_schema = parse_schema(json.loads(codec.key_avro_schema))
    value_schema = parse_schema(json.loads(codec.value_avro_schema))
    records = [
        (
            schemaless_reader(io.BytesIO(change.key), key_schema, None),
            # Records inside unions come with their names, as a fast writer would have them.
            schemaless_reader(io.BytesIO(change.value or b""), value_schema, None, return_record_name=True),
        )
        for change in sample
    ]

    def loop() -> int:
        for key, value in islice(cycle(records), count):
            body = io.BytesIO()
            schemaless_writer(body, key_schema, key)
            body.getvalue()
            body = io.BytesIO()
            schemaless_writer(body, value_schema, value)
            body.getvalue()
        return count

    return loop


def _produce_loop(session: CqlSession, kafka: str, table: str, topic: str, count: int) -> Loop:
    _, sample = _sample(session, table)
    framing = header(1)
    records: list[tuple[bytes, bytes, list[tuple[str, str | bytes | None]]]] = [
        (framing + change.key, framing + (change.value or b""), [(POSITION_HEADER, change.position)])
        for change in sample
    ]
    settings = KafkaSettings(bootstrap_servers=(kafka,))
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "transactional.id": f"{topic}-{uuid.uuid4()}",
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "partitioner": "murmur2_random",
            "compression.type": settings.compression,
            "linger.ms": settings.linger_ms,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 128 * 1024,
        }
    )
    producer.init_transactions(60)

    def loop() -> int:
        open_records = 0
        for key, value, headers in islice(cycle(records), count):
            if open_records == 0:
                producer.begin_transaction()
            while True:
                try:
                    producer.produce(topic, key=key, value=value, headers=headers)
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
            open_records += 1
            if open_records == _PER_TRANSACTION:
                producer.commit_transaction(60)
                open_records = 0
        if open_records:
            producer.commit_transaction(60)
        return count

    return loop


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of a stage: prepare, report it, wait for the end of the input, run, and report the result."""
    parser = argparse.ArgumentParser(prog="python -m bench.stages")
    parser.add_argument("stage", choices=STAGES)
    for name in ("--cql", "--kafka", "--table", "--topic", "--part"):
        parser.add_argument(name, required=True)
    parser.add_argument("--count", type=int, required=True)
    arguments = parser.parse_args(argv)
    part, parts = map(int, arguments.part.split("/"))
    session = fill.connect(arguments.cql)
    match arguments.stage:
        case "read":
            loop = _read_loop(session, arguments.cql, arguments.table, part, parts)
        case "encode":
            loop = _encode_loop(session, arguments.table, arguments.count)
        case _:
            loop = _produce_loop(session, arguments.kafka, arguments.table, arguments.topic, arguments.count)
    session.close()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    changes = loop()
    seconds, cpu_seconds = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    print(json.dumps({"changes": changes, "seconds": seconds, "cpu_s": cpu_seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
