"""The report of a demo: one HTML page without external files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any, Final

from sandbox.demo.report.observations import Observations, Point
from sandbox.demo.report.plots import FIRST, MUTED, SECOND, Boundary, Line, plot
from sandbox.demo.report.summary import faults

Summary = Mapping[str, Any]

_COUNTS: Final = {
    "missing": "missing",
    "doubled": "doubled",
    "out_of_order": "out of order",
    "wrong": "with other content",
    "unexpected": "never written",
}


def report(summary: Summary, observations: Observations) -> str:
    """Build the HTML page.

    Args:
        summary: the content of `summary.json`.
        observations: the data of the plots.
    """
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    body = "\n".join(
        (
            "<h1>Every change, once and in order</h1>",
            f'<p class="quiet">scylla-cdc-bridge demo of {escape(summary["started"])}</p>',
            _verdict_box(summary),
            _number_cards(summary),
            _plots(summary, observations),
            _generation_table(summary, observations),
            _method_section(summary),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>scylla-cdc-bridge: demo</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _verdict_box(summary: Summary) -> str:
    found = [*faults(summary), *summary["examples"]]
    if found:
        items = "".join(f"<li>{escape(line)}</li>" for line in found)
        return f'<div class="verdict bad">The check found faults:<ul>{items}</ul></div>'
    return (
        f'<div class="verdict good">All {summary["written"]:,} changes arrived exactly once, with the content that was '
        f"written, and in order for each key, across {summary['generations_crossed']} generation changes.</div>"
    )


def _number_cards(summary: Summary) -> str:
    latency = summary["latency_ms"]
    figures = [
        (f"{summary['written']:,}", "changes written"),
        (f"{summary['arrived']:,}", "changes arrived"),
        (f"{summary['changes_per_s']:,.0f}", "changes/s"),
        (_seconds(latency["p50"]), "median latency"),
        (_seconds(latency["p99"]), "99th percentile"),
        (str(summary["generations_crossed"]), "new generations"),
    ]
    counts = [(f"{summary[name]:,}", label) for name, label in _COUNTS.items()]
    return _card_row(figures) + _card_row(counts, alarming=True)


def _card_row(cards: Iterable[tuple[str, str]], *, alarming: bool = False) -> str:
    content = "".join(
        f'<div class="card{" bad" if alarming and value != "0" else ""}"><b>{value}</b><span>{label}</span></div>'
        for value, label in cards
    )
    return f'<div class="cards">{content}</div>'


def _plots(summary: Summary, seen: Observations) -> str:
    boundaries = _boundaries(summary, seen)
    written, arrived, lag = seen.rate(seen.written_us), seen.rate(seen.arrived_us), seen.lag()
    times = [point.at_s for points in (written, arrived, lag) for point in points]
    span_s = (0.0, max(times, default=1.0))
    throughput = plot(
        "throughput",
        [Line("written", written, FIRST, filled=True), Line("arrived", arrived, SECOND)],
        boundaries,
        span_s=span_s,
        y_label="changes/s",
        description="Changes written and arrived per second",
    )
    outstanding = plot(
        "lag",
        [Line("not arrived yet", lag, FIRST, filled=True)],
        boundaries,
        span_s=span_s,
        y_label="changes",
        description="Changes written and not yet arrived, over time",
    )
    return (
        _figure(
            "Throughput",
            "Changes written, and changes that a read_committed consumer received, in each second. A line marks the "
            "start of a new stream generation. If the cluster published it late, a dotted line marks the publication.",
            throughput,
        )
        + _figure("Lag", "Changes that were written and had not arrived yet.", outstanding)
        + _latency_figure(summary, seen, boundaries, span_s)
    )


def _latency_figure(
    summary: Summary, seen: Observations, boundaries: Sequence[Boundary], span_s: tuple[float, float]
) -> str:
    confidence_s, leeway_s = summary["confidence_ms"] / 1000, summary["leeway_ms"] / 1000
    latency, slowest = seen.latency(50), seen.latency(99)
    floor = [Point(latency[at].at_s, confidence_s) for at in (0, -1)] if latency else []
    return _figure(
        "Latency",
        f"Time from a change's write timestamp to its arrival at the consumer, by the time of the write. "
        f"{confidence_s:g} s of it are the confidence window: the bridge does not read younger changes, because "
        "changes with older timestamps may still become visible. When a generation begins (tinted), its changes wait "
        f"until the former generation takes no more writes, {leeway_s:g} s later. This keeps the order of each key.",
        plot(
            "latency",
            [
                Line("median", latency, FIRST),
                Line("99th percentile", slowest, SECOND),
                Line("confidence window", floor, MUTED, dashed=True),
            ],
            boundaries,
            span_s=span_s,
            y_label="seconds",
            description="Median and 99th percentile of the latency, over time",
        ),
    )


def _boundaries(summary: Summary, seen: Observations) -> list[Boundary]:
    held_s = (summary["confidence_ms"] + summary["leeway_ms"]) / 1000
    found = []
    for number, mark in enumerate(seen.generations.values(), start=2):
        at_s = seen.seconds_after_begin(mark.start_ms * 1000)
        late_s = mark.late_s if mark.late_s is not None and mark.late_s > 0 else None
        held_until_s = at_s + max(held_s, late_s or 0.0)
        found.append(Boundary(at_s, f"generation {number}", None if late_s is None else at_s + late_s, held_until_s))
    return found


def _figure(title: str, caption: str, svg: str) -> str:
    return f'<h2>{title}</h2>\n<p class="quiet">{escape(caption)}</p>\n<figure>{svg}</figure>\n'


def _generation_table(summary: Summary, seen: Observations) -> str:
    tables: Mapping[str, Mapping[str, int]] = summary["tables"]
    starts = sorted({int(start) for counts in tables.values() for start in counts})
    rows = []
    for start in starts:
        mark = seen.generations.get(start)  # type: ignore[call-overload]
        late_s = None if mark is None else mark.late_s
        published = "before the bridge started"
        if late_s is not None:
            published = f"{late_s:.1f} s after its start" if late_s > 0 else f"{-late_s:.1f} s before its start"
        counts = (f"{tables[name].get(str(start), 0):,}" for name in tables)
        rows.append((f"{datetime.fromtimestamp(start / 1000, UTC):%H:%M:%S} UTC", published, *counts))
    heads = ("Begins", "Published", *tables)
    return (
        "<h2>Generations</h2>\n"
        f'<p class="quiet">Arrived changes by table and by the generation of their streams. A real ScyllaDB node wrote '
        f"the {summary['recorded_changes']} changes of the recorded tables; their times are shifted. "
        f"{summary['backlog_changes']} changes existed before the bridge started. All of them had arrived "
        f"{summary['backlog_s']:g} s after its start. Rates and latencies exclude them.</p>\n"
        f"{_table(heads, rows)}"
    )


def _method_section(summary: Summary) -> str:
    bridge = summary["bridge"]
    calm = summary["latency_between_generation_changes_ms"]
    rows = [
        ("Latency", _all_latencies(summary["latency_ms"])),
        ("Latency without generation changes", _all_latencies(calm)),
        ("Confidence window, leeway", f"{summary['confidence_ms']} ms, {summary['leeway_ms']} ms"),
        ("Bridge, all processes", f"{bridge['cpu_s']:g} s of CPU time, {bridge['peak_memory_mib']:,} MiB at most"),
        ("Machine", f"{summary['cores']} cores, shared by the bridge, the servers, the writer and this check"),
        ("Seed", str(summary["seed"])),
        ("Versions", ", ".join(f"{name} {version}" for name, version in summary["versions"].items())),
    ]
    return (
        "<h2>How this was measured</h2>\n"
        '<p class="quiet">A simulator writes base tables and CDC log rows as ScyllaDB does, and records every '
        "acknowledged change. The bridge runs as a process of its own, with an ordinary configuration file. "
        "A consumer reads the topics with read_committed and compares each record with the written change: "
        "its key, every column, its source, and its position in the order of its key.</p>\n"
        f"{_table((), rows, kind='text')}"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    header = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f'<div class="scroll"><table class="{kind}">{header}<tbody>{body}</tbody></table></div>\n'


def _all_latencies(latency: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_seconds(value)}" for name, value in latency.items())


def _seconds(value_ms: float | None) -> str:
    return "-" if value_ms is None else f"{value_ms / 1000:.2f} s"
