"""Computes and formats the results: percentiles, JSON lines, an aligned table, a Markdown table. Pure."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean, linear_regression
from typing import Any, Final

Figures = dict[str, Any]
"""The results for one table: the content of a JSON line."""

_MILLION: Final = 1_000_000
_TENTHS: Final = 10
Columns = tuple[tuple[str, str], ...]
"""The columns of a printed table: the path of each figure in a JSON line, and its heading."""

_HEADINGS: Final[Columns] = (
    ("table", "table"),
    ("changes_per_s", "changes/s"),
    ("changes_per_s_with_startup", "with start-up"),
    ("cpu_s_per_million", "CPU s/million"),
    ("cpu_s_per_million_streaming", "without start-up"),
    ("peak_rss_mib", "peak RSS MiB"),
    ("peak_pss_mib", "peak PSS MiB"),
    ("latency_ms.p50", "p50 ms"),
    ("latency_ms.p99", "p99 ms"),
    ("recovery_s", "recovery s"),
    ("confidence_ms", "confidence ms"),
    ("ratio_to_slowest_stage", "of slowest stage"),
    ("cpu_ratio_to_read", "CPU of plain read"),
    ("cpu_ratio_to_read_streaming", "without start-up"),
)
_ROUNDS_BY: Final = ("cpu_ratio_to_read_streaming", "cpu_s_per_million_streaming")
_OF_EACH_ROUND: Final = ("changes_per_s", "ratio_to_slowest_stage", *_ROUNDS_BY)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank).

    Args:
        ascending: the values, sorted; at least one.
        share: above 0, up to 1.
    """
    if not ascending or not 0 < share <= 1:
        raise ValueError(f"no percentile {share} of {len(ascending)} values")
    return ascending[math.ceil(share * len(ascending)) - 1]


def value_at(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate a growing quantity linearly between samples; outside of them, return the nearest sample's value.

    Args:
        points: (instant, value), instants ascending; at least one.
        at: the instant.
    """
    after = bisect_right(points, at, key=lambda point: point[0])
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (at - left) / (right - left)


def memory_figures(
    memory: Sequence[tuple[float, Mapping[str, float]]], first_s: float, last_s: float, changes: int
) -> Figures:
    """Summarize the memory during a drain: the peak by role, and the growth.

    Args:
        memory: times in Unix s, and the MiB of each role.
        first_s: time of the first published change.
        last_s: time of the last one.
        changes: number of changes.

    Returns:
        `peak_pss_mib_by_role`; `pss_mib_over_time`, the mean of each tenth of the drain; and
        `pss_mib_growth_per_million`, the straight line's through its second half, by when everything is warm. The
        latter two are left out when the drain was too short to have a value in each tenth.
    """
    most = max((roles for _, roles in memory), key=lambda one: sum(one.values()))
    found: Figures = {"peak_pss_mib_by_role": dict(most)}
    tenths: list[list[float]] = [[] for _ in range(_TENTHS)]
    for at, roles in memory:
        if first_s <= at < last_s:
            tenths[int((at - first_s) / (last_s - first_s) * _TENTHS)].append(sum(roles.values()))
    if not all(tenths):
        return found
    means = [fmean(tenth) for tenth in tenths]
    warm = [(at, sum(roles.values())) for at, roles in memory if (first_s + last_s) / 2 <= at < last_s]
    mib_per_s = linear_regression(*zip(*warm, strict=True)).slope
    return found | {
        "pss_mib_over_time": means,
        "pss_mib_growth_per_million": mib_per_s * (last_s - first_s) / (changes / _MILLION),
    }


def against_stages(drained: Mapping[str, Any], stages: Mapping[str, Figures]) -> Figures:
    """Compare a drain with each stage alone.

    Args:
        drained: `changes_per_s`, and CPU seconds per million changes with and without start-up.
        stages: `per_s` and `cpu_s_per_million` of each stage; `read` is required.

    Returns:
        `stages`, `slowest_stage`, `ratio_to_slowest_stage`, `cpu_ratio_to_read` and `cpu_ratio_to_read_streaming`.
    """
    slowest = min(stages, key=lambda stage: stages[stage]["per_s"])
    read = stages["read"]["cpu_s_per_million"]
    return {
        "stages": dict(stages),
        "slowest_stage": slowest,
        "ratio_to_slowest_stage": drained["changes_per_s"] / stages[slowest]["per_s"],
        "cpu_ratio_to_read": drained["cpu_s_per_million"] / read,
        "cpu_ratio_to_read_streaming": drained["cpu_s_per_million_streaming"] / read,
    }


def of_rounds(rounds: Sequence[Figures]) -> Figures:
    """Return the figures of the median round by CPU time per change, and the main figures of every round.

    With stages, the order is by the CPU ratio to the read stage. Of two middle rounds, the more expensive one counts.
    """
    middle_by = next(name for name in _ROUNDS_BY if name in rounds[0])
    middle = sorted(rounds, key=lambda one: one[middle_by])[len(rounds) // 2]
    if len(rounds) == 1:
        return middle
    return middle | {"rounds": [{name: one[name] for name in _OF_EACH_ROUND if name in one} for one in rounds]}


def rounded(value: Any) -> Any:
    """Round all floats in a value to four significant digits, and to whole numbers from 1,000 on."""
    if isinstance(value, bool) or not isinstance(value, float | dict | list):
        return value
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    if not math.isfinite(value):
        return None
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


def json_line(figures: Mapping[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(rounded(dict(figures)), separators=(", ", ": "), ensure_ascii=False)


def plain_table(lines: Sequence[Mapping[str, Any]], columns: Columns = _HEADINGS) -> str:
    """Format the figures as aligned text, without columns that no line has."""
    cells = _cells(lines, columns)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def markdown_table(lines: Sequence[Mapping[str, Any]], columns: Columns = _HEADINGS) -> str:
    """Format the figures as a Markdown table, without columns that no line has."""
    head, *body = _cells(lines, columns)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def machine_line(machines: Sequence[Mapping[str, Any]]) -> str:
    """Describe the machine in one line, given its description before each table."""
    machine = machines[0]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    loads = ", ".join(str(one["load_average"]) for one in machines)
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB; Python {machine['python']}, {versions}; "
        f"load average before each table's drain: {loads}"
    )


def _cells(lines: Sequence[Mapping[str, Any]], columns: Columns) -> list[list[str]]:
    shown = [(path, title) for path, title in columns if any(_look_up(line, path) is not None for line in lines)]
    return [
        [title for _, title in shown],
        *([_text(_look_up(line, path)) for path, _ in shown] for line in lines),
    ]


def _look_up(figures: Mapping[str, Any], path: str) -> Any:
    found: Any = figures
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(value: Any) -> str:
    value = rounded(value)
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
    return str(value)
