from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from bridge.model.times import UnixMicros, UnixMillis
from sandbox.demo.plan import tables
from sandbox.demo.report.observations import GenerationMark, Observations
from sandbox.demo.report.summary import Run, faults, generations_crossed, summarize, summary_lines
from sandbox.verify.checker import Verdict

BEGIN_US = 1_700_000_000_000_000
STARTS = [UnixMillis(BEGIN_US // 1000 + at_s * 1000) for at_s in (-10, 2, 4)]
NARROW, WIDE = (one.table.table_schema for one in tables())


def report(summary: dict[str, Any], seen: Observations) -> str:
    """Matplotlib is imported when a test asks: else every worker would import it."""
    from sandbox.demo.report.page import report as made

    return made(summary, seen)


def observations() -> Observations:
    seen = Observations(begin_us=UnixMicros(BEGIN_US), end_us=UnixMicros(BEGIN_US + 6_000_000))
    seen.generations = {
        STARTS[1]: GenerationMark(STARTS[1], UnixMicros(BEGIN_US)),
        STARTS[2]: GenerationMark(STARTS[2], UnixMicros(BEGIN_US + 5_000_000)),
    }
    for number in range(600):
        written_us = UnixMicros(BEGIN_US + number * 10_000)
        seen.written_us.append(written_us)
        seen.arrive(UnixMicros(written_us + 2_500_000), written_us)
    return seen


def summary(verdict: Verdict | None = None, **arrived: dict[UnixMillis, int]) -> dict[str, Any]:
    run = Run(
        seed=1,
        confidence_ms=2000,
        leeway_ms=5000,
        cores=2,
        bridge_cpu_s=12.34,
        bridge_peak_memory_bytes=1 << 30,
        recorded_changes=100,
        backlog_changes=150,
        backlog_s=9.87,
        versions={"pyspark": "4.3.0 <b>"},
        started="2026-01-01 10:00:00 UTC",
    )
    everywhere = dict.fromkeys(STARTS, 100)
    by_table = {NARROW: arrived.get("narrow", everywhere), WIDE: arrived.get("wide", everywhere)}
    return summarize(verdict or Verdict(700, 700), observations(), by_table, (NARROW, WIDE), run)


def test_the_summary_has_what_it_must() -> None:
    """The keys that others rely on, as plain JSON."""
    found = json.loads(json.dumps(summary()))
    assert found["written"] == found["arrived"] == 700
    assert [found[name] for name in ("missing", "doubled", "out_of_order")] == [0, 0, 0]
    assert found["generations_crossed"] == 2
    assert found["changes_per_s"] == pytest.approx(600 / 5.99, abs=0.1)
    assert found["latency_ms"] == {"p50": 2500.0, "p90": 2500.0, "p95": 2500.0, "p99": 2500.0, "max": 2500.0}
    assert faults(found) == []


@pytest.mark.parametrize("name", ["doubled", "out_of_order", "wrong", "unexpected"])
def test_every_count_is_a_fault(name: str) -> None:
    """A single wrong change fails the demo, and the summary names it."""
    verdict = Verdict(700, 700)
    setattr(verdict, name, 1)
    assert faults(summary(verdict)) == [f"1 changes {name.replace('_', ' ')}"]


def test_what_is_missing_is_a_fault() -> None:
    """So is a change that did not come, and a run in which nothing was written."""
    assert faults(summary(Verdict(700, 698))) == ["2 changes missing"]
    assert "nothing was written" in faults(summary(Verdict()))


def test_every_table_must_cross_the_generations() -> None:
    """The table that crossed the fewest counts, and it must be two."""
    found = summary(wide={STARTS[0]: 5, STARTS[1]: 0, STARTS[2]: 1})
    assert found["generations_crossed"] == 1
    assert faults(found) == ["changes arrived across 1 generation changes only, not 2"]
    assert generations_crossed({}) == 0


def test_the_lines_for_people() -> None:
    """They name the counts, the rate, the latency and what it consists of."""
    text = "\n".join(summary_lines(summary()))
    for words in (
        "700 written",
        "0 doubled",
        "2 generation changes",
        "p99 2500 ms",
        "2000 ms of it are the confidence",
    ):
        assert words in text


class Page(HTMLParser):
    """What a page consists of, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data"}]


@cache
def good_report() -> str:
    return report(summary(), observations())


def test_the_report_needs_nothing_but_itself() -> None:
    """Three plots, no script, and no reference that leaves the page."""
    text = good_report()
    page = Page(text)
    assert page.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(reference.startswith("#") for reference in page.loads)
    assert "@import" not in text
    assert not re.search(r"url\((?!['\"]?#)", text)
    ids = re.findall(r'\sid="([^"]+)"', text)
    plots = [element.count("generation 3") for element in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert plots == [2, 2, 2] or all(plots)
    assert ids


def test_the_report_takes_the_colours_of_the_page() -> None:
    """No stand-in colour is left over, and every variable is there for a light and for a dark page."""
    text = good_report()
    assert not re.search(r"#(0\d)\1{2}\b", text)
    used = set(re.findall(r"var\(--([a-z-]+)\)", text))
    for scheme in re.findall(r":root \{(.*?)\}", text, re.DOTALL):
        assert used <= set(re.findall(r"--([a-z-]+):", scheme))


def test_the_report_names_faults_and_escapes_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of a failed run begins with the failure; text from outside can't become markup."""
    monkeypatch.setattr("sandbox.demo.report.page.plot", lambda *_, **__: "")  # slow, and seen above
    verdict = Verdict(700, 699, examples=["missing: a<b>"])
    text = report(summary(verdict), observations())
    assert "1 changes missing" in text
    assert "missing: a&lt;b&gt;" in text
    assert "4.3.0 &lt;b&gt;" in text
    assert "exactly once" not in text


def test_a_report_of_nothing() -> None:
    """A run in which nothing arrived still gives a page."""
    assert report(summary(Verdict()) | {"latency_ms": dict.fromkeys(("p50", "p99"))}, Observations()).count("<svg") == 3
