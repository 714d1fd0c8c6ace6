"""The status page's drawings: inline SVG in the page's own colours, for a light and a dark page alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bridge.model.streams import MIN_TOKEN, lane_range
from bridge.model.times import UnixMillis, iso_of_millis
from bridge.monitoring.page.humanize import number, span
from bridge.monitoring.snapshot import Ring

COLOURS: Final = 8
_WORD: Final = 1 << 64
_MOST_MARKS: Final = 720
"""Marks that can still be told apart on a ring of this size."""

_SCALES: Final = ((172_800.0, 86_400.0, "d"), (7_200.0, 3600.0, "h"), (120.0, 60.0, "min"), (-1.0, 1.0, "s"))
"""Of spans of time: from which on, in s; what they are divided by; what that is called."""

Points = Sequence[tuple[float, float]]
"""Of a plot: s since 1970 and value, ascending in time."""


def colour(lane: int) -> str:
    """A lane's colour; neighbours differ."""
    return f"var(--c{lane % COLOURS})"


@dataclass(frozen=True, slots=True)
class _Frame:
    width: int
    height: int
    left: int
    top: int
    right: int
    bottom: int

    @property
    def inner_width(self) -> int:
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> int:
        return self.height - self.top - self.bottom


def plot(points: Points, *, now_s: float, span_s: float, unit: str, description: str, colour_at: int = 0) -> str:
    """A line over the last `span_s` seconds.

    Args:
        points: the line; gaps of more than 30 s are left open.
        now_s: the right edge, s since 1970.
        span_s: how far the left edge lies back.
        unit: `/s` for a rate, or `s` for a span of time.
        description: for those who can't see it.
        colour_at: number of the colour.
    """
    frame = _Frame(560, 170, 52, 10, 10, 22)
    highest = max((value for _, value in points), default=0.0)
    scale, name = next((by, name) for least, by, name in _SCALES if highest > least) if unit == "s" else (1.0, "")
    highest = scale * _round_up(highest / scale)

    def x(at_s: float) -> float:
        return frame.left + frame.inner_width * (1 - (now_s - at_s) / span_s)

    def y(value: float) -> float:
        return frame.top + frame.inner_height * (1 - value / highest)

    parts = []
    for step in (0.0, 0.5, 1.0):
        at, value = y(highest * step), highest * step
        label = f"{value / scale:g} {name}" if name else number(value)
        parts.append(f'<path d="M{frame.left} {at:.1f}H{frame.width - frame.right}" stroke="var(--grid)"/>')
        parts.append(f'<text x="{frame.left - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for back_s in (span_s, span_s * 2 / 3, span_s / 3, 0.0):
        words = f"{back_s / 60:.0f} min ago" if back_s else "now"
        anchor = "start" if back_s == span_s else "middle" if back_s else "end"
        parts.append(f'<text x="{x(now_s - back_s):.0f}" y="{frame.height - 5}" text-anchor="{anchor}">{words}</text>')
    shown = [(at_s, value) for at_s, value in points if at_s >= now_s - span_s]
    for run in _runs(shown):
        line = "L".join(f"{x(at_s):.1f} {y(value):.1f}" for at_s, value in run)
        area = f"M{x(run[0][0]):.1f} {y(0):.1f}L{line}L{x(run[-1][0]):.1f} {y(0):.1f}Z"
        parts.append(f'<path d="{area}" fill="{colour(colour_at)}" opacity="0.13"/>')
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour(colour_at)}" stroke-width="1.8"/>')
    return _svg(frame.width, frame.height, description, parts)


def sparkline(points: Points, *, now_s: float, span_s: float, description: str) -> str:
    """A small line without axes, for a table's cell."""
    width, height = 112, 24
    highest = max((value for _, value in points), default=0.0) or 1.0
    parts = [f'<path d="M0 {height - 1}H{width}" stroke="var(--grid)"/>']
    for run in _runs(points):
        line = "L".join(
            f"{width * (1 - (now_s - at_s) / span_s):.1f} {height - 1 - (height - 3) * value / highest:.1f}"
            for at_s, value in run
        )
        parts.append(f'<path d="M{line}" fill="none" stroke="var(--c0)" stroke-width="1.5"/>')
    return _svg(width, height, description, parts)


