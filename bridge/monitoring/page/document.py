"""The status page: what a person on call must see in ten seconds, as one HTML document that needs nothing else. Pure.

Everything on it comes from a `JobView`; configuration is not shown, so no secret can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final, Literal

from bridge.model.times import iso_of_micros, iso_of_millis
from bridge.monitoring import health
from bridge.monitoring.page import charts
from bridge.monitoring.page.humanize import number, size, span
from bridge.monitoring.snapshot import JobView, LaneView, Ring, Sample, TableStreams, TableView

PLOTTED_S: Final = 900.0
_RATE_OVER_S: Final = 30.0
_CLOCKS_DIFFER_S: Final = 1.0
_TTL_NEAR: Final = 0.25
"""Share of the log's TTL that is left when it is time to worry."""

_MOST_STREAMS: Final = 8
"""Rings and timelines for so many tables with streams of their own."""

Mood = Literal["good", "odd", "bad"]


def render(job: JobView) -> str:
    """The page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<noscript><meta http-equiv="refresh" content="5"></noscript>\n'
        f"<title>{_title(job)}</title>\n<style>\n{_file('page.css')}</style>\n</head>\n<body>\n"
        f'<div id="gone" class="verdict bad"></div>\n<main>\n{_main(job)}\n</main>\n'
        f"<script>\n{_file('page.js')}</script>\n</body>\n</html>\n"
    )


def _main(job: JobView) -> str:
    parts = (
        _head(job),
        _verdict(job),
        _cards(job),
        _tables(job),
        _plots(job),
        _streams(job),
        _lanes(job),
        _messages(job),
    )
    return "\n".join(parts)


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def shown_state(job: JobView, table: TableView) -> tuple[str, Mood]:
    """What the page calls a table's state, and how bad that is."""
    if health.stalled(job, table):
        return "stalled", "bad"
    moods: dict[str, Mood] = {"stopped": "bad", "retrying": "odd", "starting": "odd"}
    return table.state, moods.get(table.state, "good")


def _moods(job: JobView) -> dict[str, Mood]:
    return {table.name: shown_state(job, table)[1] for table in job.tables}


def _title(job: JobView) -> str:
    moods = list(_moods(job).values())
    bad = len(moods) - moods.count("good")
    state = "not alive" if health.why_dead(job) else f"{bad} of {len(moods)} in trouble" if bad else "ok"
    return escape(f"{state}: {job.name}")


def _head(job: JobView) -> str:
    return (
        f"<header><h1>{escape(job.name)}</h1>"
        f'<span class="quiet">scylla-cdc-bridge {escape(job.version)}, up {span(job.now_s - job.started_s)}, '
        f"as of {iso_of_micros(int(job.now_s * 1e6))[:19]}Z</span></header>"
    )


def _verdict(job: JobView) -> str:
    dead = health.why_dead(job)
    if dead is not None:
        return f'<div class="verdict bad">The job hangs: {escape(dead)}</div>'
    moods = _moods(job)
    items = [
        f"<li><b>{escape(table.name)}</b> {escape(_story(job, table))}</li>"
        for table in job.tables
        if moods[table.name] != "good"
    ]
    many = f"{len(items)} of {len(job.tables)} table{'s' if len(job.tables) > 1 else ''}"
    mood: Mood = "good"
    if "bad" in moods.values():
        mood, words = "bad", f"{many} in trouble"
    elif items:
        mood, words = "odd", f"{many} starting or trying again"
    else:
        words = "The table keeps up" if len(job.tables) == 1 else f"All {len(job.tables)} tables keep up"
    if job.topology.problem is not None:
        items.append(f"<li>The cluster's generations can't be read: {escape(job.topology.problem)}</li>")
        mood = "odd" if mood == "good" else mood
    ahead_s = job.topology.clock_ahead_s or 0.0
    if abs(ahead_s) > _CLOCKS_DIFFER_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        items.append(f"<li>This machine's clock is {span(abs(ahead_s))} {way} the ScyllaDB servers'.</li>")
        mood = "odd" if mood == "good" else mood
    list_ = f"<ul>{''.join(items)}</ul>" if items else ""
    return f'<div class="verdict {mood}">{words}{list_}</div>'


def _story(job: JobView, table: TableView) -> str:
    state, _ = shown_state(job, table)
    reason = (table.reason or "").removeprefix(f"{table.name}: ")
    for_s = span(job.now_s - table.since_s)
    if state == "stalled":
        return f"is stalled: {health.why_not_ready(job, table)}"
    if table.state == "retrying":
        again_s = max(0.0, (table.again_at_s or job.now_s) - job.now_s)
        return f"failed ({table.failures} times), starting again in {span(again_s)}: {reason}"
    if table.state == "stopped":
        return f"stopped {for_s} ago and will not start by itself: {reason}"
    return f"is {state} for {for_s}" + (f": {reason}" if reason else "")


