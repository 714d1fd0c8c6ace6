"""The demo's results as numbers: the content of `summary.json`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.model.times import UnixMillis
from sandbox.demo.report.observations import Observations, latency_summary
from sandbox.verify.checker import Verdict
from schemas.cql.table import TableSchema

LEAST_GENERATIONS_CROSSED: Final = 2
_COUNTS: Final = ("missing", "doubled", "out_of_order", "wrong", "unexpected")


@dataclass(frozen=True, slots=True)
class Run:
    """The circumstances of a run.

    Attributes:
        seed: seed of all random choices.
        confidence_ms, leeway_ms: the bridge's settings.
        cores: number of the machine's cores.
        bridge_cpu_s: CPU time of all processes of the bridge.
        bridge_peak_memory_bytes: their largest total memory.
        recorded_changes: number of recorded changes that were loaded before the bridge started.
        backlog_changes: number of all changes that existed before the bridge started.
        backlog_s: seconds from the bridge's start until all of those had arrived.
        versions: versions of packages and servers, by name.
        started: start of the run, as text.
    """

    seed: int
    confidence_ms: int
    leeway_ms: int
    cores: int
    bridge_cpu_s: float
    bridge_peak_memory_bytes: int
    recorded_changes: int
    backlog_changes: int
    backlog_s: float
    versions: Mapping[str, str]
    started: str


def generations_crossed(by_generation: Mapping[UnixMillis, int]) -> int:
    """Number of generation changes with arrived changes before and after them.

    Args:
        by_generation: arrived changes of one table, by the generation's start.
    """
    return max(0, sum(count > 0 for count in by_generation.values()) - 1)


def summarize(
    verdict: Verdict,
    observations: Observations,
    arrived: Mapping[TableSchema, Mapping[UnixMillis, int]],
    simulated: Iterable[TableSchema],
    run: Run,
) -> dict[str, Any]:
    """Build the content of `summary.json`.

    Args:
        verdict: the final verdict.
        observations: measurements of the writer's changes.
        arrived: number of arrived changes by table and generation.
        simulated: the tables that the writer wrote. Each of them must cross the generation changes.
        run: the circumstances of the run.
    """
    settle_us = (run.confidence_ms + run.leeway_ms) * 1000
    begin_us, end_us = observations.begin_us, observations.end_us
    return {
        "written": verdict.written,
        "arrived": verdict.arrived,
        **{name: getattr(verdict, name) for name in _COUNTS},
        "generations_crossed": min((generations_crossed(arrived[table]) for table in simulated), default=0),
        "changes_per_s": round(observations.changes_per_s, 1),
        "latency_ms": latency_summary(observations.latencies_ms),
        "latency_between_generation_changes_ms": latency_summary(observations.calm_latencies_ms(settle_us)),
        "confidence_ms": run.confidence_ms,
        "leeway_ms": run.leeway_ms,
        "writing_s": round((end_us - begin_us) / 1e6, 1) if begin_us is not None and end_us is not None else None,
        "recorded_changes": run.recorded_changes,
        "backlog_changes": run.backlog_changes,
        "backlog_s": round(run.backlog_s, 1),
        "tables": {
            table.full_name: {str(start_ms): count for start_ms, count in counts.items()}
            for table, counts in arrived.items()
        },
        "generations": [
            {"start_ms": mark.start_ms, "published_late_s": None if mark.late_s is None else round(mark.late_s, 1)}
            for mark in observations.generations.values()
        ],
        "examples": verdict.examples,
        "bridge": {
            "cpu_s": round(run.bridge_cpu_s, 1),
            "peak_memory_mib": round(run.bridge_peak_memory_bytes / 2**20),
        },
        "seed": run.seed,
        "cores": run.cores,
        "started": run.started,
        "versions": dict(run.versions),
    }


def faults(summary: Mapping[str, Any]) -> list[str]:
    """The faults in a summary, one line each; empty if there are none."""
    found = [f"{summary[name]} changes {name.replace('_', ' ')}" for name in _COUNTS if summary[name]]
    if not summary["written"]:
        found.append("nothing was written")
    if summary["generations_crossed"] < LEAST_GENERATIONS_CROSSED:
        found.append(
            f"changes arrived across {summary['generations_crossed']} generation changes only, "
            f"not {LEAST_GENERATIONS_CROSSED}"
        )
    return found


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary as lines of text."""
    latency, calm = summary["latency_ms"], summary["latency_between_generation_changes_ms"]
    counts = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in _COUNTS)
    lines = [
        f"Changes      {summary['written']} written, {summary['arrived']} arrived",
        f"             {counts}",
        f"Generations  {summary['generations_crossed']} generation changes while writing",
        f"Throughput   {summary['changes_per_s']:.0f} changes/s arrived",
        f"Latency      {_format_latency(latency)}, from write to consumer",
    ]
    if calm["p50"] is not None:
        lines.append(f"             {_format_latency(calm)}, without generation changes")
    lines.append(
        f"             {summary['confidence_ms']} ms of it are the confidence window; at a generation change, "
        f"{summary['leeway_ms']} ms more"
    )
    return lines


def _format_latency(latency: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'-' if value is None else f'{value:.0f} ms'}" for name, value in latency.items())
