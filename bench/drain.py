"""Measures how fast, and at what cost, the bridge drains a full log."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.data import topics
from bench.data.tables import KEYSPACE
from bench.errors import BenchError
from bench.figures import Figures, memory_figures
from bench.processes.bridge_run import BridgeRun, Measured, Servers, new_name
from bench.processes.watch import Watch
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import KafkaSettings
from bridge.model.kept_formats import LaneProgress

_READ_BACK_S: Final = 60.0
_CURSORS_WITHIN_S: Final = 30.0
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Drained:
    """The measurements of one correct drain. Times are Unix seconds.

    Attributes:
        changes: number of changes.
        size_bytes: total size of all keys and values.
        first_s: time of the first record.
        settled_s: end of the first micro-batch on all lanes.
        settled_changes: number of changes published after `settled_s`.
        last_s: time of the last cursor.
        measured: the meter's report on the job's processes.
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
    """Drain a log as `drained` does, and return its figures with the cores that the servers of `watch` used."""
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
    """Run the bridge once over a filled log, then compare the topic with the written changes.

    Args:
        folder: folder for the files of the run.
        servers: addresses of the servers.
        table: name of one of `bench.data.tables`.
        written: positions of the table's changes.
        lanes: number of lanes.
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
        tables=[f"{KEYSPACE}.{table}"],
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
    """Yield every committed progress record with its timestamp in Unix ms."""
    settings = KafkaSettings(bootstrap_servers=(kafka,))
    with CommittedReader(settings) as reader:
        partitions = range(KafkaAdmin(settings).partitions(topic))
        for record in reader.read_to_end(topic, partitions, _CURSORS_WITHIN_S):
            assert record.value is not None
            yield record.timestamp_ms, LaneProgress.from_bytes(record.value)


def settled(cursors: Iterable[tuple[int, LaneProgress]], first_ms: int) -> int:
    """Return the time at which all lanes had finished the first micro-batch with changes, in Unix ms.

    Everything that was read by then is published, so the CPU time after it belongs to the later changes. This does not
    hold at the first record: whole pages of every stream are read and encoded before it.

    Args:
        cursors: committed progress records with their timestamps in Unix ms.
        first_ms: timestamp of the first record.
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
    # A collection walks through all positions: with ten million, collections would take a quarter of an hour.
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