def _cards(job: JobView) -> str:
    lags = [lag for table in job.tables if (lag := table.lag_s(job.servers_s)) is not None]
    lefts = [(left, table) for table in job.tables if (left := _ttl_left_s(job, table)) is not None]
    left_s, nearest = min(lefts, key=lambda one: one[0], default=(None, None))
    worst_s = max(lags, default=None)
    total = sum(table.total.changes for table in job.tables)
    not_ready = sum(health.why_not_ready(job, table) is not None for table in job.tables)
    cards: list[tuple[str, str, Mood]] = [
        (f"{number(_rate(job.samples, None))}/s", "changes, last 30 s", "good"),
        (span(worst_s), "worst lag", "good" if worst_s is None else _lag_mood(job, worst_s)),
        (span(left_s), "to the log's TTL edge", _ttl_mood(job, nearest, left_s)),
        (f"{len(job.tables) - not_ready} of {len(job.tables)}", "tables ready", "bad" if not_ready else "good"),
        (number(total), "changes since the start", "good"),
        (span(job.confidence_s), "confidence window", "good"),
    ]
    shown = "".join(
        f'<div class="card {mood}"><b>{value}</b><span>{label}</span></div>' for value, label, mood in cards
    )
    return f'<div class="cards">{shown}</div>'


def _lag_mood(job: JobView, lag_s: float) -> Mood:
    return "good" if lag_s <= job.confidence_s + job.leeway_s + job.stalled_after_s else "odd"


def _ttl_left_s(job: JobView, table: TableView) -> float | None:
    return min((left for lane in table.active if (left := job.ttl_left_s(table, lane)) is not None), default=None)


def _ttl_mood(job: JobView, table: TableView | None, left_s: float | None) -> Mood:
    if table is None or left_s is None:
        return "good"
    if left_s <= 0:
        return "bad"
    return "odd" if left_s < _TTL_NEAR * job.topology.ttl_s.get(table.name, 0) else "good"


def _rate(samples: Sequence[Sample], table: str | None) -> float:
    """Changes/s over the last half minute, of one table or of all."""
    if len(samples) < 2:
        return 0.0
    last = samples[-1]
    first = next(one for one in samples if last.at_s - one.at_s <= _RATE_OVER_S)
    if first is last:
        first = samples[-2]
    return max(0.0, _changes(last, table) - _changes(first, table)) / (last.at_s - first.at_s)


def _changes(sample: Sample, table: str | None) -> float:
    return sum(sample.changes.values()) if table is None else sample.changes.get(table, 0)


def _rates(job: JobView, table: str | None) -> list[tuple[float, float]]:
    pairs = zip(job.samples, job.samples[1:], strict=False)
    return [
        (after.at_s, max(0.0, _changes(after, table) - _changes(before, table)) / (after.at_s - before.at_s))
        for before, after in pairs
    ]


def _tables(job: JobView) -> str:
    heads = ("table", "state", "lag", "to TTL edge", "changes/s", "last 15 min", "changes", "lanes", "window", "batch")
    rows = []
    for table in job.tables:
        state, mood = shown_state(job, table)
        lag_s, left_s = table.lag_s(job.servers_s), _ttl_left_s(job, table)
        window = table.batches.window
        length = "-" if window is None else "to the end" if window.end_us is None else None
        spark = charts.sparkline(
            _rates(job, table.name), now_s=job.now_s, span_s=PLOTTED_S, description=f"changes/s of {table.name}"
        )
        ttl = "none" if job.topology.ttl_s.get(table.name) == 0 else span(left_s)
        rows.append(
            f'<tr class="{mood}"><td>{escape(table.name)}</td>'
            f'<td class="text"><span class="pill {mood}">{state}</span></td>'
            f'<td class="{"" if lag_s is None else _lag_mood(job, lag_s)}">{span(lag_s)}</td>'
            f'<td class="{_ttl_mood(job, table, left_s)}">{ttl}</td>'
            f"<td>{number(_rate(job.samples, table.name))}</td><td>{spark}</td><td>{number(table.total.changes)}</td>"
            f"<td>{'-' if table.layout is None else table.layout.lanes}</td>"
            f"<td>{length or span(((window.end_us or 0) - window.start_us) / 1e6) if window else '-'}</td>"
            f"<td>{span(table.batches.last_s)}</td></tr>"
        )
    return f"<h2>Tables</h2>{_grid(heads, rows)}"


def _plots(job: JobView) -> str:
    lags = [(one.at_s, max(one.lag_s.values())) for one in job.samples if one.lag_s]
    rate = charts.plot(
        _rates(job, None), now_s=job.now_s, span_s=PLOTTED_S, unit="/s", description="Changes per second, all tables"
    )
    lag = charts.plot(
        lags, now_s=job.now_s, span_s=PLOTTED_S, unit="s", description="Lag of the slowest table", colour_at=1
    )
    return (
        f'<div class="pair"><section><h2>Changes/s</h2><figure>{rate}</figure></section>'
        f"<section><h2>Worst lag</h2><figure>{lag}</figure></section></div>"
    )


