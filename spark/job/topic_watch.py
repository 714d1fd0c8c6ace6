"""Notices that a change topic was deleted and made anew: at each start of its table, and while the table runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.config.document import KafkaSettings
from bridge.errors import BridgeError
from bridge.model.times import UnixMicros
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic, KnownTopic
from bridge.runtime.background import run_in_background
from spark.job.checkpoint import Checkpoint

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 30.0
_AWAY_AFTER_LOOKS: Final = 2
_TOLD_WITHIN_S: Final = 5.0
"""A checkpoint that takes longer holds up no other table's look."""


class ChangeTopic:
    """One table's change topic, as far as it is known which one it is. The table's checkpoint keeps that.

    Nothing here fails the table: what can't be found out, or kept, is not known.
    """

    def __init__(self, words: ChangeTopicMessages, checkpoint: Checkpoint) -> None:
        """Look at nothing yet."""
        self.name = words.topic
        self._words = words
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._is_read = False
        self._before: KnownTopic | None = None
        self._kept: str | None = None
        self._seen: set[str] = set()
        self._looks_without = 0

    def begin(self, now: CurrentTopic | None, *, made: bool, carried: bool) -> None:
        """Look at it before the table's query starts.

        Args:
            now: as it is; None where that is not known.
            made: whether there was none, and the bridge has just made it.
            carried: whether the table was carried before.
        """
        with self._lock:
            if made:
                # By then what the checkpoint knows is told.
                self._is_read, self._before = True, None
                if carried:
                    _log.warning("%s", self._words.was_gone(now))
            self._compare(now, carried=carried)
            self._keep(anyhow=True)

    def look(self, now: CurrentTopic | None) -> None:
        """Look at it while the table runs; `now` as above."""
        with self._lock:
            self._compare(now, carried=True)
            self._miss(now)
            self._keep()

    def _compare(self, now: CurrentTopic | None, *, carried: bool) -> None:
        if not self._is_read:
            try:
                self._before = self._checkpoint.change_topic()
            except BridgeError as error:
                _log.debug("%s: which topic was there before is not known: %s", self.name, error)
                return
            self._is_read = True
        if now is None:
            return
        before = self._before
        # Of two brokers one may still describe the former topic.
        is_new = now.id not in self._seen
        if carried and is_new and before is not None and before.name == self.name and before.id != now.id:
            _log.warning("%s", self._words.is_another(before, now))
        self._seen.add(now.id)
        self._before = KnownTopic(self.name, now.id, UnixMicros(time.time_ns() // 1000))

    def _miss(self, now: CurrentTopic | None) -> None:
        # Of a table to which nothing is written no publisher notices. Who makes it anew leaves it away for a moment.
        self._looks_without = self._looks_without + 1 if now is None and self._seen else 0
        if self._looks_without == _AWAY_AFTER_LOOKS:
            _log.warning("%s", self._words.is_away())

    def _keep(self, *, anyhow: bool = False) -> None:
        before = self._before
        if before is None or (before.id == self._kept and not anyhow):
            return
        try:
            self._checkpoint.keep_change_topic(before)
        except BridgeError as error:
            _log.debug("%s: the next job will not know which topic this is: %s", self.name, error)
        else:
            self._kept = before.id


class TopicWatch:
    """Looks at the change topics of tables that run, in the background, with one request for all of them."""

    def __init__(self, settings: KafkaSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet.

        Args:
            settings: how to reach Kafka.
            clock: monotonic seconds.
        """
        self._settings = settings
        self._clock = clock
        self._again_at_s = clock() + LOOK_EVERY_S
        self._looking: Future[None] | None = None
        self._told: dict[ChangeTopic, Future[None]] = {}

    def look(self, topics: Callable[[], Sequence[ChangeTopic]]) -> None:
        """Look when it is time, and never wait; call often."""
        if self._looking is not None:
            if not self._looking.done():
                return
            if (error := self._looking.exception()) is not None:
                _log.debug("the change topics were not looked at: %r", error)
            self._looking, self._again_at_s = None, self._clock() + LOOK_EVERY_S
        if self._clock() >= self._again_at_s:
            self._looking = run_in_background(partial(self._look, topics()), "look at the change topics")

    def _look(self, topics: Sequence[ChangeTopic]) -> None:
        if not topics:
            return
        # A client for the moment: one that is kept would log in with the password and the token of back then.
        found = KafkaAdmin(self._settings, quiet=True).topics_now([topic.name for topic in topics])
        # One at a time each: a checkpoint may hang, and what goes wrong with one table is no matter of the others.
        busy = {topic: told for topic, told in self._told.items() if not told.done()}
        told = {
            topic: run_in_background(partial(topic.look, found.get(topic.name)), f"look at {topic.name}")
            for topic in topics
            if topic not in busy
        }
        self._told = busy | told
        wait(told.values(), _TOLD_WITHIN_S)
        for topic, telling in told.items():
            if telling.done() and (error := telling.exception()) is not None:
                _log.debug("%s: the change topic was not looked at: %r", topic.name, error)
