"""What a Python process keeps between tasks."""

from __future__ import annotations

import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark import TaskContext

from bridge.config.document import ScyllaSettings, validate
from bridge.engine import process_cache
from bridge.model.times import UnixMicros
from bridge.publishing.lane_publisher import LanePublisher

CONFIG = validate(
    {
        "name": "job",
        "scylla": {"contact_points": "scylla:9042"},
        "kafka": {"bootstrap_servers": "kafka:9092"},
        "registry": {"url": "http://registry"},
        "tables": ["ks.t"],
        "spark": {"checkpoint": "/checkpoint"},
    }
)


def test_lanes_that_were_worked_longest_ago_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would add up otherwise, as lanes come by; the driver's are dropped by whoever has opened them."""
    closed: list[LanePublisher] = []
    monkeypatch.setattr(LanePublisher, "close", lambda self: closed.append(self))
    monkeypatch.setattr(process_cache, "_publishers", {})
    most = process_cache.MOST_PUBLISHERS
    made = [process_cache.publisher(CONFIG, "ks", "t", lane, "owner") for lane in range(most + 1)]
    assert closed == []
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    assert process_cache.publisher(CONFIG, "ks", "t", 0, "owner") is made[0]
    process_cache.publisher(CONFIG, "ks", "t", most + 1, "owner")
    assert closed == made[1:3]
    assert process_cache.publisher(CONFIG, "ks", "t", 0, "owner") is made[0]
    assert process_cache.publisher(CONFIG, "ks", "t", 1, "owner") is not made[1]


def test_freed_pieces_are_not_kept_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library is told so; one that knows no such option is left alone."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(process_cache, "gc", Mock())
    for library in (SimpleNamespace(mallopt=lambda *option: told.append(option)), SimpleNamespace()):
        monkeypatch.setattr(process_cache, "ctypes", SimpleNamespace(CDLL=lambda _name, library=library: library))
        process_cache.settle_memory.__wrapped__()
    assert told == [(1, 0)]


def test_servers_are_asked_for_their_time_over_the_planners_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all that wants to know within some seconds; over the session that there is by then."""
    asked = []

    def change_log(settings: ScyllaSettings) -> SimpleNamespace:
        asked.append(settings)
        return SimpleNamespace(node_time_us=lambda: UnixMicros(time.time_ns() // 1000 - 3600 * 10**6))

    monkeypatch.setattr(process_cache, "change_log", change_log)
    monkeypatch.setattr(process_cache, "_times", {})
    settings = ScyllaSettings(contact_points=("a:1",))
    for _ in range(3):
        assert process_cache.server_time(settings).ahead_us() == pytest.approx(3600 * 10**6, abs=2 * 10**6)
    assert asked == [settings]
