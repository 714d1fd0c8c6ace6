"""The time on the servers' clocks, which write timestamps come from or are compared with. Pure.

A reader whose clock is ahead would read windows that are still being written to, and never read them again. So windows
are planned by the earlier of this machine's clock and the servers' clocks. A node is asked every 10 s, each in its
turn, and the last answer of each node counts. Between two answers a monotonic clock measures the time that has passed,
so steps of this machine's clock do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.model.times import UnixMicros, iso_of_micros

_log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 10.0
_KEPT_S: Final = 3600.0
"""How long a node's answer counts without another one: longer than a turn of all nodes of a large cluster."""
_ANSWER_RESOLUTION_US: Final = 1_000
_MOST_UNCERTAINTY_S: Final = 0.25
"""The most of a request's duration that is added to the answer: the node read its clock some time during it."""
_TOLERATED_US: Final = 1_000_000


class NodeTime(NamedTuple):
    """A node's answer.

    Attributes:
        node: its address.
        time_us: the time on its clock in us, in whole ms.
        nodes: the addresses of all nodes that may answer.
    """

    node: str
    time_us: UnixMicros
    nodes: Set[str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """Bounds of a node's time (us) at the moment when our monotonic clock read 0; and when it answered."""

    not_before_us: float
    not_after_us: float
    answered_s: float


class ServerTimeEstimate:
    """The servers' time, estimated from their answers. `clock_s` is always a reading of one monotonic clock, in s.

    There is no estimate before the first answer; callers must not ask for one.
    """

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}

    def add_answer(self, found: NodeTime, asked_s: float, answered_s: float) -> None:
        """Record a node's time, which it read between `asked_s` and `answered_s`; drop those of nodes that are gone."""
        uncertainty_us = min(answered_s - asked_s, _MOST_UNCERTAINTY_S) * 1e6
        at_answer_us = found.time_us - answered_s * 1e6
        not_after_us = at_answer_us + uncertainty_us + _ANSWER_RESOLUTION_US
        self._answers = {
            node: one
            for node, one in self._answers.items()
            if node in found.nodes and answered_s - one.answered_s < _KEPT_S
        }
        self._answers[found.node] = _Answer(at_answer_us, not_after_us, answered_s)

    def now_us(self, clock_s: float) -> UnixMicros:
        """Return the earliest node's time in us; at most 0.25 s late, depending on how long its answer took."""
        return UnixMicros(int(clock_s * 1e6 + min(one.not_after_us for one in self._answers.values())))

    def ahead_us(self, own_us: UnixMicros, clock_s: float) -> int:
        """Return by how much this machine's clock is ahead of the earliest node's, in us; negative if it is behind.

        The result is 0 if the difference is within the uncertainty.

        Args:
            own_us: the time on this machine's clock in us.
            clock_s: the monotonic clock's reading at the same moment.
        """
        behind_us = int(clock_s * 1e6 + min(one.not_before_us for one in self._answers.values())) - own_us
        return max(0, own_us - self.now_us(clock_s)) or min(0, -behind_us)


class ServerTime:
    """The servers' time. Asks a node when an answer is due, and logs when the clocks differ. Not thread-safe."""

    def __init__(
        self, ask: Callable[[], NodeTime], own_us: Callable[[], UnixMicros], clock_s: Callable[[], float]
    ) -> None:
        """Create the clock.

        Args:
            ask: returns one node's time, of each node in turn; raises RetriableError or BridgeError.
            own_us: returns the time on this machine's clock in us.
            clock_s: returns the reading of a monotonic clock in s.
        """
        self._ask = ask
        self._own_us = own_us
        self._clock_s = clock_s
        self._servers = ServerTimeEstimate()
        self._asked_s = float("-inf")
        self._differed = False

    def servers_us(self) -> UnixMicros:
        """Return the servers' time in us.

        Raises:
            RetriableError: the node does not answer.
            BridgeError: the node rejects the request.
        """
        self._ask_if_due()
        return self._servers.now_us(self._clock_s())

    def earlier_us(self) -> UnixMicros:
        """Return the earlier of the servers' time and this machine's, in us.

        Raises:
            RetriableError: the node does not answer.
            BridgeError: the node rejects the request.
        """
        return UnixMicros(min(self.servers_us(), self._own_us()))

    def ahead_us(self) -> int:
        """Return by how much this machine's clock is ahead of the earliest node's, in us; negative if it is behind.

        Raises:
            RetriableError: the node does not answer.
            BridgeError: the node rejects the request.
        """
        self._ask_if_due()
        return self._servers.ahead_us(self._own_us(), self._clock_s())

    def _ask_if_due(self) -> None:
        asked_s = self._clock_s()
        if asked_s - self._asked_s < ASK_EVERY_S:
            return
        self._servers.add_answer(self._ask(), asked_s, self._clock_s())
        self._asked_s = asked_s
        self._log_difference()

    def _log_difference(self) -> None:
        own_us, clock_s = self._own_us(), self._clock_s()
        ahead_us = self._servers.ahead_us(own_us, clock_s)
        differs = abs(ahead_us) > _TOLERATED_US
        if differs and not self._differed:
            way, then = (
                ("ahead of", "windows are planned by the servers' clocks")
                if ahead_us > 0
                else ("behind", "changes are published that much later")
            )
            _log.warning(
                "this machine's clock (%s) is %.1f s %s the ScyllaDB servers' (%s): %s; check its time synchronization",
                *(iso_of_micros(own_us), abs(ahead_us) / 1e6, way, iso_of_micros(self._servers.now_us(clock_s)), then),
            )
        elif self._differed and not differs:
            _log.info("this machine's clock agrees with the ScyllaDB servers' again")
        self._differed = differs
