"""Measures one job over many tables: time to deliver, memory, cost at rest, and latency of a few busy tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.data import fill, tables, topics
from bench.data.fill import Cluster, Positions
from bench.data.tables import KEYSPACE
from bench.data.topics import Follower
from bench.errors import BenchError
from bench.figures import Figures, percentile
from bench.local_stack import say
from bench.processes.bridge_run import BridgeRun, Servers, new_name
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import KafkaSettings
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.write_times import paced, spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession

_SHAPE: Final = "narrow"
_GENERATION_S_AGO: Final = 60
_ROW_S_AGO: Final = 30
_LOOK_EVERY_S: Final = 0.5
_BUSY_TABLES: Final = 5
_RATE_PER_S: Final = 200.0
_WARM_UP_S: Final = 35.0
"""A table that was silent is read again after `reading.idle_interval_ms` at the latest, 30 s by default."""
_LEFTOVERS_S: Final = 60.0
_POLL_S: Final = 0.05
COLUMNS: Final = (
    ("tables", "tables"),
    ("seconds_to_last", "s to the last table's change"),
    ("peak_pss_mib", "peak PSS MiB"),
    ("idle_cores", "cores at rest"),
    ("p99_ms", "p99 ms of busy tables"),
)
"""The columns of the printed table."""


def measure(
    stack: LocalStack, count: int, *, lanes: int, confidence_ms: int, settle_s: float, seconds: float, timeout_s: float
) -> Figures:
    """Run one job over tables of one row each, and measure it.

    Args:
        stack: the servers.
        count: number of tables.
        lanes: lanes of each table.
        confidence_ms: the confidence window.
        settle_s: how long the job rests after its last delivery before its cost at rest is measured.
        seconds: how long the cost at rest is measured, and then how long the busy tables are written.
        timeout_s: longest time until every table has delivered its row.

    Returns:
        `tables`, `seconds_to_last` (from the start of the process to the delivery of the last table's row),
        `peak_pss_mib`, `processes`, `idle_cores`, and `p99_ms` of the busy tables.

    Raises:
        BenchError: the job failed or took too long, or a change is missing or doubled.
    """
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    simulated = [_numbered_table(number) for number in range(count)]
    settings = {
        "spark": {"lanes": lanes},
        "reading": {"confidence_ms": confidence_ms},
        "kafka": {"bootstrap_servers": [servers.kafka], "partitions": 1},
    }
    session = fill.connect(servers.cql)
    try:
        say(f"{count} tables: creating them with one row each")
        cluster = _fill(session, simulated)
        run = BridgeRun(
            stack.folder / "bench",
            servers,
            name=new_name(str(count), "tables"),
            tables=[one.table_schema.full_name for one in simulated],
            settings=settings,
            once=False,
        )
        found = _follow_run(run, session, cluster, simulated, servers.kafka, settle_s, seconds, timeout_s)
        topics.delete(servers.kafka, *run.topics.values(), *run.progress_topics.values())
        for one in simulated:
            one.drop(session)
    finally:
        session.close()
    return {"tables": count, **found, "lanes": lanes, "confidence_ms": confidence_ms}


def _follow_run(
    run: BridgeRun,
    session: WritingSession,
    cluster: SimulatedCluster,
    simulated: Sequence[SimulatedTable],
    kafka: str,
    settle_s: float,
    seconds: float,
    timeout_s: float,
) -> Figures:
    """Run the job through its start, its rest and its busy time, and return the figures."""
    count = len(simulated)
    with run:
        began_s = time.time()
        _await_deliveries(kafka, run, timeout_s)
        delivered_s = time.time()
        say(f"{count} tables: delivered after {delivered_s - began_s:.0f} s; resting for {settle_s:.0f} s")
        _rest(run, settle_s)
        idle_from_s = time.time()
        _rest(run, seconds)
        idle_until_s = time.time()
        say(f"{count} tables: writing to {min(count, _BUSY_TABLES)} of them for {_WARM_UP_S + seconds:.0f} s")
        latencies_ms = _busy_latencies(session, cluster, simulated[:_BUSY_TABLES], run, kafka, seconds)
        measured = run.stop()
    return {
        "seconds_to_last": delivered_s - began_s,
        "peak_pss_mib": measured.peak_pss_mib,
        "processes": measured.processes,
        "idle_cores": measured.cpu_s_between(idle_from_s, idle_until_s) / (idle_until_s - idle_from_s),
        "p99_ms": percentile(sorted(latencies_ms), 0.99),
    }


def _numbered_table(number: int) -> SimulatedTable:
    schema = tables.table(_SHAPE).table_schema
    return SimulatedTable(replace(schema, keyspace=KEYSPACE, name=f"many_{number:04}"))


def _fill(session: WritingSession, simulated: Sequence[SimulatedTable]) -> SimulatedCluster:
    """Recreate the tables and write one change of each."""
    size = Cluster()
    made = SimulatedCluster(session, seed=size.seed, vnodes=size.vnodes, shards=size.shards)
    made.reset()
    now_us = system_clock_us()
    made.add_generation(UnixMillis(now_us // 1000 - _GENERATION_S_AGO * 1000))
    start_us = UnixMicros(now_us - _ROW_S_AGO * 1_000_000)
    for one in simulated:
        one.drop(session)
        one.create(session)
        simulator = Simulator(session, made, [one], seed=1, oracle=Positions())
        mutations = tables.mutations(one, seed=1, pool_size=1)
        simulator.load(one, spread(mutations, count=1, start_us=start_us, until_us=UnixMicros(start_us + 1)))
    return made


def _await_deliveries(kafka: str, run: BridgeRun, timeout_s: float) -> None:
    """Wait until each table's topic has a committed record."""
    settings = KafkaSettings(bootstrap_servers=(kafka,))
    admin = KafkaAdmin(settings, quiet=True)
    pending = set(run.topics.values())
    deadline_s = time.monotonic() + timeout_s
    with CommittedReader(settings) as reader:
        while pending:
            if time.monotonic() > deadline_s:
                raise BenchError(f"{len(pending)} tables delivered nothing within {timeout_s:.0f} s.{run.tail()}")
            run.check()
            time.sleep(_LOOK_EVERY_S)
            pending -= {topic for topic in admin.topics_now(sorted(pending)) if reader.end(topic, 0)}


def _rest(run: BridgeRun, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        run.check()
        time.sleep(min(left_s, _LOOK_EVERY_S))


def _busy_latencies(
    session: WritingSession,
    cluster: SimulatedCluster,
    busy: Sequence[SimulatedTable],
    run: BridgeRun,
    kafka: str,
    seconds: float,
) -> list[float]:
    """Write to some tables at a steady rate, and return latencies in ms once they are read without pauses.

    Raises:
        BenchError: a change is missing or doubled.
    """
    writing_s = _WARM_UP_S + seconds
    writers = [_BusyWriter(session, cluster, one, writing_s, seed) for seed, one in enumerate(busy, start=1)]
    topics_read = [run.topics[one.table_schema.full_name] for one in busy]
    from_us = system_clock_us()
    measured_from_us = from_us + round(_WARM_UP_S * 1e6)
    arrived: set[bytes] = set()
    latencies_ms: list[float] = []
    with Follower(kafka, *topics_read) as follower:
        for writer in writers:
            writer.start()
        deadline_s = time.monotonic() + writing_s + _LEFTOVERS_S
        while any(writer.is_alive() for writer in writers) or len(arrived) < sum(one.written for one in writers):
            if time.monotonic() > deadline_s:
                raise BenchError(f"changes are missing after {_LEFTOVERS_S:.0f} s.{run.tail()}")
            run.check()
            for seen in follower.poll(_POLL_S):
                at_us = topics.written_us(seen.position)
                if at_us < from_us:
                    continue  # the row from before the start
                if seen.position in arrived:
                    raise BenchError(f"a change of {run.name} came twice.{run.tail()}")
                arrived.add(seen.position)
                if at_us >= measured_from_us:
                    latencies_ms.append((seen.received_us - at_us) / 1000)
    if {position for one in writers for position in one.positions} != arrived:
        raise BenchError(f"the changes that arrived are not those that were written.{run.tail()}")
    return latencies_ms


class _BusyWriter(threading.Thread):
    """Writes to one table at a steady rate, with a seed of its own: two changes never have the same position.

    Attributes:
        written: number of acknowledged changes once the thread has ended.
    """

    def __init__(
        self,
        session: WritingSession,
        cluster: SimulatedCluster,
        simulated: SimulatedTable,
        seconds: float,
        seed: int,
    ) -> None:
        super().__init__(daemon=True)
        self._oracle = Positions()
        self._simulated = simulated
        self._simulator = Simulator(session, cluster, [simulated], seed=seed, oracle=self._oracle)
        self._count = round(_RATE_PER_S * seconds)
        self.written = 0

    @property
    def positions(self) -> set[bytes]:
        """The positions of the acknowledged changes."""
        return self._oracle.positions

    def run(self) -> None:
        """Write."""
        mutations = paced(tables.mutations(self._simulated, seed=1), count=self._count, rate_per_s=_RATE_PER_S)
        self.written = self._simulator.write_many(self._simulated, mutations, base=False)
