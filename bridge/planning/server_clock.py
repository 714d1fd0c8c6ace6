"""What time it is for the servers, whose clocks write times come from, or are held against (spec section 5.5).

A reader whose clock is ahead reads windows that are still being written to, and never looks at them again. So windows
are planned by the earlier of its clock and the servers'. They are asked now and then; between two answers a clock that
only goes forward tells how much time has passed, so that steps of this machine's clock, either way, do no harm.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bridge.model.times import UnixMicros, iso_of_micros

_log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 10.0
_KEPT: Final = 8
"""Answers come from one node after the other; the earliest of these counts."""
_RESOLUTION_US: Final = 1_000
_DOUBT_S: Final = 0.25
"""How much later than its answer a node's clock is taken to be at most: it read it at some time of the request."""
_WORTH_SAYING_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Answer:
    """A node's clock when ours, the one that only goes forward, stood at 0: not before, and not after (in us)."""

    not_before_us: float
    not_after_us: float


class ServerClock:
    """The servers' time by their answers. Pure: readings of clocks are given, `clock_s` of one that only goes forward.

    Before the first answer nothing is known, and asking for a time is an error of the caller's.
    """

    def __init__(self) -> None:
        self._answers: deque[_Answer] = deque(maxlen=_KEPT)

    def heard(self, server_us: UnixMicros, asked_s: float, answered_s: float) -> None:
        """Note what a node's clock said (in whole ms) some time between two readings of ours."""
        doubt_us = min(answered_s - asked_s, _DOUBT_S) * 1e6
        at_answer_us = server_us - answered_s * 1e6
        self._answers.append(_Answer(at_answer_us, at_answer_us + doubt_us + _RESOLUTION_US))

    def now_us(self, clock_s: float) -> UnixMicros:
        """The earliest node's time; up to a quarter of a second too late, as its answer took."""
        return UnixMicros(int(clock_s * 1e6 + min(one.not_after_us for one in self._answers)))

    def ahead_us(self, own_us: UnixMicros, clock_s: float) -> int:
        """By how much this machine's clock is ahead of the earliest node's, behind it if negative; 0 if none can tell.

        Args:
            own_us: what it says.
            clock_s: the other clock's reading at the same time.
        """
        behind_us = int(clock_s * 1e6 + min(one.not_before_us for one in self._answers)) - own_us
        return max(0, own_us - self.now_us(clock_s)) or min(0, -behind_us)


class ServerTime:
    """Asks when it is time to, and says when the two clocks differ. For one thread.

    Args:
        ask: one node's clock; raises RetriableError or BridgeError.
        own_us: this machine's clock.
        clock_s: one that only goes forward, in s.
    """

    def __init__(
        self, ask: Callable[[], UnixMicros], own_us: Callable[[], UnixMicros], clock_s: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._own_us = own_us
        self._clock_s = clock_s
        self._servers = ServerClock()
        self._asked_s = float("-inf")
        self._differed = False

    def servers_us(self) -> UnixMicros:
        """The servers' time; raises what `ask` does."""
        self._ask_if_due()
        return self._servers.now_us(self._clock_s())

    def earlier_us(self) -> UnixMicros:
        """The servers' time, or this machine's if that is earlier: nothing is younger for either; raises likewise."""
        return UnixMicros(min(self.servers_us(), self._own_us()))

    def ahead_us(self) -> int:
        """See `ServerClock.ahead_us`; raises likewise."""
        self._ask_if_due()
        return self._servers.ahead_us(self._own_us(), self._clock_s())

    def _ask_if_due(self) -> None:
        asked_s = self._clock_s()
        if asked_s - self._asked_s < ASK_EVERY_S:
            return
        self._servers.heard(self._ask(), asked_s, self._clock_s())
        self._asked_s = asked_s
        self._say()

    def _say(self) -> None:
        own_us, clock_s = self._own_us(), self._clock_s()
        ahead_us = self._servers.ahead_us(own_us, clock_s)
        differs = abs(ahead_us) > _WORTH_SAYING_US
        if differs and not self._differed:
            way, then = (
                ("ahead of", "windows are planned by theirs")
                if ahead_us > 0
                else ("behind", "changes are published that much later")
            )
            _log.warning(
                "this machine's clock (%s) is %.1f s %s the ScyllaDB servers' (%s): %s; see that it is kept right",
                *(iso_of_micros(own_us), abs(ahead_us) / 1e6, way, iso_of_micros(self._servers.now_us(clock_s)), then),
            )
        elif self._differed and not differs:
            _log.info("this machine's clock agrees with the ScyllaDB servers' again")
        self._differed = differs
