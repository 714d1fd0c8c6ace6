"""The status page's charts: inline SVG in the page's colours, which fit its light and its dark form. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bridge.model.streams import MIN_TOKEN, lane_range
from bridge.model.times import UnixMillis, iso_of_millis
from bridge.monitoring.page.humanize import duration, number
from bridge.monitoring.snapshot import Ring

COLOURS: Final = 8
_TOKENS: Final = 1 << 64
"""Number of tokens on the ring."""

_MAX_MARKS: Final = 720
"""More marks could not be distinguished on a ring of this size."""

_SCALES: Final = ((172_800.0, 86_400.0, "d"), (7_200.0, 3600.0, "h"), (120.0, 60.0, "min"), (-1.0, 1.0, "s"))
"""Units of a time axis: for values above so many s, the unit in s, and its name."""

Points = Sequence[tuple[float, float]]
"""Points of a chart: s since 1970 and value, ascending in time."""


def colour(lane: int) -> str:
    """Return the colour of a lane; neighbours differ."""
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
    """Return a line chart of the last `span_s` seconds.

    Args:
        points: the line; it is interrupted where points are more than 30 s apart.
        now_s: the right edge, s since 1970.
        span_s: time between the left and the right edge.
        unit: `/s` for a rate, or `s` for a duration.
        description: text for screen readers.
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
        label = f"{back_s / 60:.0f} min ago" if back_s else "now"
        anchor = "start" if back_s == span_s else "middle" if back_s else "end"
        parts.append(f'<text x="{x(now_s - back_s):.0f}" y="{frame.height - 5}" text-anchor="{anchor}">{label}</text>')
    shown = [(at_s, value) for at_s, value in points if at_s >= now_s - span_s]
    for line_points in _split_at_gaps(shown):
        line = "L".join(f"{x(at_s):.1f} {y(value):.1f}" for at_s, value in line_points)
        area = f"M{x(line_points[0][0]):.1f} {y(0):.1f}L{line}L{x(line_points[-1][0]):.1f} {y(0):.1f}Z"
        parts.append(f'<path d="{area}" fill="{colour(colour_at)}" opacity="0.13"/>')
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour(colour_at)}" stroke-width="1.8"/>')
    return _svg(frame.width, frame.height, description, parts)


def sparkline(points: Points, *, now_s: float, span_s: float, description: str) -> str:
    """Return a small line chart without axes, for a cell of a table."""
    width, height = 112, 24
    highest = max((value for _, value in points), default=0.0) or 1.0
    parts = [f'<path d="M0 {height - 1}H{width}" stroke="var(--grid)"/>']
    for line_points in _split_at_gaps(points):
        line = "L".join(
            f"{width * (1 - (now_s - at_s) / span_s):.1f} {height - 1 - (height - 3) * value / highest:.1f}"
            for at_s, value in line_points
        )
        parts.append(f'<path d="M{line}" fill="none" stroke="var(--c0)" stroke-width="1.5"/>')
    return _svg(width, height, description, parts)


def ring(of: Ring, lanes: int) -> str:
    """Return the token ring: an arc for each lane, and a mark for each stream group in the colour of its lane."""
    size, outer, inner = 240, 108.0, 84.0
    parts = []
    for lane in range(lanes):
        arc = _arc(size / 2, outer, 2 * math.pi * lane / lanes, 2 * math.pi * (lane + 1) / lanes)
        parts.append(
            f'<path d="{arc}" fill="none" stroke="{colour(lane)}" stroke-width="9"><title>lane {lane}</title></path>'
        )
    seen: set[int] = set()
    for end, streams in of.groups:
        turn = (end - MIN_TOKEN) / _TOKENS
        mark = int(turn * _MAX_MARKS)
        if mark in seen:
            continue
        seen.add(mark)
        lane = min(lanes - 1, int(turn * lanes))
        (x1, y1), (x2, y2) = (
            _point_on_circle(size / 2, radius, 2 * math.pi * turn) for radius in (inner - 8, inner + 12)
        )
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour(lane)}" stroke-width="1.6">'
            f"<title>stream group at token {end}: {streams} streams, lane {lane}</title></path>"
        )
    parts.append(
        f'<text class="strong" x="{size / 2}" y="{size / 2 - 6}" text-anchor="middle">'
        f"{len(of.groups):,} stream groups</text>"
    )
    parts.append(f'<text x="{size / 2}" y="{size / 2 + 11}" text-anchor="middle">{of.stream_count:,} streams</text>')
    description = f"Token ring with {len(of.groups)} stream groups in {lanes} lanes"
    return _svg(size, size, description, parts)


