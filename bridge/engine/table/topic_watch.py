"""Notices that a change topic was deleted and created again: at each start of its table, and while the table runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from bridge.engine.ports import wall_clock_us
from bridge.model.table_facts import KnownTopic
from bridge.model.times import UnixMicros
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic
from bridge.runtime.background import run_in_background

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 30.0
_MISSING_AFTER_LOOKS: Final = 2


class ChangeTopic:
    """What is known about the identity of one table's change topic. Thread-safe.

    Nothing here fails the table: where Kafka does not describe the topic, its identity stays unknown.

    Attributes:
        name: of the topic.
    """

    def __init__(
        self,
        messages: ChangeTopicMessages,
        *,
        hand_over: Callable[[KnownTopic], None] = lambda _topic: None,
        clock: Callable[[], UnixMicros] = wall_clock_us,
    ) -> None:
        """Prepare; this asks Kafka nothing.

        Args:
            messages: the warnings about the topic.
            hand_over: receives the topic at each start, and whenever another one has replaced it.
            clock: this machine's time of day.
        """
        self.name = messages.topic
        self._messages = messages
        self._hand_over = hand_over
        self._clock = clock
        self._lock = threading.Lock()
        self._has_begun = False
        self._known: KnownTopic | None = None
        self._seen: set[str] = set()
        self._looks_without = 0

    def begin(
        self, now: CurrentTopic | None, before: KnownTopic | None, *, created: bool, published: bool
    ) -> KnownTopic | None:
        """Compare the topic with the one of earlier runs, before the table's query starts.

        Args:
            now: the topic as Kafka describes it; None when Kafka does not.
            before: the topic that the table's progress names; None when it names none.
            created: whether the topic was missing, and the bridge has just created it.
            published: whether the table was published before.

        Returns:
            The topic that the table's progress is to name.
        """
        with self._lock:
            if not self._has_begun:
                self._has_begun, self._known = True, before
            if created:
                self._known = None
                if published:
                    _log.warning("%s", self._messages.recreated_by_bridge(now))
            self._compare(now, published=published)
            if self._known is not None:
                self._hand_over(self._known)
            return self._known

    def look(self, now: CurrentTopic | None) -> None:
        """Compare the topic while the table runs; `now` is None when Kafka does not describe it."""
        with self._lock:
            before = self._known
            self._compare(now, published=True)
            self._note_missing(now)
            if self._known is not None and (before is None or before.id != self._known.id):
                self._hand_over(self._known)

    def _compare(self, now: CurrentTopic | None, *, published: bool) -> None:
        if now is None:
            return
        before = self._known
        # While a topic is created again, one broker may still describe the former one.
        is_new = now.id not in self._seen
        if published and is_new and before is not None and before.name == self.name and before.id != now.id:
            _log.warning("%s", self._messages.replaced(before, now))
        self._seen.add(now.id)
        self._known = KnownTopic(self.name, now.id, self._clock())

    def _note_missing(self, now: CurrentTopic | None) -> None:
        # A table without changes does not fail when its topic is missing. One look without the topic is no evidence:
        # a topic is deleted before it is created again.
        self._looks_without = self._looks_without + 1 if now is None and self._seen else 0
        if self._looks_without == _MISSING_AFTER_LOOKS:
            _log.warning("%s", self._messages.missing())


class TopicWatch:
    """Looks at the change topics of running tables, in the background, with one request for all of them."""

    def __init__(
        self,
        describe: Callable[[Sequence[str]], Mapping[str, CurrentTopic]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; this asks Kafka nothing.

        Args:
            describe: returns the topics that exist, by name.
            clock: monotonic seconds.
        """
        self._describe = describe
        self._clock = clock
        self._again_at_s = clock() + LOOK_EVERY_S
        self._looking: Future[None] | None = None

    def look(self, topics: Callable[[], Sequence[ChangeTopic]]) -> None:
        """Begin a look if one is due; never waits. Call this often.

        Args:
            topics: returns the change topics of the tables that run.
        """
        if self._looking is not None:
            if not self._looking.done():
                return
            if (error := self._looking.exception()) is not None:
                _log.debug("the change topics could not be compared: %r", error)
            self._looking, self._again_at_s = None, self._clock() + LOOK_EVERY_S
        if self._clock() >= self._again_at_s:
            self._looking = run_in_background(partial(self._compare, topics()), "look at the change topics")

    def _compare(self, topics: Sequence[ChangeTopic]) -> None:
        if not topics:
            return
        found = self._describe([topic.name for topic in topics])
        for topic in topics:
            topic.look(found.get(topic.name))
