"""Messages about a change topic that is not the one a table published to before. Pure.

A topic that is deleted and created again keeps its name, and a publisher may not notice: brokers with
`auto.create.topics.enable` create it at the next record. Kafka's topic id tells the two apart (KIP-516).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model.table_facts import KnownTopic
from bridge.model.times import iso_of_micros


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
class ChangeTopicMessages:
    """Warnings about one table's change topic.

    Attributes:
        table: `keyspace.table`.
        topic: its change topic.
        partitions: how many a new topic gets.
        progress_topic: the topic that holds its cursors.
        checkpoint: the folder of its checkpoint.
    """

    table: str
    topic: str
    partitions: int
    progress_topic: str
    checkpoint: str

    def recreated_by_bridge(self, now: CurrentTopic | None) -> str:
        """Return the warning for a topic that was missing at the table's start.

        Args:
            now: the topic that the bridge has created; None when Kafka does not describe it.
        """
        return (
            f"{self.table}: the change topic {self.topic} did not exist, although the progress topic "
            f"{self.progress_topic} shows that the table was published before. The bridge has created it"
            f"{self._describe_fewer(now)} and goes on publishing: what a deleted topic held is not published again. "
            f"{self._how_to_publish_all()}"
        )

    def replaced(self, before: KnownTopic, now: CurrentTopic) -> str:
        """Return the warning for a topic that somebody else, or a broker by itself, has created again.

        Args:
            before: the topic that the table published to.
            now: the topic of that name now.
        """
        return (
            f"{self.table}: the change topic {self.topic} is not the one of {iso_of_micros(before.seen_us)} (its id "
            f"was {before.id}, and is {now.id}). Unless this is another Kafka cluster, the topic was deleted and "
            f"created again{self._describe_fewer(now)}. The table goes on publishing to it: what the deleted topic "
            f"held is not published again. {self._how_to_publish_all()}"
        )

    def missing(self) -> str:
        """Return the warning for a topic that is gone while its table runs."""
        return (
            f"{self.table}: the change topic {self.topic} is missing: it was deleted, or the job has lost the right "
            "Describe on it. The table's next change, or its next start, creates a deleted topic again; what it held "
            f"is not published again. {self._how_to_publish_all()}"
        )

    def _describe_fewer(self, now: CurrentTopic | None) -> str:
        if now is None or now.partitions >= self.partitions:
            return ""
        return f" with {now.partitions} of {self.partitions} partitions (kafka.partitions)"

    def _how_to_publish_all(self) -> str:
        # If the change topic stayed, its changes would come twice, and behind newer ones.
        return (
            "To publish all that the log still holds, stop the job, delete the change topic, the progress topic "
            f"{self.progress_topic} and the checkpoint {self.checkpoint}, and start it again"
        )
