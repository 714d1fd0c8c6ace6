"""When a query counts as hung, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.engine.table.stall_watch import FIRST_PATIENCE_S, LEAST_PATIENCE_S, RESTART_AFTER, StallWatch

STALLED_AFTER_S = 60.0
PATIENCE_S = RESTART_AFTER * STALLED_AFTER_S
LOOK_S = 0.5


class Query:
    """A query that the test drives: Spark's reports and Kafka's answers are functions of the time in s."""

    def __init__(
        self,
        *,
        reports: Callable[[float], int] = lambda _s: 0,
        reach: Callable[[float], int | None] = lambda _s: 7,
        stalled_after_s: float = STALLED_AFTER_S,
        longest_pause_s: float = 0.0,
    ) -> None:
        self.now_s = 0.0
        self.asked: list[float] = []
        self._reports, self._reach = reports, reach
        self.watch = StallWatch(stalled_after_s, longest_pause_s=longest_pause_s, clock=lambda: self.now_s)
        self.begin()

    def begin(self) -> None:
        self.watch.begin(self._reports(self.now_s))

    def hangs_after_s(self, within_s: float) -> float | None:
        """How long from now until the watch wants a restart; None if it does not within so long."""
        began_s = self.now_s
        while self.now_s - began_s < within_s:
            self.now_s += LOOK_S
            advice = self.watch.look(self._reports(self.now_s))
            if advice == "restart":
                return self.now_s - began_s
            if advice == "ask":
                self.asked.append(self.now_s)
                self.watch.note_topics(self._reach(self.now_s))
        return None


def test_query_without_any_progress_hangs() -> None:
    """After three times the setting; Kafka is asked five times in that, and the watch says for how long it stood."""
    query = Query()
    found = query.hangs_after_s(1000)
    assert found is not None
    assert PATIENCE_S < found <= PATIENCE_S + 3 * LOOK_S
    assert query.asked == [60, 90, 120, 150, 180]
    assert query.watch.standing_s == pytest.approx(found)


def test_idle_query_never_hangs() -> None:
    """Spark reports every ten seconds that there is nothing to read, and Kafka need not even be asked."""
    query = Query(reports=lambda now_s: int(now_s // 10), reach=lambda _s: pytest.fail("asked"))
    assert query.hangs_after_s(5000) is None
    short = Query(reports=lambda now_s: int(now_s // 10), stalled_after_s=1)
    assert short.hangs_after_s(5000) is None


def test_long_micro_batch_that_publishes_does_not_hang() -> None:
    """A first micro-batch of hours, or a broker that takes one record a minute: the topics grow."""
    query = Query(reach=lambda now_s: int(now_s // 60))
    assert query.hangs_after_s(20_000) is None


def test_silent_kafka_is_waited_for() -> None:
    """A restart would not help. What hangs after Kafka has come back is found then."""
    query = Query(reach=lambda now_s: None if now_s < 3000 else 7)
    assert query.hangs_after_s(3000) is None
    assert query.hangs_after_s(1000) is not None


def test_query_that_stops_publishing_hangs() -> None:
    """The patience begins with the last record that Kafka has taken."""
    query = Query(reach=lambda now_s: min(int(now_s), 1000))
    found = query.hangs_after_s(5000)
    assert found is not None
    assert 1000 + PATIENCE_S / 2 < found < 1000 + 2 * PATIENCE_S


def test_patience_doubles_until_spark_reports() -> None:
    """A micro-batch that needs ten minutes without a record is interrupted twice, not for ever."""
    query = Query(reports=lambda now_s: int(now_s > 5000))
    for expected_s in (PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S):
        found = query.hangs_after_s(5000)
        assert found is not None
        assert expected_s < found <= expected_s + 3 * LOOK_S
        query.watch.note_restart()
        query.begin()
    query.now_s = 5000
    found = query.hangs_after_s(1000)
    assert found is not None
    assert found < 2 * PATIENCE_S
    for _ in range(2000):
        query.watch.note_restart()
    assert query.watch.patience_s == 32 * PATIENCE_S


def test_new_query_has_the_whole_patience() -> None:
    """What the former query stood is not counted against the next one."""
    query = Query()
    assert query.hangs_after_s(PATIENCE_S - 10) is None
    query.begin()
    assert query.hangs_after_s(PATIENCE_S - 10) is None


def test_suspended_job_blames_no_query() -> None:
    """A job that was stopped for an hour sees no sign of its queries in that time, of course."""
    query = Query()
    assert query.hangs_after_s(30) is None
    query.now_s += 3600
    assert query.hangs_after_s(PATIENCE_S - 40) is None
    assert query.watch.standing_s < PATIENCE_S


@pytest.mark.parametrize(
    ("stalled_after_s", "longest_pause_s", "expected_s"),
    [(1.0, 0.0, LEAST_PATIENCE_S), (60.0, 3600.0, 3780.0), (10.0, 0.2, 30.2)],
)
def test_patience_covers_what_is_normal(stalled_after_s: float, longest_pause_s: float, expected_s: float) -> None:
    """Spark's reports about an idle query, the pause between micro-batches, and the start of a query's processes."""
    watch = StallWatch(stalled_after_s, longest_pause_s=longest_pause_s)
    for reports in (1, 3):
        watch.begin(reports)
        assert watch.patience_s == pytest.approx(max(expected_s, FIRST_PATIENCE_S + longest_pause_s))
        watch.look(reports + 1)
        assert watch.patience_s == pytest.approx(expected_s)
