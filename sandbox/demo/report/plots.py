"""The report's plots: inline SVG with the page's CSS variables as colours, so that they fit light and dark pages."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from sandbox.demo.report.observations import Point

INK: Final = "ink"
MUTED: Final = "muted"
GRID: Final = "grid"
BAND: Final = "band"
FIRST: Final = "first"
SECOND: Final = "second"
_STAND_INS: Final = {
    name: f"#0{place}0{place}0{place}" for place, name in enumerate((INK, MUTED, GRID, BAND, FIRST, SECOND), start=1)
}
"""Placeholder colours for matplotlib. Each is replaced by the page's variable of that name."""

_SIZE_INCHES: Final = (10.0, 3.0)
_SETTINGS: Final[Any] = {
    # Keep text as text: it is searchable and uses the page's font.
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _STAND_INS[MUTED],
    "axes.labelcolor": _STAND_INS[MUTED],
    "xtick.color": _STAND_INS[MUTED],
    "ytick.color": _STAND_INS[MUTED],
    "text.color": _STAND_INS[INK],
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot.

    Attributes:
        label: text in the legend.
        points: points, ascending in time.
        colour: name of one of the page's variables.
        filled: whether the area below the line is tinted.
        dashed: whether the line is dashed.
    """

    label: str
    points: Sequence[Point]
    colour: str
    filled: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Boundary:
    """A generation's start on the time axis, in seconds.

    Attributes:
        at_s: start of the generation.
        label: text beside the line.
        published_s: time of the publication if it was after the start, else None.
        held_until_s: its changes wait until this time, because the former generation is still open.
    """

    at_s: float
    label: str
    published_s: float | None
    held_until_s: float


def plot(
    name: str,
    lines: Sequence[Line],
    boundaries: Sequence[Boundary],
    *,
    span_s: tuple[float, float],
    y_label: str,
    description: str,
) -> str:
    """Draw a plot over the seconds since the writer began, as an `<svg>` element.

    Args:
        name: name of the plot, unique in its page.
        lines: at least one line.
        boundaries: generations to mark in the plot.
        span_s: first and last second of the time axis.
        y_label: label of the y axis, with its unit.
        description: alternative text for screen readers.
    """
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        for line in lines:
            _draw_line(axes, line)
        highest = max((point.value for line in lines for point in line.points), default=1.0) or 1.0
        axes.set_ylim(0, highest * 1.22)
        axes.set_xlim(*span_s)
        for boundary in boundaries:
            _draw_boundary(axes, boundary)
        axes.set_xlabel("seconds since the writer began")
        axes.set_ylabel(y_label)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if highest > 10 else "{x:.1f}"))
        axes.grid(visible=True, axis="y", color=_STAND_INS[GRID], linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.13), ncols=len(lines), frameon=False, borderaxespad=0)
        drawn = io.StringIO()
        figure.savefig(
            drawn, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _make_inline(drawn.getvalue(), description)


def _draw_line(axes: Any, line: Line) -> None:
    times, values = [point.at_s for point in line.points], [point.value for point in line.points]
    colour = _STAND_INS[line.colour]
    style = (0, (4, 3)) if line.dashed else "-"
    axes.plot(times, values, color=colour, label=line.label, linewidth=1.6, linestyle=style, solid_joinstyle="round")
    if line.filled:
        axes.fill_between(times, values, color=colour, alpha=0.14, linewidth=0)


def _draw_boundary(axes: Any, boundary: Boundary) -> None:
    axes.axvspan(boundary.at_s, boundary.held_until_s, color=_STAND_INS[BAND], alpha=0.5, linewidth=0, zorder=0)
    axes.axvline(boundary.at_s, color=_STAND_INS[INK], linewidth=1.1)
    _write_label(axes, boundary.at_s, 0, boundary.label)
    if boundary.published_s is not None:
        # Shorter, so that it does not cross the text above it.
        axes.axvline(boundary.published_s, ymax=0.92, color=_STAND_INS[INK], linewidth=1.1, linestyle=(0, (2, 2)))
        _write_label(axes, boundary.published_s, 1, "published")


def _write_label(axes: Any, at_s: float, row: int, text: str) -> None:
    """Write text at the top of the plot, right of a line."""
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top", "fontsize": 8.5}
    axes.annotate(text, (at_s, 1.0), xytext=(5, -2 - 12 * row), **place)


def _make_inline(svg: str, description: str) -> str:
    for name, colour in _STAND_INS.items():
        svg = svg.replace(colour, f"var(--{name})")
    # An inline element needs no XML declaration; the page sets its size.
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{description}">{rest}'