def _streams(job: JobView) -> str:
    # By identity: comparing streams would cost, and those that tables share are one object.
    alike: dict[int, tuple[TableStreams, Ring, list[TableView]]] = {}
    for table in job.tables:
        of = job.topology.streams.get(table.name)
        if of is not None and of.ring is not None:
            alike.setdefault(id(of), (of, of.ring, []))[2].append(table)
    if not alike:
        return '<h2>Streams</h2><p class="quiet">The cluster\'s generations are not read yet.</p>'
    shown = "".join(_streams_of(job, *one) for one in list(alike.values())[:_MOST_STREAMS])
    left = len(alike) - _MOST_STREAMS
    return shown + (f'<p class="quiet">The streams of {left} more tables are not shown.</p>' if left > 0 else "")


def _streams_of(job: JobView, of: TableStreams, ring: Ring, tables: Sequence[TableView]) -> str:
    readers = [(table.name, at.generation_ms, at.reached_us / 1e6) for table in tables if (at := table.slowest)]
    line = charts.timeline(of.generations, readers, job.now_s)
    rings = "".join(_ring(tables, ring, lanes) for lanes in sorted({one.layout.lanes for one in tables if one.layout}))
    behind = ", ".join(table.name for table in tables if (at := table.slowest) and at.catch_up)
    words = f" Streams that were opened just now catch up: {escape(behind)}." if behind else ""
    return (
        f'<div class="pair">{rings}<section><h2>Generations</h2><figure>{line}</figure>'
        f'<p class="quiet">{_ring_words(ring)}{words}</p></section></div>'
    )


def _ring_words(of: Ring) -> str:
    return f"The rings show the streams of the generation that began {iso_of_millis(of.generation_ms)[:19]}Z."


def _ring(alike: Sequence[TableView], of: Ring, lanes: int) -> str:
    tables = [table.name for table in alike if table.layout is not None and table.layout.lanes == lanes]
    counts = charts.sets_of_lanes(of, lanes)
    items = "".join(
        f'<li><i style="background:{charts.colour(lane)}"></i>lane {lane}: {sets:,} sets, {streams:,} streams</li>'
        for lane, (sets, streams) in list(enumerate(counts))[:16]
    )
    more = f'<li class="quiet">and {lanes - 16} more</li>' if lanes > 16 else ""
    words = escape(", ".join(tables[:4]) + (f" and {len(tables) - 4} more" if len(tables) > 4 else ""))
    return (
        f'<section><h2>Streams by lane <span class="quiet">{words}</span></h2>'
        f'<figure><div class="ring">{charts.ring(of, lanes)}<ul>{items}{more}</ul></div></figure></section>'
    )


def _lanes(job: JobView) -> str:
    return "<h2>Lanes</h2>" + "".join(_lanes_of(job, table) for table in job.tables)


def _lanes_of(job: JobView, table: TableView) -> str:
    heads = (
        "lane",
        "reached",
        "lag",
        "changes",
        "bytes",
        "transactions",
        "aborted",
        "fenced",
        "log pages",
        "failed",
    )
    rows = [_lane(job, lane) for lane in table.active]
    open_ = " open" if len(job.tables) == 1 or shown_state(job, table)[1] != "good" else ""
    if not rows:
        return ""
    return (
        f'<details id="lanes of {escape(table.name)}"{open_}><summary>{escape(table.name)} '
        f'<span class="quiet">to topic {escape(table.topic)}</span></summary>{_grid(heads, rows)}</details>'
    )


def _lane(job: JobView, lane: LaneView) -> str:
    of, lag_s = lane.figures, lane.lag_s(job.servers_s)
    reached = "-" if lane.cursor is None else iso_of_micros(lane.cursor.reached_us)[:23] + "Z"
    wrong = ("", "odd")
    return (
        f"<tr><td>{lane.lane}</td><td>{reached}</td><td>{span(lag_s)}</td><td>{number(of.changes)}</td>"
        f"<td>{size(of.value_bytes)}</td><td>{number(of.transactions)}</td>"
        f'<td class="{wrong[of.aborts > 0]}">{of.aborts}</td><td class="{wrong[of.fencings > 0]}">{of.fencings}</td>'
        f'<td>{number(of.pages.count)}</td><td class="{wrong[of.page_errors > 0]}">{of.page_errors}</td></tr>'
    )


def _messages(job: JobView) -> str:
    if not job.messages:
        return '<h2>Last warnings and errors</h2><p class="quiet">None since the start.</p>'
    rows = [
        f"<tr><td>{iso_of_micros(int(one.at_s * 1e6))[11:19]}Z</td>"
        f'<td class="text"><span class="pill {"bad" if one.level == "error" else "odd"}">{one.level}</span></td>'
        f'<td class="text words">{escape(one.text)}{f" ({one.times} times)" if one.times > 1 else ""}</td></tr>'
        for one in reversed(job.messages[-20:])
    ]
    return f"<h2>Last warnings and errors</h2>{_grid(('at', 'level', 'what'), rows, words=True)}"


def _grid(heads: Sequence[str], rows: Sequence[str], *, words: bool = False) -> str:
    def head(at: int, text: str) -> str:
        return f'<th class="text">{text}</th>' if words or (at == 1 and text == "state") else f"<th>{text}</th>"

    shown = "".join(head(at, text) for at, text in enumerate(heads))
    return f'<div class="scroll"><table><thead><tr>{shown}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