def ring(of: Ring, lanes: int) -> str:
    """The token ring: an arc for each lane, a mark for each stream set, coloured by the lane that reads it."""
    size, outer, inner = 240, 108.0, 84.0
    parts = []
    for lane in range(lanes):
        arc = _arc(size / 2, outer, 2 * math.pi * lane / lanes, 2 * math.pi * (lane + 1) / lanes)
        parts.append(
            f'<path d="{arc}" fill="none" stroke="{colour(lane)}" stroke-width="9"><title>lane {lane}</title></path>'
        )
    seen: set[int] = set()
    for end, streams in of.sets:
        turn = (end - MIN_TOKEN) / _WORD
        place = int(turn * _MOST_MARKS)
        if place in seen:
            continue
        seen.add(place)
        lane = min(lanes - 1, int(turn * lanes))
        (x1, y1), (x2, y2) = (_at(size / 2, radius, 2 * math.pi * turn) for radius in (inner - 8, inner + 12))
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour(lane)}" stroke-width="1.6">'
            f"<title>stream set at token {end}: {streams} streams, lane {lane}</title></path>"
        )
    total = sum(streams for _, streams in of.sets)
    parts.append(
        f'<text class="strong" x="{size / 2}" y="{size / 2 - 6}" text-anchor="middle">'
        f"{len(of.sets):,} stream sets</text>"
    )
    parts.append(f'<text x="{size / 2}" y="{size / 2 + 11}" text-anchor="middle">{total:,} streams</text>')
    words = f"Token ring with {len(of.sets)} stream sets in {lanes} lanes"
    return _svg(size, size, words, parts)


def sets_of_lanes(of: Ring, lanes: int) -> list[tuple[int, int]]:
    """Stream sets and streams of each lane."""
    found = []
    for lane in range(lanes):
        slice_ = lane_range(lane, lanes)
        streams = [count for end, count in of.sets if end in slice_]
        found.append((len(streams), sum(streams)))
    return found


def timeline(generations: Sequence[UnixMillis], readers: Sequence[tuple[str, UnixMillis, float]], now_s: float) -> str:
    """The youngest generations as bars of equal width, and how far each table has got in them.

    Args:
        generations: starts, ascending; each lasts until the next begins.
        readers: a table's name, its generation, and the time that it has reached (s since 1970).
        now_s: s since 1970.
    """
    shown = list(generations[-6:])
    width, bar, top = 560, 26, 30
    height = top + bar + 16 * max(1, len(readers)) + 12
    each = width / max(1, len(shown))
    parts = []
    for at, start in enumerate(shown):
        begun = start / 1000 <= now_s
        last = at + 1 == len(shown) or shown[at + 1] / 1000 > now_s
        tint = "var(--c0)" if begun and last else "var(--muted)"
        parts.append(
            f'<rect x="{at * each + 1:.1f}" y="{top}" width="{each - 2:.1f}" height="{bar}" rx="4" fill="{tint}" '
            f'opacity="{0.75 if begun and last else 0.3 if begun else 0.12}"><title>generation {start}</title></rect>'
        )
        instant = iso_of_millis(start)
        parts.append(f'<text x="{at * each + 3:.1f}" y="12">{instant[:10]}</text>')
        words = f"{instant[11:19]}Z" if begun else f"in {span(start / 1000 - now_s)}"
        parts.append(f'<text class="strong" x="{at * each + 3:.1f}" y="25">{words}</text>')
    for row, (name, generation, reached_s) in enumerate(readers):
        parts += _reader(shown, each, (name, generation, reached_s), now_s, (top + bar, 16 * row + 16))
    return _svg(width, height, "The youngest generations, and where each table reads", parts)


def _reader(
    shown: Sequence[UnixMillis],
    each: float,
    reader: tuple[str, UnixMillis, float],
    now_s: float,
    place: tuple[int, int],
) -> list[str]:
    name, generation, reached_s = reader
    bottom, below = place
    at = shown.index(generation) if generation in shown else 0
    start_s = shown[at] / 1000
    end_s = shown[at + 1] / 1000 if at + 1 < len(shown) else now_s
    share = min(1.0, max(0.0, (reached_s - start_s) / max(1e-3, min(end_s, max(now_s, start_s)) - start_s)))
    x = at * each + 1 + (each - 2) * share
    before = "" if generation in shown else "earlier: "
    anchor = "start" if x < 280 else "end"
    return [
        f'<path d="M{x:.1f} {bottom - 28}V{bottom + below - 3}" stroke="var(--ink)" stroke-width="1.5"/>',
        f'<text x="{x + (5 if anchor == "start" else -5):.1f}" y="{bottom + below}" text-anchor="{anchor}">'
        f"{before}{escape(name)}</text>",
    ]


def _runs(points: Points) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if not runs or point[0] - runs[-1][-1][0] > 30:
            runs.append([])
        runs[-1].append(point)
    return runs


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 5, 10) if power * step >= value * 0.999)


def _at(middle: float, radius: float, angle: float) -> tuple[float, float]:
    return middle + radius * math.sin(angle), middle - radius * math.cos(angle)


def _arc(middle: float, radius: float, start: float, end: float) -> str:
    gap = min(0.02, (end - start) / 4)
    (x1, y1), (x2, y2) = _at(middle, radius, start + gap), _at(middle, radius, end - gap)
    long = int(end - start - 2 * gap > math.pi)
    return f"M{x1:.1f} {y1:.1f}A{radius} {radius} 0 {long} 1 {x2:.1f} {y2:.1f}"


def _svg(width: int, height: int, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(description)}">'
        f"<title>{escape(description)}</title>{''.join(parts)}</svg>"
    )
