"""How fast, and at what cost, the bridge drains a log that is full."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import topics
from bench.bridge_run import BridgeRun, Measured, Servers, new_name
from bench.errors import BenchError
from bench.figures import Figures, memory_figures
from bench.tables import KEYSPACE
from bench.watch import Watch
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import KafkaSettings
from bridge.model.kept_formats import LaneProgress

_READ_BACK_S: Final = 60.0
_CURSORS_WITHIN_S: Final = 30.0
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain that came out right.

    Attributes:
        changes: how many.
        size_bytes: of all keys and values.
        first_s: when the first record was published, in s since the epoch.
        settled_s: when the first micro-batch was done (see `settled`).
        settled_changes: how many were published after that.
        last_s: when the last cursor was.
        measured: the job's own processes.
    """

    changes: int
    size_bytes: int
    first_s: float
    settled_s: float
    settled_changes: int
    last_s: float
    measured: Measured

    @property
    def per_s(self) -> float:
        """Changes a second from the end of the first micro-batch to the last cursor."""
        return self.settled_changes / (self.last_s - self.settled_s)

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of the job's own processes for a million changes, in the same time."""
        return self.measured.cpu_s_between(self.settled_s, self.last_s) / self.settled_changes * _MILLION


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
    return {**_figures(found), "cores": watch.cores_between(found.settled_s, found.last_s)}


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
    published, size_bytes = _verify(servers.kafka, run, written)
    cursors = list(_cursors(servers.kafka, run.progress_topic))
    topics.delete(servers.kafka, run.topic, run.progress_topic)
    settled_ms = settled(cursors, min(published))
    # A lane's cursor is the last record of each transaction.
    last_ms = max(produced_ms for produced_ms, _ in cursors)
    later = sum(changes for produced_ms, changes in published.items() if produced_ms > settled_ms)
    if not later or last_ms <= settled_ms:
        raise BenchError(f"{len(written)} changes were published in one micro-batch: take more of them (--changes)")
    return Drained(len(written), size_bytes, min(published) / 1000, settled_ms / 1000, later, last_ms / 1000, measured)


def _cursors(kafka: str, topic: str) -> Iterable[tuple[int, LaneProgress]]:
    """What every lane has committed, and when it was produced, in ms."""
    settings = KafkaSettings(bootstrap_servers=(kafka,))
    with CommittedReader(settings) as reader:
        partitions = range(KafkaAdmin(settings).partitions(topic))
        for record in reader.read_to_end(topic, partitions, _CURSORS_WITHIN_S):
            assert record.value is not None
            yield record.timestamp_ms, LaneProgress.from_bytes(record.value)


def settled(cursors: Iterable[tuple[int, LaneProgress]], first_ms: int) -> int:
    """When the first micro-batch that published anything was done on every lane, in ms.

    What was read by then is published, so that the CPU time from here on is that of the changes that come later. At the
    first record it is not: whole pages of every stream are read and encoded before it.

    Args:
        cursors: what lanes have committed, and when.
        first_ms: when the first record was produced.
    """
    ends: dict[object, int] = {}
    for produced_ms, progress in cursors:
        if progress.batch is not None and progress.done is None:
            ends[progress.batch.next] = max(produced_ms, ends.get(progress.batch.next, 0))
    return min(end_ms for end_ms in ends.values() if end_ms >= first_ms)


def _verify(kafka: str, run: BridgeRun, written: set[bytes]) -> tuple[Mapping[int, int], int]:
    """Check the topic; gives how many records were produced in which ms, and the bytes of all keys and values."""
    arrived: set[bytes] = set()
    count = size = 0
    published: Counter[int] = Counter()
    # Every other collection would walk through all positions: of ten millions for a quarter of an hour.
    gc.disable()
    try:
        for seen in topics.read_all(kafka, run.topic, timeout_s=_READ_BACK_S):
            count += 1
            arrived.add(seen.position)
            size += seen.size_bytes
            published[seen.produced_ms] += 1
    finally:
        gc.enable()
    missing, unknown = len(written - arrived), len(arrived - written)
    doubled = count - len(arrived)
    if missing or unknown or doubled or not count:
        raise BenchError(
            f"{run.topic} is wrong: {len(written)} changes written, {count} records, {missing} missing, "
            f"{doubled} doubled, {unknown} unknown.{run.tail()}"
        )
    return published, size


def _figures(found: Drained) -> Figures:
    changes, last_s, measured = found.changes, found.last_s, found.measured
    seconds = last_s - found.settled_s
    return {
        "changes": changes,
        "changes_per_s": found.per_s,
        "changes_per_s_with_startup": changes / (last_s - measured.began_s),
        "seconds": seconds,
        "startup_s": found.first_s - measured.began_s,
        "mib_per_s": found.per_s * found.size_bytes / changes / 1024 / 1024,
        "cpu_s_per_million": measured.cpu_s / changes * _MILLION,
        "cpu_s_per_million_streaming": found.cpu_s_per_million,
        "cores_used": measured.cpu_s_between(found.settled_s, last_s) / seconds,
        "cpu_s_startup": measured.cpu_s_between(measured.began_s, found.first_s),
        "cpu_s_by_role": measured.cpu_s_by_role,
        "processes": measured.processes,
        "peak_rss_mib": measured.peak_rss_mib,
        "peak_pss_mib": measured.peak_pss_mib,
        **memory_figures(measured.memory, found.first_s, last_s, changes),
    }
