"""Retries, with a clock that only the test moves."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from bridge.errors import RetriableError, StartupError
from bridge.runtime.retry import retry_until_reachable


class _Clock:
    """Time that passes only during a pause, or while an attempt runs."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class _Server:
    """A server that answers after some failures; each try takes some time."""

    def __init__(self, clock: _Clock, *, failures: int, takes_s: float = 0.0) -> None:
        self.tries = 0
        self._clock, self._failures, self._takes_s = clock, failures, takes_s

    def __call__(self) -> str:
        self.tries += 1
        self._clock.now_s += self._takes_s
        if self.tries <= self._failures:
            raise RetriableError(f"Kafka at a:1: refused, {self.tries}")
        return "here"


def _wait(clock: _Clock, attempt: Callable[[], str], patience_s: float, chance: float = 0.0) -> tuple[str, list[str]]:
    lines: list[str] = []
    found = retry_until_reachable(
        "Kafka",
        "a:1",
        attempt,
        patience_s=patience_s,
        report=lines.append,
        clock=clock,
        sleep=clock.sleep,
        chance=lambda: chance,
    )
    return found, lines


def test_server_that_answers_is_not_waited_for() -> None:
    """Nothing is reported."""
    clock = _Clock()
    assert _wait(clock, _Server(clock, failures=0), 60) == ("here", [])
    assert clock.slept == []


def test_pauses_double() -> None:
    """From 0.2 s up to 5 s; each failed try is reported in one line with the address."""
    clock = _Clock()
    found, lines = _wait(clock, _Server(clock, failures=7), 60)
    assert found == "here"
    assert clock.slept == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert lines[2] == "Kafka at a:1 is not reachable (try 3, next in 0.8 s): refused, 3"
    assert len(lines) == 7


def test_pauses_are_shortened_at_random() -> None:
    """By up to one half."""
    clock = _Clock()
    _wait(clock, _Server(clock, failures=3), 60, chance=0.5)
    assert clock.slept == pytest.approx([0.15, 0.3, 0.6])


def test_time_is_up() -> None:
    """The error names the address and the time spent; the last try is made when the time is up."""
    clock = _Clock()
    server = _Server(clock, failures=100)
    with pytest.raises(StartupError, match=r"^Kafka at a:1 is not reachable \(tried 5 times in 2.0 s\): refused, 5$"):
        _wait(clock, server, 2)
    assert sum(clock.slept) == pytest.approx(2)


def test_duration_of_the_tries_counts() -> None:
    """The time that the tries take is part of the patience."""
    clock = _Clock()
    server = _Server(clock, failures=100, takes_s=5)
    with pytest.raises(StartupError, match=r"tried 2 times in 10\.2 s"):
        _wait(clock, server, 8)


def test_zero_patience_means_one_try() -> None:
    """There is no pause."""
    clock = _Clock()
    with pytest.raises(StartupError, match="tried once"):
        _wait(clock, _Server(clock, failures=1), 0)
    assert clock.slept == []


def test_other_errors_are_not_retried() -> None:
    """Wrong credentials stay wrong."""
    tries = []

    def refuse() -> str:
        tries.append(1)
        raise StartupError("wrong password")

    with pytest.raises(StartupError, match="wrong password"):
        _wait(_Clock(), refuse, 60)
    assert len(tries) == 1


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_interruption_ends_the_retries(ending: type[BaseException]) -> None:
    """Ctrl-C, or the exception of a signal handler, ends a try or a pause at once."""

    def interrupted(*_: object) -> str:
        raise ending

    with pytest.raises(ending):
        _wait(_Clock(), interrupted, 60)
    clock = _Clock()
    with pytest.raises(ending):
        retry_until_reachable(
            "Kafka", "a:1", _Server(clock, failures=1), patience_s=60, report=lambda _: None, clock=clock,
            sleep=interrupted,
        )  # fmt: skip


def test_reason_without_address_is_kept_whole() -> None:
    """A reason that does not begin with the server's name is not shortened."""

    def fail() -> str:
        raise RetriableError("something about a:1 that is longer than a name")

    with pytest.raises(StartupError, match=r"\(tried once\): something about"):
        retry_until_reachable("Kafka", "b:2", fail, patience_s=0, report=lambda _: None)


@pytest.mark.parametrize(
    ("reason", "told"), [("refused", "refused; see a.b"), ("is it another's (a.b)?", "is it another's (a.b)?")]
)
def test_setting_is_named_once(reason: str, told: str) -> None:
    """The error names the setting of the address, unless the reason names it already."""

    def fail() -> None:
        raise RetriableError(reason)

    with pytest.raises(StartupError, match=rf"\(tried once\): {re.escape(told)}$"):
        retry_until_reachable("Kafka", "b:2", fail, patience_s=0, report=lambda _: None, setting="a.b")