def groups_by_lane(of: Ring, lanes: int) -> list[tuple[int, int]]:
    """Return the number of stream groups and of streams of each lane."""
    found = []
    for lane in range(lanes):
        slice_ = lane_range(lane, lanes)
        streams = [count for end, count in of.groups if end in slice_]
        found.append((len(streams), sum(streams)))
    return found


def timeline(generations: Sequence[UnixMillis], readers: Sequence[tuple[str, UnixMillis, float]], now_s: float) -> str:
    """Return the latest generations as bars of equal width, and how far each table has read them.

    Args:
        generations: starts of the generations, ascending; each lasts until the next one starts.
        readers: a table's name, its generation, and the time that it has reached (s since 1970).
        now_s: s since 1970.
    """
    shown = list(generations[-6:])
    width, bar, top = 560, 26, 30
    height = top + bar + 16 * max(1, len(readers)) + 12
    each = width / max(1, len(shown))
    parts = []
    for at, start in enumerate(shown):
        has_started = start / 1000 <= now_s
        last = at + 1 == len(shown) or shown[at + 1] / 1000 > now_s
        tint = "var(--c0)" if has_started and last else "var(--muted)"
        opacity = 0.75 if has_started and last else 0.3 if has_started else 0.12
        parts.append(
            f'<rect x="{at * each + 1:.1f}" y="{top}" width="{each - 2:.1f}" height="{bar}" rx="4" fill="{tint}" '
            f'opacity="{opacity}"><title>generation {start}</title></rect>'
        )
        instant = iso_of_millis(start)
        parts.append(f'<text x="{at * each + 3:.1f}" y="12">{instant[:10]}</text>')
        label = f"{instant[11:19]}Z" if has_started else f"in {duration(start / 1000 - now_s)}"
        parts.append(f'<text class="strong" x="{at * each + 3:.1f}" y="25">{label}</text>')
    for row, (name, generation, reached_s) in enumerate(readers):
        parts += _draw_reader(shown, each, (name, generation, reached_s), now_s, (top + bar, 16 * row + 16))
    return _svg(width, height, "The latest generations, and where each table reads", parts)


def _draw_reader(
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


def _split_at_gaps(points: Points) -> list[list[tuple[float, float]]]:
    lines: list[list[tuple[float, float]]] = []
    for point in points:
        if not lines or point[0] - lines[-1][-1][0] > 30:
            lines.append([])
        lines[-1].append(point)
    return lines


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 5, 10) if power * step >= value * 0.999)


def _point_on_circle(middle: float, radius: float, angle: float) -> tuple[float, float]:
    return middle + radius * math.sin(angle), middle - radius * math.cos(angle)


def _arc(middle: float, radius: float, start: float, end: float) -> str:
    gap = min(0.02, (end - start) / 4)
    (x1, y1), (x2, y2) = _point_on_circle(middle, radius, start + gap), _point_on_circle(middle, radius, end - gap)
    long = int(end - start - 2 * gap > math.pi)
    return f"M{x1:.1f} {y1:.1f}A{radius} {radius} 0 {long} 1 {x2:.1f} {y2:.1f}"


def _svg(width: int, height: int, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(description)}">'
        f"<title>{escape(description)}</title>{''.join(parts)}</svg>"
    )
