"""Fills a table's log and keeps the positions of its changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bench.data import tables
from bridge.config.document import ScyllaSettings
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.oracle import ExpectedChange, Oracle
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession

_GENERATIONS_S_AGO: Final = (600, 300)
_FROM_S_AGO: Final = 590
_UNTIL_S_AGO: Final = 20


class Positions(Oracle):
    """An oracle that keeps of each change only its position: stream id, `cdc$time`, number."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: set[bytes] = set()

    def append(self, change: ExpectedChange) -> None:
        """Take one more change."""
        self.positions.add(change.stream_id + change.time + change.batch_seq_no.to_bytes(4, "big"))

    def extend(self, changes: Iterable[ExpectedChange]) -> None:
        """Take several."""
        for change in changes:
            self.append(change)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The simulated cluster's size: `vnodes` tokens and `shards` shards for each node; one node a generation."""

    vnodes: int = 16
    shards: int = 2
    seed: int = 1


def connect(cql: str) -> WritingSession:
    """Connect with a long request timeout, because a busy machine answers late."""
    return WritingSession.connect(ScyllaSettings(contact_points=(cql,), request_timeout_ms=60_000))


def load(session: WritingSession, table_name: str, *, changes: int, cluster: Cluster) -> set[bytes]:
    """Recreate the table and its log, and write changes over the last ten minutes, in two generations.

    Returns:
        The positions of the changes.

    Raises:
        RetriableError, BridgeError: the server failed.
    """
    simulated = tables.table(table_name)
    simulated.drop(session)
    simulated.create(session)
    simulated_cluster = SimulatedCluster(session, seed=cluster.seed, vnodes=cluster.vnodes, shards=cluster.shards)
    simulated_cluster.reset()
    now_us = system_clock_us()
    for seconds in _GENERATIONS_S_AGO:
        simulated_cluster.add_generation(UnixMillis(now_us // 1000 - seconds * 1000))
    positions = Positions()
    simulator = Simulator(session, simulated_cluster, [simulated], seed=cluster.seed, oracle=positions)
    timed = spread(
        tables.mutations(simulated, seed=cluster.seed),
        count=changes,
        start_us=UnixMicros(now_us - _FROM_S_AGO * 1_000_000),
        until_us=UnixMicros(now_us - _UNTIL_S_AGO * 1_000_000),
    )
    simulator.load(simulated, timed)
    return positions.positions
