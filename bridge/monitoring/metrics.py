"""Every metric: its name, kind, labels and meaning, and how it follows from a `JobSnapshot`. Pure.

`docs/metrics.md` is generated from this list: `python -m bridge.monitoring.metrics > docs/metrics.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from bridge.model.counters import Histogram
from bridge.monitoring import health
from bridge.monitoring.snapshot import STATES, JobSnapshot, LaneSnapshot, TableSnapshot, TableStreams

PREFIX: Final = "scylla_cdc_bridge_"

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Value = float | Histogram
Read = Callable[[JobSnapshot], Iterable[tuple[Labels, Value]]]
"""Returns the values of the labels with each value of the metric; unknown values are left out."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: the whole name, which ends in `_total` for a counter.
        labels: names of its labels.
    """

    name: str
    kind: Kind
    labels: Labels
    help: str
    read: Read


def _job_metric(name: str, kind: Kind, help_text: str, value: Callable[[JobSnapshot], float | None]) -> Metric:
    def read(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
        found = value(job)
        if found is not None:
            yield (), found

    return Metric(PREFIX + name, kind, (), help_text, read)


def _table_metric(
    name: str, kind: Kind, help_text: str, value: Callable[[JobSnapshot, TableSnapshot], Value | None]
) -> Metric:
    def read(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
        for table in job.tables:
            found = value(job, table)
            if found is not None:
                yield (table.name,), found

    return Metric(PREFIX + name, kind, ("table",), help_text, read)


def _lane_metric(
    name: str,
    kind: Kind,
    help_text: str,
    value: Callable[[JobSnapshot, TableSnapshot, LaneSnapshot], Value | None],
    *,
    with_retired: bool = False,
) -> Metric:
    def read(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
        for table in job.tables:
            # A counter must not vanish when a new layout retires its lane.
            for lane in table.lanes if with_retired else table.assigned_lanes:
                found = value(job, table, lane)
                if found is not None:
                    yield (table.name, str(lane.lane)), found

    return Metric(PREFIX + name, kind, ("table", "lane"), help_text, read)


def _lane_counter(name: str, help_text: str, value: Callable[[LaneSnapshot], float]) -> Metric:
    return _lane_metric(name, "counter", help_text, lambda _job, _table, lane: value(lane), with_retired=True)


def _read_states(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
    for table in job.tables:
        for state in STATES:
            yield (table.name, state), float(table.state == state)


def _read_phases(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
    for table in job.tables:
        for phase, seconds in sorted(table.batches.phases_s.items()):
            yield (table.name, phase), seconds


def _read_messages(job: JobSnapshot) -> Iterator[tuple[Labels, Value]]:
    for level, count in sorted(job.message_counts.items()):
        yield (level,), count


def _streams_of(job: JobSnapshot, table: TableSnapshot) -> TableStreams:
    return job.topology.streams.get(table.name, TableStreams())


def _window_s(_job: JobSnapshot, table: TableSnapshot) -> float | None:
    window = table.batches.window
    return None if window is None or window.end_us is None else (window.end_us - window.start_us) / 1e6


METRICS: Final[tuple[Metric, ...]] = (
    _lane_counter(
        "changes_published_total", "Changes that were committed to Kafka.", lambda lane: lane.counters.changes
    ),
    _lane_counter(
        "published_bytes_total",
        "Bytes of keys and values that were committed to Kafka, before compression.",
        lambda lane: lane.counters.value_bytes,
    ),
    _lane_counter(
        "groups_published_total",
        "Groups (changes of one stream and write time) that were committed to Kafka.",
        lambda lane: lane.counters.groups,
    ),
    _lane_counter(
        "transactions_total",
        "Kafka transactions that were committed, including those that only move the cursor.",
        lambda lane: lane.counters.transactions,
    ),
    _lane_counter(
        "transactions_aborted_total",
        "Kafka transactions that were aborted after an error; a later transaction publishes their changes.",
        lambda lane: lane.counters.aborts,
    ),
    _lane_counter(
        "fencings_total",
        "How often Kafka fenced the lane: another process had taken over its transactional id, or its transaction had "
        "timed out.",
        lambda lane: lane.counters.fencings,
    ),
    _lane_metric(
        "lag_seconds",
        "gauge",
        "Age of the lane's cursor: everything written before it is in Kafka. Includes the confidence window.",
        lambda job, _table, lane: lane.lag_s(job.servers_s),
    ),
    _lane_metric(
        "cursor_timestamp_seconds",
        "gauge",
        "The lane's cursor as a time: everything written before it is in Kafka.",
        lambda _job, _table, lane: None if lane.cursor is None else lane.cursor.reached_us / 1e6,
    ),
    _lane_metric(
        "ttl_left_seconds",
        "gauge",
        "Time until changes expire that the lane has not read; absent for logs without a TTL.",
        lambda job, table, lane: job.ttl_left_s(table, lane),
    ),
    _lane_metric(
        "cql_requests_in_flight",
        "gauge",
        "Maximum number of requests to the log under way at once in the lane's last micro-batch. A request that asks "
        "which of several streams have rows counts as one for each stream.",
        lambda _job, _table, lane: lane.counters.most_in_flight,
    ),
    _table_metric(
        "cql_request_duration_seconds",
        "histogram",
        "Duration of requests to the log, for pages and for which of several streams have rows, including failed ones.",
        lambda _job, table: table.total.pages,
    ),
    _table_metric(
        "cql_request_errors_total",
        "counter",
        "Requests to the log that failed. If a request for several streams fails, the lane requests them one by one.",
        lambda _job, table: table.total.page_errors,
    ),
    _table_metric(
        "log_rows_read_total", "counter", "Rows of the log that were read.", lambda _job, table: table.total.log_rows
    ),
    _table_metric(
        "dead_letters_total",
        "counter",
        "Records committed to the dead-letter topic instead of the change topic.",
        lambda _job, table: table.total.dead_letters,
    ),
    _table_metric(
        "kafka_throttled_seconds_total",
        "counter",
        "Time for which Kafka's brokers throttled the table's producers because of quotas.",
        lambda _job, table: table.total.throttled_ms / 1000,
    ),
    _table_metric(
        "repeated_groups_total",
        "counter",
        "Groups of changes that were left out because they repeat an earlier group (reading.deduplicate).",
        lambda _job, table: table.total.repeats,
    ),
    _table_metric(
        "unknown_operations_total",
        "counter",
        "Changes with a cdc$operation that this release does not know; published as `unknown`, as `m` in debezium.",
        lambda _job, table: table.total.unknown_operations,
    ),
    _table_metric(
        "keys_checked_total",
        "counter",
        "Changes whose key was compared with the stream that holds them; reading.integrity sets their share.",
        lambda _job, table: table.total.keys_checked,
    ),
    _table_metric(
        "keys_misplaced_total",
        "counter",
        "Checked changes whose key does not belong to their stream; the log has their positions. Should stay 0.",
        lambda _job, table: table.total.keys_misplaced,
    ),
    _table_metric(
        "registry_request_duration_seconds",
        "histogram",
        "Duration of the tasks' calls of the schema registry, including failed ones.",
        lambda _job, table: table.total.registry,
    ),
    _table_metric(
        "registry_request_errors_total",
        "counter",
        "The tasks' calls of the schema registry that failed.",
        lambda _job, table: table.total.registry_errors,
    ),
    _table_metric(
        "batch_duration_seconds",
        "histogram",
        "Duration of Spark's micro-batches.",
        lambda _job, table: table.batches.durations,
    ),
    Metric(
        PREFIX + "batch_phase_seconds_total",
        "counter",
        ("table", "phase"),
        "Time in each of Spark's phases of a micro-batch (addBatch reads and publishes).",
        _read_phases,
    ),
    _table_metric(
        "window_seconds",
        "gauge",
        "Length of the last window of write times that was read, for the streams that stay open.",
        _window_s,
    ),
    _table_metric(
        "generation_timestamp_seconds",
        "gauge",
        "Start of the generation that the table's slowest lane reads.",
        lambda _job, table: None if table.slowest is None else table.slowest.generation_ms / 1000,
    ),
    _table_metric(
        "lanes",
        "gauge",
        "Lanes of the table's current layout.",
        lambda _job, table: None if table.layout is None else table.layout.lanes,
    ),
    _table_metric(
        "log_ttl_seconds",
        "gauge",
        "Time for which the log keeps changes; 0 if there is no limit.",
        lambda job, table: job.topology.ttl_s.get(table.name),
    ),
    Metric(
        PREFIX + "table_state",
        "gauge",
        ("table", "state"),
        f"1 for the state that the table is in ({', '.join(STATES)}), 0 for the others.",
        _read_states,
    ),
    _table_metric(
        "table_ready",
        "gauge",
        "1 while the table's cursors advance or there is nothing to read, 0 otherwise.",
        lambda job, table: float(health.why_not_ready(job, table) is None),
    ),
    _table_metric(
        "query_starts_total", "counter", "Starts of the table's streaming query.", lambda _job, table: table.starts
    ),
    _table_metric(
        "query_failures_total",
        "counter",
        "Failures of the table's streaming query, including those of its start.",
        lambda _job, table: table.failures,
    ),
    _table_metric(
        "stall_restarts_total",
        "counter",
        "How often the table's streaming query hung, and was stopped and started again. These are failures, too.",
        lambda _job, table: table.stall_restarts,
    ),
    _job_metric(
        "confidence_seconds",
        "gauge",
        "Age at which changes are read (reading.confidence_ms).",
        lambda job: job.confidence_s,
    ),
    _table_metric(
        "generations",
        "gauge",
        "Published generations that the cluster keeps: of the table's streams, or of all streams with vnodes.",
        lambda job, table: len(_streams_of(job, table).generations) or None,
    ),
    _table_metric(
        "newest_generation_timestamp_seconds",
        "gauge",
        "Start of the newest published generation, which may be in the future.",
        lambda job, table: (
            _streams_of(job, table).generations[-1] / 1000 if _streams_of(job, table).generations else None
        ),
    ),
    _table_metric(
        "stream_groups",
        "gauge",
        "Groups of streams in the latest generation that has started: a vnode's streams, or a tablet's single stream.",
        lambda job, table: None if (ring := _streams_of(job, table).ring) is None else len(ring.groups),
    ),
    _table_metric(
        "streams",
        "gauge",
        "Streams in the latest generation that has started.",
        lambda job, table: None if (ring := _streams_of(job, table).ring) is None else ring.stream_count,
    ),
    _table_metric(
        "look_interval_seconds",
        "gauge",
        "Shortest time between two micro-batches of the table that scylla.requests_per_second allows, because each "
        "micro-batch requests every stream once.",
        lambda job, table: job.batch_interval_s(table),
    ),
    _table_metric(
        "switch_stall_bound_seconds",
        "gauge",
        "Longest wait of a change whose key moves to another stream: confidence, leeway and twice "
        "look_interval_seconds. The duration of two micro-batches, and the delay of the generation's publication, come "
        "on top.",
        lambda job, table: job.stall_bound_s(table),
    ),
    _job_metric(
        "clock_ahead_seconds",
        "gauge",
        "By how much the clock of the job's machine is ahead of the ScyllaDB servers' clocks, as their answers show; "
        "negative if it is behind. Windows are planned by the earlier of the two times.",
        lambda job: job.topology.clock_ahead_s,
    ),
    _job_metric(
        "topology_read_failures_total",
        "counter",
        "How often the cluster's generations and options could not be read for these metrics.",
        lambda job: job.topology.failures,
    ),
    Metric(
        PREFIX + "log_messages_total",
        "counter",
        ("level",),
        "Warnings and errors that the driver process has logged.",
        _read_messages,
    ),
    _job_metric(
        "supervisor_tick_timestamp_seconds",
        "gauge",
        "When the supervisor last checked the queries.",
        lambda job: job.tick_s,
    ),
    Metric(
        PREFIX + "build_info",
        "gauge",
        ("version", "job"),
        "Always 1; its labels name the release and the job.",
        lambda job: [((job.version, job.name), 1.0)],
    ),
)

_HEAD: Final = """\
# Metrics

`/metrics` of a running job has these metrics, in Prometheus' text format or in OpenMetrics, as the scraper requests. It
also has the usual `process_*` metrics of the driver process. [Monitoring](monitoring.md) names those to watch first.

Counters start at zero with each start of the job. Counts of tasks appear at the end of their micro-batch. Counts of a
failed attempt appear with a later micro-batch; they are lost only if its process dies. Requests to the log are counted
in the tasks; the planner's few requests for generations are not counted.

"""


def markdown() -> str:
    """Return the page `docs/metrics.md`."""
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
