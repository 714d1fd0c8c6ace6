"""Figures are computed and printed as the README says."""

from __future__ import annotations

import json

import pytest

from bench import figures

_LINE = {
    "table": "narrow",
    "changes": 1_000_000,
    "changes_per_s": 50_123.4,
    "cpu_s_per_million": 31.23456,
    "peak_rss_mib": 1400.7,
    "latency_ms": {"p50": 2510.2, "p99": 3301.9},
    "confidence_ms": 2000,
}


def test_a_percentile_is_the_nearest_rank() -> None:
    """It is the smallest value that the share of all values does not exceed; no value is made up between two."""
    values = [float(number) for number in range(1, 101)]
    assert figures.percentile(values, 0.50) == 50
    assert figures.percentile(values, 0.99) == 99
    assert figures.percentile(values, 1) == 100
    assert figures.percentile([7.0], 0.01) == 7


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    """No values, or a share that is none, give an error rather than a figure."""
    with pytest.raises(ValueError, match="no percentile"):
        figures.percentile(values, share)


@pytest.mark.parametrize(("at", "value"), [(0, 1), (10, 1), (15, 2), (20, 3), (30, 9), (99, 9)])
def test_a_value_between_two_samples_lies_on_their_line(at: float, value: float) -> None:
    """A growing quantity is interpolated; it is constant before the first and after the last sample."""
    assert figures.value_at([(10, 1), (20, 3), (30, 9)], at) == value


@pytest.mark.parametrize(
    ("value", "shown"), [(12345.6, 12346), (999.96, 1000.0), (0.123456, 0.1235), (3, 3), (True, True), ("x", "x")]
)
def test_floats_are_cut_to_four_digits(value: object, shown: object) -> None:
    """A figure shows no more digits than a measurement has; whole numbers and texts stay as they are."""
    assert figures.rounded(value) == shown


def test_figures_that_are_no_numbers_become_null() -> None:
    """A JSON line never holds NaN or infinity, which JSON does not know, at any depth."""
    line = figures.json_line({"a": float("inf"), "b": [{"c": float("nan")}]})
    assert json.loads(line) == {"a": None, "b": [{"c": None}]}


def test_a_json_line_holds_every_figure_on_one_line() -> None:
    """Nested figures stay nested, and nothing is left out."""
    line = figures.json_line(_LINE)
    assert "\n" not in line
    assert json.loads(line) == {
        **_LINE,
        "changes_per_s": 50123,
        "cpu_s_per_million": 31.23,
        "peak_rss_mib": 1401,
        "latency_ms": {"p50": 2510, "p99": 3302},
    }


def test_the_plain_table_is_aligned_and_shows_what_was_measured() -> None:
    """Columns that no line has are left out; a line that lacks another's figure shows a dash."""
    text = figures.plain_table([_LINE, {"table": "twelve", "changes_per_s": 7.0}])
    head, first, second = text.splitlines()
    assert head.split() == ["table", "changes/s", "CPU", "s/million", "peak", "RSS", "MiB", "p50", "ms", "p99", "ms",
                            "confidence", "ms"]  # fmt: skip
    assert first.split() == ["narrow", "50,123", "31.23", "1,401", "2,510", "3,302", "2,000"]
    assert second.split() == ["twelve", "7", "-", "-", "-", "-", "-"]
    assert first.index("50,123") + len("50,123") == second.index(" 7") + 2


def test_the_markdown_table_has_the_plain_tables_cells() -> None:
    """It can be pasted into the README: a head, a rule, a row for each table."""
    head, rule, row = figures.markdown_table([_LINE]).splitlines()
    assert head.startswith("| table | changes/s |")
    assert rule.count("---") == head.count("|") - 1
    assert row == "| narrow | 50,123 | 31.23 | 1,401 | 2,510 | 3,302 | 2,000 |"


def test_the_machine_line_names_cores_versions_and_every_load() -> None:
    """The figures name what they were measured with, and how busy the machine was before each table."""
    machine = {"cores": 2, "memory_gib": 24, "python": "3.11.7", "versions": {"pyspark": "4.3.0"}, "load_average": 0.5}
    line = figures.machine_line([machine, {**machine, "load_average": 2.25}])
    assert line == ("2 cores, 24 GiB; Python 3.11.7, pyspark 4.3.0; load average before each table's drain: 0.5, 2.25")


def test_memory_over_time_tells_growth_from_warming_up() -> None:
    """A role's weights add up; what counts as growth is the slope of the second half alone, for each million."""
    warming = [(float(at), {"jvm": 100.0 + 10 * min(at, 20), "workers": 50.0}) for at in range(-10, 40)]
    found = figures.memory_figures(warming, 0.0, 40.0, 2_000_000)
    assert found["peak_pss_mib_by_role"] == {"jvm": 300.0, "workers": 50.0}
    assert found["pss_mib_over_time"] == [165, 205, 245, 285, 325, 350, 350, 350, 350, 350]
    assert found["pss_mib_growth_per_million"] == pytest.approx(0)
    growing = [(float(at), {"workers": 50.0 + at}) for at in range(40)]
    assert figures.memory_figures(growing, 0.0, 40.0, 2_000_000)["pss_mib_growth_per_million"] == pytest.approx(20)
    assert set(figures.memory_figures(growing, 0.0, 3.0, 1_000)) == {"peak_pss_mib_by_role"}


def test_a_drain_is_compared_with_each_stage() -> None:
    """The slowest run is the one with the fewest changes a second, for any CPU time."""
    stages = {
        "read": {"per_s": 200.0, "cpu_s_per_million": 4.0},
        "encode": {"per_s": 100.0, "cpu_s_per_million": 16.0},
    }
    drained = {"changes_per_s": 80.0, "cpu_s_per_million": 12.0, "cpu_s_per_million_streaming": 6.0}
    assert figures.against_stages(drained, stages) == {
        "stages": stages,
        "slowest_stage": "encode",
        "ratio_to_slowest_stage": 0.8,
        "cpu_ratio_to_read": 3.0,
        "cpu_ratio_to_read_streaming": 1.5,
    }


@pytest.mark.parametrize("by", ["cpu_ratio_to_read_streaming", "cpu_s_per_million_streaming"])
def test_of_several_rounds_the_middle_one_counts(by: str) -> None:
    """The median is a whole run, not each figure separately; of an even number of runs, the dearer one."""
    rounds = [{by: cost, "changes_per_s": 10 * cost, "seconds": cost} for cost in (2.0, 9.0, 1.0)]
    kept = [{"changes_per_s": one["changes_per_s"], by: one[by]} for one in rounds]
    assert figures.of_rounds(rounds) == {by: 2.0, "changes_per_s": 20.0, "seconds": 2.0, "rounds": kept}
    assert figures.of_rounds(rounds[:2])[by] == 9.0
    assert figures.of_rounds(rounds[:1]) == rounds[0]
