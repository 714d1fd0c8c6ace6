"""Whether a table's change topic is the one that its changes went to before, and what is said when it is not. Pure.

A topic that is deleted and made anew keeps its name, and whoever publishes to it may not notice: brokers with
`auto.create.topics.enable` make it at the next record. Kafka tells the two apart by an id (KIP-516).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from bridge.model.kept_formats import canonical_json
from bridge.model.times import UnixMicros, iso_of_micros


@dataclass(frozen=True, slots=True)
class CurrentTopic:
    """A topic as Kafka describes it.

    Attributes:
        id: as Kafka's own tools print it.
        partitions: how many it has.
    """

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """The topic that a table's changes went to.

    Attributes:
        name: the topic's.
        id: as of `CurrentTopic`.
        seen_us: when it was there, by this machine's clock.
    """

    name: str
    id: str
    seen_us: UnixMicros

    def to_text(self) -> str:
        """As JSON, for the next job."""
        return canonical_json({"topic": self.name, "id": self.id, "seen_us": self.seen_us})

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """What `to_text` gave; None for anything else, such as what was being written when a job died."""
        try:
            value = json.loads(text)
            return cls(str(value["topic"]), str(value["id"]), UnixMicros(int(value["seen_us"])))
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True, slots=True)
class ChangeTopicMessages:
    """What is said of a table's change topic.

    Attributes:
        table: `keyspace.table`.
        topic: its change topic.
        partitions: how many a new one gets.
        progress_topic: where its cursors are.
        checkpoint: its folder.
    """

    table: str
    topic: str
    partitions: int
    progress_topic: str
    checkpoint: str

    def was_gone(self, now: CurrentTopic | None) -> str:
        """Said where the bridge itself has made it anew."""
        return (
            f"{self.table}: there was no change topic {self.topic} although the progress topic {self.progress_topic} "
            f"says that the table was carried before. It was made anew{self._smaller(now)} and goes on from there: "
            f"what a deleted one held does not come again. {self._how_to_have_all()}"
        )

    def is_another(self, before: KnownTopic, now: CurrentTopic) -> str:
        """Said where somebody else has, or a broker by itself."""
        return (
            f"{self.table}: the change topic {self.topic} is another one than when it was noted last, at "
            f"{iso_of_micros(before.seen_us)} (its id was {before.id}, and is {now.id}). Unless this is another Kafka "
            f"cluster, it was deleted since, made anew{self._smaller(now)}, and the table goes on in it: what the "
            f"deleted one held does not come again. {self._how_to_have_all()}"
        )

    def is_away(self) -> str:
        """Said where it was there under the running table."""
        return (
            f"{self.table}: the change topic {self.topic} is not found any more: it was deleted, or the right Describe "
            "on it was taken away. With the table's next change, or at its next start, it is made anew; what a deleted "
            f"one held does not come again. {self._how_to_have_all()}"
        )

    def _smaller(self, now: CurrentTopic | None) -> str:
        if now is None or now.partitions >= self.partitions:
            return ""
        return f" with {now.partitions} of {self.partitions} partitions (kafka.partitions)"

    def _how_to_have_all(self) -> str:
        # Without the deletion of the change topic, what it holds by now would come twice, and behind what is newer.
        return (
            "To publish all that the log still holds, stop the job, delete the change topic, the progress topic "
            f"{self.progress_topic} and the checkpoint {self.checkpoint}, and start it again"
        )
