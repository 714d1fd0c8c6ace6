"""The status page: one self-contained HTML document that shows the state of the job at a glance. Pure.

It shows only a `JobSnapshot` and no configuration, so it cannot show a secret.
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
from bridge.monitoring.page.humanize import duration, number, size
from bridge.monitoring.snapshot import JobSnapshot, LaneSnapshot, Message, Ring, Sample, TableSnapshot, TableStreams

CHART_SPAN_S: Final = 900.0
_RATE_SPAN_S: Final = 30.0
_CLOCK_TOLERANCE_S: Final = 1.0
_TTL_NEAR: Final = 0.25
"""Share of the log's TTL below which the remaining time is marked."""

_MAX_STREAMS: Final = 8
"""Maximum number of rings and timelines, for tables with their own streams."""

Mood = Literal["good", "odd", "bad"]


def render(job: JobSnapshot) -> str:
    """Return the page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<noscript><meta http-equiv="refresh" content="5"></noscript>\n'
        f"<title>{_title(job)}</title>\n<style>\n{_read_file('page.css')}</style>\n</head>\n<body>\n"
        f'<div id="gone" class="verdict bad"></div>\n<main>\n{_render_main(job)}\n</main>\n'
        f"<script>\n{_read_file('page.js')}</script>\n</body>\n</html>\n"
    )


def _render_main(job: JobSnapshot) -> str:
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
def _read_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def display_state(job: JobSnapshot, table: TableSnapshot) -> tuple[str, Mood]:
    """Return the page's word for a table's state, and how good that is."""
    if health.is_stalled(job, table):
        return "stalled", "bad"
    moods: dict[str, Mood] = {"stopped": "bad", "retrying": "odd", "starting": "odd"}
    return table.state, moods.get(table.state, "good")


def _moods(job: JobSnapshot) -> dict[str, Mood]:
    return {table.name: display_state(job, table)[1] for table in job.tables}


def _title(job: JobSnapshot) -> str:
    moods = list(_moods(job).values())
    bad = len(moods) - moods.count("good")
    state = "not alive" if health.why_dead(job) else f"{bad} of {len(moods)} in trouble" if bad else "ok"
    return escape(f"{state}: {job.name}")


def _head(job: JobSnapshot) -> str:
    return (
        f"<header><h1>{escape(job.name)}</h1>"
        f'<span class="quiet">scylla-cdc-bridge {escape(job.version)}, up {duration(job.now_s - job.started_s)}, '
        f"as of {iso_of_micros(int(job.now_s * 1e6))[:19]}Z</span></header>"
    )


def _verdict(job: JobSnapshot) -> str:
    dead = health.why_dead(job)
    if dead is not None:
        return f'<div class="verdict bad">The job hangs: {escape(dead)}</div>'
    moods = _moods(job)
    items = [
        f"<li><b>{escape(table.name)}</b> {escape(_describe_table(job, table))}</li>"
        for table in job.tables
        if moods[table.name] != "good"
    ]
    troubled = f"{len(items)} of {len(job.tables)} table{'s' if len(job.tables) > 1 else ''}"
    mood: Mood = "good"
    if "bad" in moods.values():
        mood, verdict = "bad", f"{troubled} in trouble"
    elif items:
        mood, verdict = "odd", f"{troubled} starting or retrying"
    else:
        verdict = "The table keeps up" if len(job.tables) == 1 else f"All {len(job.tables)} tables keep up"
    if job.topology.problem is not None:
        items.append(f"<li>The cluster's generations can't be read: {escape(job.topology.problem)}</li>")
        mood = "odd" if mood == "good" else mood
    ahead_s = job.topology.clock_ahead_s or 0.0
    if abs(ahead_s) > _CLOCK_TOLERANCE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        items.append(f"<li>This machine's clock is {duration(abs(ahead_s))} {way} the ScyllaDB servers'.</li>")
        mood = "odd" if mood == "good" else mood
    list_ = f"<ul>{''.join(items)}</ul>" if items else ""
    return f'<div class="verdict {mood}">{verdict}{list_}</div>'


def _describe_table(job: JobSnapshot, table: TableSnapshot) -> str:
    state, _ = display_state(job, table)
    reason = (table.reason or "").removeprefix(f"{table.name}: ")
    for_s = duration(job.now_s - table.since_s)
    if state == "stalled":
        return f"is stalled: {health.why_not_ready(job, table)}"
    if table.state == "retrying":
        again_s = max(0.0, (table.again_at_s or job.now_s) - job.now_s)
        return f"failed ({table.failures} times), starts again in {duration(again_s)}: {reason}"
    if table.state == "stopped":
        return f"stopped {for_s} ago and does not start again by itself: {reason}"
    return f"has been {state} for {for_s}" + (f": {reason}" if reason else "")


def _cards(job: JobSnapshot) -> str:
    lags = [lag for table in job.tables if (lag := table.lag_s(job.servers_s)) is not None]
    times_left = [(left, table) for table in job.tables if (left := _ttl_left_s(job, table)) is not None]
    left_s, nearest = min(times_left, key=lambda pair: pair[0], default=(None, None))
    worst_s = max(lags, default=None)
    total = sum(table.total.changes for table in job.tables)
    not_ready = sum(health.why_not_ready(job, table) is not None for table in job.tables)
    cards: list[tuple[str, str, Mood]] = [
        (f"{number(_rate(job.samples, None))}/s", "changes, last 30 s", "good"),
        (duration(worst_s), "worst lag", "good" if worst_s is None else _lag_mood(job, worst_s)),
        (duration(left_s), "until the log's TTL", _ttl_mood(job, nearest, left_s)),
        (f"{len(job.tables) - not_ready} of {len(job.tables)}", "tables ready", "bad" if not_ready else "good"),
        (number(total), "changes since the start", "good"),
        (duration(job.confidence_s), "confidence window", "good"),
    ]
    shown = "".join(
        f'<div class="card {mood}"><b>{value}</b><span>{label}</span></div>' for value, label, mood in cards
    )
    return f'<div class="cards">{shown}</div>'


def _lag_mood(job: JobSnapshot, lag_s: float) -> Mood:
    return "good" if lag_s <= job.confidence_s + job.leeway_s + job.stalled_after_s else "odd"


def _ttl_left_s(job: JobSnapshot, table: TableSnapshot) -> float | None:
    return min(
        (left for lane in table.assigned_lanes if (left := job.ttl_left_s(table, lane)) is not None), default=None
    )


def _ttl_mood(job: JobSnapshot, table: TableSnapshot | None, left_s: float | None) -> Mood:
    if table is None or left_s is None:
        return "good"
    if left_s <= 0:
        return "bad"
    return "odd" if left_s < _TTL_NEAR * job.topology.ttl_s.get(table.name, 0) else "good"


def _rate(samples: Sequence[Sample], table: str | None) -> float:
    """Return the changes/s of the last half minute, of one table or of all."""
    if len(samples) < 2:
        return 0.0
    last = samples[-1]
    first = next(sample for sample in samples if last.at_s - sample.at_s <= _RATE_SPAN_S)
    if first is last:
        first = samples[-2]
    return max(0.0, _changes(last, table) - _changes(first, table)) / (last.at_s - first.at_s)


def _changes(sample: Sample, table: str | None) -> float:
    return sum(sample.changes.values()) if table is None else sample.changes.get(table, 0)


def _rates(job: JobSnapshot, table: str | None) -> list[tuple[float, float]]:
    pairs = zip(job.samples, job.samples[1:], strict=False)
    return [
        (after.at_s, max(0.0, _changes(after, table) - _changes(before, table)) / (after.at_s - before.at_s))
        for before, after in pairs
    ]


def _tables(job: JobSnapshot) -> str:
    heads = ("table", "state", "lag", "until TTL", "changes/s", "last 15 min", "changes", "lanes", "window", "batch")
    rows = []
    for table in job.tables:
        state, mood = display_state(job, table)
        lag_s, left_s = table.lag_s(job.servers_s), _ttl_left_s(job, table)
        window = table.batches.window
        length = "-" if window is None else "to the end" if window.end_us is None else None
        spark = charts.sparkline(
            _rates(job, table.name), now_s=job.now_s, span_s=CHART_SPAN_S, description=f"changes/s of {table.name}"
        )
        ttl = "none" if job.topology.ttl_s.get(table.name) == 0 else duration(left_s)
        rows.append(
            f'<tr class="{mood}"><td>{escape(table.name)}</td>'
            f'<td class="text"><span class="pill {mood}">{state}</span></td>'
            f'<td class="{"" if lag_s is None else _lag_mood(job, lag_s)}">{duration(lag_s)}</td>'
            f'<td class="{_ttl_mood(job, table, left_s)}">{ttl}</td>'
            f"<td>{number(_rate(job.samples, table.name))}</td><td>{spark}</td><td>{number(table.total.changes)}</td>"
            f"<td>{'-' if table.layout is None else table.layout.lanes}</td>"
            f"<td>{length or duration(((window.end_us or 0) - window.start_us) / 1e6) if window else '-'}</td>"
            f"<td>{duration(table.batches.last_s)}</td></tr>"
        )
    return f"<h2>Tables</h2>{_grid(heads, rows)}"


def _plots(job: JobSnapshot) -> str:
    lags = [(sample.at_s, max(sample.lag_s.values())) for sample in job.samples if sample.lag_s]
    rate = charts.plot(
        _rates(job, None), now_s=job.now_s, span_s=CHART_SPAN_S, unit="/s", description="Changes per second, all tables"
    )
    lag = charts.plot(
        lags, now_s=job.now_s, span_s=CHART_SPAN_S, unit="s", description="Lag of the slowest table", colour_at=1
    )
    return (
        f'<div class="pair"><section><h2>Changes/s</h2><figure>{rate}</figure></section>'
        f"<section><h2>Worst lag</h2><figure>{lag}</figure></section></div>"
    )


def _streams(job: JobSnapshot) -> str:
    # Tables that share their streams have one object, so comparing by identity is enough, and cheap.
    shared: dict[int, tuple[TableStreams, Ring, list[TableSnapshot]]] = {}
    for table in job.tables:
        of = job.topology.streams.get(table.name)
        if of is not None and of.ring is not None:
            shared.setdefault(id(of), (of, of.ring, []))[2].append(table)
    if not shared:
        return '<h2>Streams</h2><p class="quiet">The cluster\'s generations have not been read yet.</p>'
    shown = "".join(_streams_of(job, *streams) for streams in list(shared.values())[:_MAX_STREAMS])
    left = len(shared) - _MAX_STREAMS
    return shown + (f'<p class="quiet">The streams of {left} more tables are not shown.</p>' if left > 0 else "")


def _streams_of(job: JobSnapshot, of: TableStreams, ring: Ring, tables: Sequence[TableSnapshot]) -> str:
    readers = [(table.name, at.generation_ms, at.reached_us / 1e6) for table in tables if (at := table.slowest)]
    line = charts.timeline(of.generations, readers, job.now_s)
    rings = "".join(
        _ring(tables, ring, lanes) for lanes in sorted({table.layout.lanes for table in tables if table.layout})
    )
    behind = ", ".join(table.name for table in tables if (at := table.slowest) and at.catch_up)
    catching_up = f" Newly opened streams are catching up: {escape(behind)}." if behind else ""
    return (
        f'<div class="pair">{rings}<section><h2>Generations</h2><figure>{line}</figure>'
        f'<p class="quiet">{_describe_ring(ring)}{catching_up}</p></section></div>'
    )


def _describe_ring(of: Ring) -> str:
    return f"The rings show the streams of the generation that started {iso_of_millis(of.generation_ms)[:19]}Z."


def _ring(sharing: Sequence[TableSnapshot], of: Ring, lanes: int) -> str:
    tables = [table.name for table in sharing if table.layout is not None and table.layout.lanes == lanes]
    counts = charts.groups_by_lane(of, lanes)
    items = "".join(
        f'<li><i style="background:{charts.colour(lane)}"></i>lane {lane}: {groups:,} groups, {streams:,} streams</li>'
        for lane, (groups, streams) in list(enumerate(counts))[:16]
    )
    more = f'<li class="quiet">and {lanes - 16} more</li>' if lanes > 16 else ""
    names = escape(", ".join(tables[:4]) + (f" and {len(tables) - 4} more" if len(tables) > 4 else ""))
    return (
        f'<section><h2>Streams by lane <span class="quiet">{names}</span></h2>'
        f'<figure><div class="ring">{charts.ring(of, lanes)}<ul>{items}{more}</ul></div></figure></section>'
    )


def _lanes(job: JobSnapshot) -> str:
    return "<h2>Lanes</h2>" + "".join(_lanes_of(job, table) for table in job.tables)


def _lanes_of(job: JobSnapshot, table: TableSnapshot) -> str:
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
    rows = [_lane(job, lane) for lane in table.assigned_lanes]
    opened = " open" if len(job.tables) == 1 or display_state(job, table)[1] != "good" else ""
    if not rows:
        return ""
    return (
        f'<details id="lanes of {escape(table.name)}"{opened}><summary>{escape(table.name)} '
        f'<span class="quiet">to topic {escape(table.topic)}</span></summary>{_grid(heads, rows)}</details>'
    )


def _lane(job: JobSnapshot, lane: LaneSnapshot) -> str:
    of, lag_s = lane.counters, lane.lag_s(job.servers_s)
    reached = "-" if lane.cursor is None else iso_of_micros(lane.cursor.reached_us)[:23] + "Z"
    mood = ("", "odd")
    return (
        f"<tr><td>{lane.lane}</td><td>{reached}</td><td>{duration(lag_s)}</td><td>{number(of.changes)}</td>"
        f"<td>{size(of.value_bytes)}</td><td>{number(of.transactions)}</td>"
        f'<td class="{mood[of.aborts > 0]}">{of.aborts}</td><td class="{mood[of.fencings > 0]}">{of.fencings}</td>'
        f'<td>{number(of.pages.count)}</td><td class="{mood[of.page_errors > 0]}">{of.page_errors}</td></tr>'
    )


def _messages(job: JobSnapshot) -> str:
    if not job.messages:
        return '<h2>Last warnings and errors</h2><p class="quiet">None since the start.</p>'
    rows = [_message(message) for message in reversed(job.messages[-20:])]
    return f"<h2>Last warnings and errors</h2>{_grid(('at', 'level', 'what'), rows, words=True)}"


def _message(message: Message) -> str:
    mood: Mood = "bad" if message.level == "error" else "odd"
    times = f" ({message.times} times)" if message.times > 1 else ""
    return (
        f"<tr><td>{iso_of_micros(int(message.at_s * 1e6))[11:19]}Z</td>"
        f'<td class="text"><span class="pill {mood}">{message.level}</span></td>'
        f'<td class="text words">{escape(message.text)}{times}</td></tr>'
    )


def _grid(heads: Sequence[str], rows: Sequence[str], *, words: bool = False) -> str:
    def head(at: int, text: str) -> str:
        return f'<th class="text">{text}</th>' if words or (at == 1 and text == "state") else f"<th>{text}</th>"

    shown = "".join(head(at, text) for at, text in enumerate(heads))
    return f'<div class="scroll"><table><thead><tr>{shown}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
