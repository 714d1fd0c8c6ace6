"""Every metric: its name, kind, labels and meaning, and how it follows from a `JobView`. Pure.

`docs/metrics.md` is made from this list (`python -m bridge.monitoring.metrics > docs/metrics.md`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from bridge.monitoring import health
from bridge.monitoring.counters import Histogram
from bridge.monitoring.snapshot import STATES, JobView, LaneView, TableStreams, TableView

PREFIX: Final = "scylla_cdc_bridge_"

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Value = float | Histogram
Read = Callable[[JobView], Iterable[tuple[Labels, Value]]]
"""The present values by their labels' values; what is not known is left out."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: whole, with `_total` for a counter.
        labels: names of its labels.
    """

    name: str
    kind: Kind
    labels: Labels
    help: str
    read: Read


def _job(name: str, kind: Kind, help_text: str, value: Callable[[JobView], float | None]) -> Metric:
    def read(job: JobView) -> Iterator[tuple[Labels, Value]]:
        found = value(job)
        if found is not None:
            yield (), found

    return Metric(PREFIX + name, kind, (), help_text, read)


def _table(name: str, kind: Kind, help_text: str, value: Callable[[JobView, TableView], Value | None]) -> Metric:
    def read(job: JobView) -> Iterator[tuple[Labels, Value]]:
        for table in job.tables:
            found = value(job, table)
            if found is not None:
                yield (table.name,), found

    return Metric(PREFIX + name, kind, ("table",), help_text, read)


def _lane(
    name: str,
    kind: Kind,
    help_text: str,
    value: Callable[[JobView, TableView, LaneView], Value | None],
    *,
    former: bool = False,
) -> Metric:
    def read(job: JobView) -> Iterator[tuple[Labels, Value]]:
        for table in job.tables:
            # A counter must not vanish with the layout that its lane belonged to.
            for lane in table.lanes if former else table.active:
                found = value(job, table, lane)
                if found is not None:
                    yield (table.name, str(lane.lane)), found

    return Metric(PREFIX + name, kind, ("table", "lane"), help_text, read)


def _counted(name: str, help_text: str, value: Callable[[LaneView], float]) -> Metric:
    return _lane(name, "counter", help_text, lambda _job, _table, lane: value(lane), former=True)


def _pages(table: TableView) -> Histogram:
    return table.total.pages


def _states(job: JobView) -> Iterator[tuple[Labels, Value]]:
    for table in job.tables:
        for state in STATES:
            yield (table.name, state), float(table.state == state)


def _phases(job: JobView) -> Iterator[tuple[Labels, Value]]:
    for table in job.tables:
        for phase, seconds in sorted(table.batches.phases_s.items()):
            yield (table.name, phase), seconds


def _messages(job: JobView) -> Iterator[tuple[Labels, Value]]:
    for level, count in sorted(job.message_counts.items()):
        yield (level,), count


def _streams(job: JobView, table: TableView) -> TableStreams:
    return job.topology.streams.get(table.name, TableStreams())


def _window_s(_job: JobView, table: TableView) -> float | None:
    window = table.batches.window
    return None if window is None or window.end_us is None else (window.end_us - window.start_us) / 1e6


METRICS: Final[tuple[Metric, ...]] = (
    _counted("changes_published_total", "Changes that were committed to Kafka.", lambda lane: lane.figures.changes),
    _counted(
        "published_bytes_total",
        "Bytes of keys and values that were committed to Kafka, before compression.",
        lambda lane: lane.figures.value_bytes,
    ),
    _counted(
        "groups_published_total",
        "Groups (changes of one stream and write time) that were committed to Kafka.",
        lambda lane: lane.figures.groups,
    ),
    _counted(
        "transactions_total",
        "Kafka transactions that were committed, those that only move the cursor included.",
        lambda lane: lane.figures.transactions,
    ),
    _counted(
        "transactions_aborted_total",
        "Kafka transactions that were given up after an error; their changes are published by a later one.",
        lambda lane: lane.figures.aborts,
    ),
    _counted(
        "fencings_total",
        "How often another process had taken over the lane's transactional id, or Kafka had ended its transaction for "
        "its age.",
        lambda lane: lane.figures.fencings,
    ),
    _lane(
        "lag_seconds",
        "gauge",
        "Age of the lane's cursor: everything written before it is in Kafka. Includes the confidence window.",
        lambda job, _table, lane: lane.lag_s(job.servers_s),
    ),
    _lane(
        "cursor_timestamp_seconds",
        "gauge",
        "The lane's cursor as a time: everything written before it is in Kafka.",
        lambda _job, _table, lane: None if lane.cursor is None else lane.cursor.reached_us / 1e6,
    ),
    _lane(
        "ttl_left_seconds",
        "gauge",
        "How long until the log's TTL drops changes that the lane has not read; absent for logs without a TTL.",
        lambda job, table, lane: job.ttl_left_s(table, lane),
    ),
    _lane(
        "cql_requests_in_flight",
        "gauge",
        "Most requests to the log that were under way at once in the lane's last micro-batch; one that asks several "
        "streams whether they have rows counts as one for each.",
        lambda _job, _table, lane: lane.figures.most_in_flight,
    ),
    _table(
        "cql_request_duration_seconds",
        "histogram",
        "How long requests to the log took, for pages and for which of several streams have rows; failed ones, too.",
        lambda _job, table: _pages(table),
    ),
    _table(
        "cql_request_errors_total",
        "counter",
        "Requests to the log that failed. A table whose streams can't be asked together is read all the same.",
        lambda _job, table: table.total.page_errors,
    ),
    _table(
        "log_rows_read_total", "counter", "Rows of the log that were read.", lambda _job, table: table.total.log_rows
    ),
    _table(
        "dead_letters_total",
        "counter",
        "Records committed to the dead-letter topic instead of the change topic.",
        lambda _job, table: table.total.dead_letters,
    ),
    _table(
        "kafka_throttled_seconds_total",
        "counter",
        "How long Kafka's brokers had the table's producers wait because they were over a quota.",
        lambda _job, table: table.total.throttled_ms / 1000,
    ),
    _table(
        "repeated_groups_total",
        "counter",
        "Groups of changes that were left out as repeats of an earlier one, as reading.deduplicate says.",
        lambda _job, table: table.total.repeats,
    ),
    _table(
        "unknown_operations_total",
        "counter",
        "Changes that were read with a cdc$operation which this release does not know; published as `unknown`, "
        "as `m` in debezium.",
        lambda _job, table: table.total.unknown_operations,
    ),
    _table(
        "keys_checked_total",
        "counter",
        "Changes whose key was held against the stream that they came in; reading.integrity says how many are.",
        lambda _job, table: table.total.keys_checked,
    ),
    _table(
        "keys_misplaced_total",
        "counter",
        "Those of them whose key does not belong into the stream; the log has their positions. Should stay 0.",
        lambda _job, table: table.total.keys_misplaced,
    ),
    _table(
        "registry_request_duration_seconds",
        "histogram",
        "How long the tasks' calls of the schema registry took, failed ones included.",
        lambda _job, table: table.total.registry,
    ),
    _table(
        "registry_request_errors_total",
        "counter",
        "The tasks' calls of the schema registry that failed.",
        lambda _job, table: table.total.registry_errors,
    ),
    _table(
        "batch_duration_seconds",
        "histogram",
        "How long Spark's micro-batches took.",
        lambda _job, table: table.batches.durations,
    ),
    Metric(
        PREFIX + "batch_phase_seconds_total",
        "counter",
        ("table", "phase"),
        "Time spent in each of Spark's phases of a micro-batch (addBatch is the reading and publishing).",
        _phases,
    ),
    _table(
        "window_seconds",
        "gauge",
        "Length of the last window of write times that was read, of the streams that go on.",
        _window_s,
    ),
    _table(
        "generation_timestamp_seconds",
        "gauge",
        "Start of the generation that the table's slowest lane reads.",
        lambda _job, table: None if table.slowest is None else table.slowest.generation_ms / 1000,
    ),
    _table(
        "lanes",
        "gauge",
        "Lanes of the table's present layout.",
        lambda _job, table: None if table.layout is None else table.layout.lanes,
    ),
    _table(
        "log_ttl_seconds",
        "gauge",
        "For how long the log keeps changes; 0 is for ever.",
        lambda job, table: job.topology.ttl_s.get(table.name),
    ),
    Metric(
        PREFIX + "table_state",
        "gauge",
        ("table", "state"),
        f"1 for the state that the table is in ({', '.join(STATES)}), 0 for the others.",
        _states,
    ),
    _table(
        "table_ready",
        "gauge",
        "1 while the table's cursors advance or there is nothing to read, else 0.",
        lambda job, table: float(health.why_not_ready(job, table) is None),
    ),
    _table("query_starts_total", "counter", "Starts of the table's streaming query.", lambda _job, table: table.starts),
    _table(
        "query_failures_total",
        "counter",
        "Failures of the table's streaming query, those of its start included.",
        lambda _job, table: table.failures,
    ),
    _job(
        "confidence_seconds", "gauge", "Age that a change must reach before it is read.", lambda job: job.confidence_s
    ),
    _table(
        "generations",
        "gauge",
        "Generations of the table's streams that the cluster has published and keeps; of the cluster's, with vnodes.",
        lambda job, table: len(_streams(job, table).generations) or None,
    ),
    _table(
        "newest_generation_timestamp_seconds",
        "gauge",
        "Start of the newest published generation, which may lie ahead.",
        lambda job, table: _streams(job, table).generations[-1] / 1000 if _streams(job, table).generations else None,
    ),
    _table(
        "stream_sets",
        "gauge",
        "Stream sets of the youngest generation that has begun.",
        lambda job, table: None if (ring := _streams(job, table).ring) is None else len(ring.sets),
    ),
    _table(
        "streams",
        "gauge",
        "Streams of the youngest generation that has begun.",
        lambda job, table: None if (ring := _streams(job, table).ring) is None else sum(many for _, many in ring.sets),
    ),
    _table(
        "look_interval_seconds",
        "gauge",
        "How far apart scylla.requests_per_second keeps the table's micro-batches, as each asks every stream once.",
        lambda job, table: job.look_every_s(table),
    ),
    _table(
        "switch_stall_bound_seconds",
        "gauge",
        "How long a change may wait when its key moves to another stream: confidence, leeway and twice the above; "
        "besides this the time that two micro-batches take, and the lateness of the generation's publication.",
        lambda job, table: job.stall_bound_s(table),
    ),
    _job(
        "clock_ahead_seconds",
        "gauge",
        "By how much the clock of the job's machine is ahead of the ScyllaDB servers', as far as their answers' time "
        "tells it; negative when it is behind. Windows are planned by the earlier of both.",
        lambda job: job.topology.clock_ahead_s,
    ),
    _job(
        "topology_read_failures_total",
        "counter",
        "How often the cluster's generations and options could not be read for these figures.",
        lambda job: job.topology.failures,
    ),
    Metric(
        PREFIX + "log_messages_total",
        "counter",
        ("level",),
        "Warnings and errors that the job's first process has logged.",
        _messages,
    ),
    _job(
        "supervisor_tick_timestamp_seconds",
        "gauge",
        "When the supervisor last looked at the queries.",
        lambda job: job.tick_s,
    ),
    Metric(
        PREFIX + "build_info",
        "gauge",
        ("version", "job"),
        "Always 1; its labels say which release runs which job.",
        lambda job: [((job.version, job.name), 1.0)],
    ),
)

_HEAD: Final = """\
# Metrics

`/metrics` of a running job has these metrics, in Prometheus' text format or in OpenMetrics, as the scraper
requests. It also has the usual `process_*` metrics of the job's first process. [Monitoring](monitoring.md) names
those to watch first.

Counters start at zero with each start of the job. What tasks count appears at the end of their micro-batch. What a
failed attempt counted appears with a later micro-batch, and is lost only if its process dies. The counts of
requests to the log include the tasks' requests, and exclude the planner's few requests for generations.

"""


def markdown() -> str:
    """The documentation's page."""
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
