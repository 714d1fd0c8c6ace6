"""The status page, without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.page import charts, document
from bridge.monitoring.page.humanize import duration, number, size
from bridge.monitoring.snapshot import JobSnapshot, LaneSnapshot, TableStreams, Topology
from tests.unit.bridge.monitoring import jobs

_VOID = {"meta", "path", "rect"}


class Reader(HTMLParser):
    """Collects the text, and checks that elements are closed in the right order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in _VOID or (tag in ("path", "rect") and not self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID and (not self.open or self.open[-1] != tag):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def read(job: JobSnapshot) -> str:
    """Return the page's text on one line."""
    reader = Reader()
    reader.feed(document.render(job))
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    return " ".join(" ".join(reader.texts).split())


def test_running() -> None:
    """The page shows that all tables keep up, their lag, and how much they publish."""
    text = read(jobs.running())
    assert text.startswith("ok: orders-bridge orders-bridge scylla-cdc-bridge 0.1.0, up 1 h 23 min")
    assert "All 3 tables keep up" in text
    assert "3 of 3 tables ready" in text
    assert "23 h 59 min until the log's TTL" in text
    assert "96 stream groups" in text
    assert "None since the start." in text


def test_stalled() -> None:
    """A table that does not advance is called stalled although its query runs."""
    text = read(jobs.stalled())
    assert "1 of 1 table in trouble shop.orders is stalled: its cursors have not advanced for 300 s" in text
    assert "The cluster's generations can't be read: ScyllaDB at 10.0.0.7:9042 did not answer in time" in text
    assert "(9 times)" in text


@pytest.mark.parametrize(("ahead_s", "words"), [(900.0, "15 min ahead of"), (-2.5, "2.5 s behind"), (0.9, None)])
def test_clocks_that_differ(ahead_s: float, words: str | None) -> None:
    """A difference of clocks is shown at the top, even if the tables keep up."""
    job = jobs.running()
    text = read(replace(job, topology=replace(job.topology, clock_ahead_s=ahead_s)))
    assert (f"This machine's clock is {words} the ScyllaDB servers'" in text) == (words is not None)
    assert ("This machine's clock" in text) == (words is not None)


def test_failing() -> None:
    """The top shows each failing table with its reason and what happens next."""
    text = read(jobs.failing())
    assert "2 of 3 tables in trouble shop.orders stopped 1 h 23 min ago and does not start again by itself: the" in text
    assert "shop.line_items failed (4 times), starts again in 8.0 s: Kafka at k1:9092" in text
    assert "<unread>" in text
    assert "<unread>" not in document.render(jobs.failing())


def test_hanging_and_fresh() -> None:
    """A hanging supervisor is shown first; a job without any data yet has a page too."""
    assert "The job hangs: the supervisor" in read(replace(jobs.running(), tick_s=jobs.NOW_S - 1000))
    fresh = jobs.table("ks.t", "starting", layout=None, lanes=(), advanced_s=None)
    text = read(replace(jobs.running(), tables=(fresh,), topology=Topology(), samples=()))
    assert "1 of 1 table starting or retrying ks.t has been starting" in text
    assert "generations have not been read yet" in text


def test_tables_with_streams_of_their_own() -> None:
    """Each table has its ring and its generations; streams that catch up determine its lag."""
    now_us = int(jobs.NOW_S * 1e6)
    catch_up = CatchUp(jobs.GENERATIONS[2], UnixMicros(now_us - 40_000_000))
    cursor = Cursor(jobs.GENERATIONS[3], UnixMicros(now_us - 11_000_000), catch_up)
    behind = jobs.table("ks.a", count=1, lanes=(LaneSnapshot(0, cursor, jobs.counters(7)),))
    tables = (behind, jobs.table("ks.b"))
    topology = Topology({table.name: TableStreams(jobs.GENERATIONS, jobs.ring(8)) for table in tables})
    text = read(replace(jobs.running(), tables=tables, topology=topology))
    assert text.count("Token ring with 8 stream groups") == text.count("Generations") == 2
    assert "Newly opened streams are catching up: ks.a." in text
    assert "40 s worst lag" in text


@pytest.mark.parametrize("job", [jobs.running(), jobs.stalled(), jobs.failing()])
def test_page_needs_nothing_from_outside(job: JobSnapshot) -> None:
    """The page loads nothing, has a light and a dark form, and reloads itself even without a script."""
    html = document.render(job)
    assert re.findall(r"(?:src|href|action)\s*=|url\(|@import|https?://", html) == []
    assert "prefers-color-scheme: dark" in html
    assert '<noscript><meta http-equiv="refresh"' in html
    used, known = set(re.findall(r"var\((--\w+)\)", html)), set(re.findall(r"(--[\w-]+):", html))
    assert used <= known


def test_names_are_escaped() -> None:
    """A quoted CQL name may hold any character."""
    name = 'ks.<b>"x"</b>'
    topology = Topology({name: TableStreams(jobs.GENERATIONS, jobs.ring())})
    html = document.render(replace(jobs.running(), tables=(jobs.table(name),), topology=topology))
    assert "<b>&quot;" not in html
    assert "ks.&lt;b&gt;&quot;x&quot;&lt;/b&gt;" in html


def test_every_stream_group_is_coloured_by_the_lane_that_reads_it() -> None:
    """The ring shows the lanes' token ranges, including the last token."""
    assert charts.groups_by_lane(jobs.ring(96), 4) == [(24, 192)] * 4
    assert sum(groups for groups, _ in charts.groups_by_lane(jobs.ring(101), 7)) == 101
    assert charts.ring(jobs.ring(5_000), 3).count("<title>stream group") <= 720


def test_reader_of_a_generation_that_is_not_shown() -> None:
    """A table in an earlier generation is shown at the left edge, marked as earlier."""
    svg = charts.timeline(jobs.GENERATIONS, [("ks.t", UnixMillis(5), 1.0)], jobs.NOW_S)
    assert "earlier: ks.t" in svg


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.42, "0.4 s"),
        (9.99, "10 s"),
        (75, "75 s"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (187_300, "2 d 4 h"),
        (-3600, "-1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """A duration has at most two units."""
    assert duration(seconds) == text


def test_numbers() -> None:
    """Numbers and sizes are rounded to a few characters."""
    assert [number(value) for value in (0, 0.44, 7, 950.4, 12_345, 4_100_000, 2e9)] == [
        "0", "0.4", "7", "950", "12.3k", "4.1M", "2G",
    ]  # fmt: skip
    assert [size(value) for value in (512, 1536, 3 << 20, 5 << 40)] == ["512 B", "1.5 KiB", "3.0 MiB", "5.0 TiB"]
