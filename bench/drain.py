"""How fast, and at what cost, the bridge drains a log that is full."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import topics
from bench.bridge_run import BridgeRun, Measured, Servers, new_name
from bench.errors import BenchError
from bench.figures import Figures, memory_figures
from bench.tables import KEYSPACE
from bench.watch import Watch

_READ_BACK_S: Final = 60.0
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain that came out right.

    Attributes:
        changes: how many.
        size_bytes: of all keys and values.
        first_s: when the first record was published, in s since the epoch.
        last_s: when the last cursor was.
        measured: the job's own processes.
    """

    changes: int
    size_bytes: int
    first_s: float
    last_s: float
    measured: Measured

    @property
    def per_s(self) -> float:
        """Changes a second from the first record to the last cursor."""
        return self.changes / (self.last_s - self.first_s)


def drain(
    folder: Path,
    servers: Servers,
    table: str,
    written: set[bytes],
    *,
    lanes: int,
    settings: Mapping[str, Any],
    timeout_s: float,
    watch: Watch,
) -> Figures:
    """The figures of `drained`, with the cores that the servers had, whom `watch` follows; the rest as there."""
    found = drained(folder, servers, table, written, lanes=lanes, settings=settings, timeout_s=timeout_s)
    return {**_figures(found), "cores": watch.cores_between(found.first_s, found.last_s)}


def drained(
    folder: Path,
    servers: Servers,
    table: str,
    written: set[bytes],
    *,
    lanes: int,
    settings: Mapping[str, Any],
    timeout_s: float,
    meanwhile: Callable[[BridgeRun], None] | None = None,
) -> Drained:
    """Run the bridge once over a filled log, then hold the topic against what was written.

    Args:
        folder: as of `BridgeRun`.
        servers: as of `BridgeRun`.
        table: one of `bench.tables`.
        written: the positions of its changes.
        lanes: of the bridge.
        settings: further sections of the configuration file.
        timeout_s: longest time for the run.
        meanwhile: called once it is started; the run is waited for when that returns.

    Raises:
        BenchError: the bridge failed or took too long, or a change is missing, doubled or unknown.
    """
    spark = {**settings.get("spark", {}), "lanes": lanes}
    run = BridgeRun(
        folder,
        servers,
        name=new_name(table, "drain"),
        table=f"{KEYSPACE}.{table}",
        settings={**settings, "spark": spark},
        once=True,
    )
    with run:
        if meanwhile is not None:
            meanwhile(run)
        measured = run.wait(timeout_s)
    first_ms, size_bytes = _verify(servers.kafka, run, written)
    # A lane's cursor is the last record of each transaction.
    last_ms = max(seen.produced_ms for seen in topics.read_all(servers.kafka, run.progress_topic, timeout_s=30))
    topics.delete(servers.kafka, run.topic, run.progress_topic)
    if last_ms <= first_ms:
        raise BenchError(f"{len(written)} changes were published within a millisecond: take more of them (--changes)")
    return Drained(len(written), size_bytes, first_ms / 1000, last_ms / 1000, measured)


def _verify(kafka: str, run: BridgeRun, written: set[bytes]) -> tuple[int, int]:
    """Check the topic; gives when its first record was produced, in ms, and the bytes of all keys and values."""
    arrived: set[bytes] = set()
    count = size = 0
    first_ms: int | None = None
    # Every other collection would walk through all positions: of ten millions for a quarter of an hour.
    gc.disable()
    try:
        for seen in topics.read_all(kafka, run.topic, timeout_s=_READ_BACK_S):
            count += 1
            arrived.add(seen.position)
            size += seen.size_bytes
            first_ms = seen.produced_ms if first_ms is None else min(first_ms, seen.produced_ms)
    finally:
        gc.enable()
    missing, unknown = len(written - arrived), len(arrived - written)
    doubled = count - len(arrived)
    if missing or unknown or doubled or first_ms is None:
        raise BenchError(
            f"{run.topic} is wrong: {len(written)} changes written, {count} records, {missing} missing, "
            f"{doubled} doubled, {unknown} unknown.{run.tail()}"
        )
    return first_ms, size


def _figures(found: Drained) -> Figures:
    changes, first_s, last_s, measured = found.changes, found.first_s, found.last_s, found.measured
    seconds = last_s - first_s
    millions = changes / _MILLION
    return {
        "changes": changes,
        "changes_per_s": found.per_s,
        "changes_per_s_with_startup": changes / (last_s - measured.began_s),
        "seconds": seconds,
        "startup_s": first_s - measured.began_s,
        "mib_per_s": found.size_bytes / 1024 / 1024 / seconds,
        "cpu_s_per_million": measured.cpu_s / millions,
        "cpu_s_per_million_streaming": measured.cpu_s_between(first_s, last_s) / millions,
        "cores_used": measured.cpu_s_between(first_s, last_s) / seconds,
        "cpu_s_startup": measured.cpu_s_between(measured.began_s, first_s),
        "cpu_s_by_role": measured.cpu_s_by_role,
        "processes": measured.processes,
        "peak_rss_mib": measured.peak_rss_mib,
        "peak_pss_mib": measured.peak_pss_mib,
        **memory_figures(measured.memory, first_s, last_s, changes),
    }
