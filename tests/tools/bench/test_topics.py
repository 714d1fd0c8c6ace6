"""What the benchmark does to Kafka's topics."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from bench.data import topics


def test_topics_that_are_not_deleted_in_time_fail_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those that are not there: what was measured before is printed all the same."""
    slow: Future[None] = Future()
    gone: Future[None] = Future()
    gone.set_exception(KeyError("no such topic"))
    asked: list[list[str]] = []

    class Admin:
        def __init__(self, _settings: object) -> None:
            pass

        def delete_topics(self, names: list[str]) -> dict[str, Future[None]]:
            asked.append(names)
            return {"slow": slow, "gone": gone}

    monkeypatch.setattr(topics, "AdminClient", Admin)
    monkeypatch.setattr(topics, "_DELETED_WITHIN_S", 0.01)
    topics.delete("nowhere:1", "slow", "gone")
    assert asked == [["slow", "gone"]]
