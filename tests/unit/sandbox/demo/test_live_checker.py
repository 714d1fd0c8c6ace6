from __future__ import annotations

import io
import json
from pathlib import Path
from typing import cast

import pytest

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.demo.console import ProgressConsole
from sandbox.demo.live_checker import LiveChecker
from sandbox.demo.scenario import Scenario
from sandbox.demo.topic_readers import ReceivedRecords, TopicReaders
from sandbox.demo.writer import written_file
from sandbox.scylla.oracle import ExpectedChange
from tests.unit.schemas.example_tables import table

RECORDED = table({"pk": "int"}, keyspace="old", name="recorded")
LIVE = table({"pk": "int"}, keyspace="new", name="live")
BEGIN_US = UnixMicros(1_700_000_000_000_000)


class ScriptedReaders:
    """Gives what it was told to, a portion at a time."""

    def __init__(self) -> None:
        self.portions: list[list[ReceivedRecords]] = []

    def take(self, _timeout_s: float) -> list[ReceivedRecords]:
        return self.portions.pop(0) if self.portions else []


def change(at_us: int, *, name: str = "live") -> ExpectedChange:
    keyspace = "new" if name == "live" else "old"
    time = timeuuid_of(UnixMicros(at_us), b"\x80" * 8)
    generation_ms = UnixMillis(BEGIN_US // 1000)
    return ExpectedChange(
        keyspace, name, (bytes(4),), (), 2, {}, None, bytes(16), time, UnixMicros(at_us), 0, True, generation_ms
    )


def record(of: ExpectedChange) -> Record:
    """Return a record without content: the checker counts it as wrong and as arrived."""
    position = of.stream_id + of.time + bytes(4)
    return Record(f"{of.keyspace}.{of.table}", 0, 0, None, None, {POSITION_HEADER: position}, 0)


@pytest.fixture
def arrivals() -> ScriptedReaders:
    return ScriptedReaders()


@pytest.fixture
def watch(tmp_path: Path, arrivals: ScriptedReaders) -> LiveChecker:
    stage = Scenario(
        simulated=(LIVE,),
        recorded=(RECORDED,),
        recorded_changes=(change(BEGIN_US - 9_000_000, name="recorded"),),
        backlog=(change(BEGIN_US - 1_000_000),),
        first_generation_ms=UnixMillis(BEGIN_US // 1000),
    )
    return LiveChecker(
        stage,
        Registry("mock://watch"),
        cast("TopicReaders", arrivals),
        live_topics=["new.live"],
        folder=tmp_path,
        events=tmp_path / "events.jsonl",
    )


def test_only_what_was_written_meanwhile_is_measured(
    watch: LiveChecker, arrivals: ScriptedReaders, tmp_path: Path
) -> None:
    """The recorded log and the backlog are checked, and left out of rates and latencies."""
    watch.step()
    assert watch.checker.verdict.written == 2
    live = change(BEGIN_US + 500_000)
    with (tmp_path / "events.jsonl").open("w", encoding="utf-8") as events:
        for event in (
            {"event": "begin", "at_us": BEGIN_US},
            {"event": "generation", "start_ms": 5, "publish_us": 6},
            {"event": "published", "start_ms": 5, "at_us": 7000},
            {"event": "end", "at_us": BEGIN_US + 1_000_000},
        ):
            events.write(json.dumps(event) + "\n")
    written_file(tmp_path, LIVE).write_text(live.to_json() + "\n", encoding="utf-8")
    backlog = [record(change(BEGIN_US - 9_000_000, name="recorded")), record(change(BEGIN_US - 1_000_000))]
    arrivals.portions = [[ReceivedRecords(UnixMicros(BEGIN_US + 3_000_000), [*backlog, record(live)])]]
    watch.step()
    seen = watch.observations
    assert (watch.checker.verdict.written, watch.checker.verdict.arrived) == (3, 3)
    assert seen.latencies_ms == [2500.0]
    assert list(seen.written_us) == [BEGIN_US + 500_000]
    assert (seen.begin_us, seen.end_us) == (BEGIN_US, BEGIN_US + 1_000_000)
    assert seen.generations[UnixMillis(5)].late_s == pytest.approx(0.002)


def test_silence_ends_with_any_news(watch: LiveChecker, arrivals: ScriptedReaders) -> None:
    """A record that comes, known or not, is news."""
    watch.step()
    before_s = watch.silent_s
    assert watch.silent_s >= before_s
    arrivals.portions = [[ReceivedRecords(BEGIN_US, [record(change(BEGIN_US + 77))])]]
    watch.step()
    assert watch.silent_s < 1.0
    assert watch.checker.close().unexpected == 1


def test_plain_lines_where_there_is_no_terminal() -> None:
    """No control characters, no markup, and a long line stays one."""
    out = io.StringIO()
    screen = ProgressConsole(out)
    screen.say("a [bold]line[/bold] of " + "words " * 100)
    with screen.step("Something long") as step:
        step.update("half", 0.5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a [bold]line[/bold]")
    assert lines[1] == "Something long"
    assert "\x1b" not in out.getvalue()
