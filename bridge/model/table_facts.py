"""What a job learns about a table and the next job needs: which log and change topic it used, and the log's TTLs.

The progress records in Kafka keep these facts, so that a lost checkpoint loses none of them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from bridge.errors import BridgeError
from bridge.model.times import UnixMicros


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """The change topic that a job published to.

    Attributes:
        name: of the topic.
        id: Kafka's id of the topic, as Kafka's own tools print it.
        seen_us: when the job saw it, by the clock of the job's machine.
    """

    name: str
    id: str
    seen_us: UnixMicros

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"name": self.name, "id": self.id, "seen_us": self.seen_us}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the topic that `to_json` wrote.

        Raises:
            BridgeError: `value` is anything else.
        """
        match value:
            case {"name": str(name), "id": str(topic_id), "seen_us": int(seen_us)}:
                return cls(name, topic_id, UnixMicros(seen_us))
        raise BridgeError(f"not a change topic: {value!r}")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a job knows about a table apart from its cursor.

    As JSON: `{"log":"5f0c...","topic":{"id":"kX...","name":"shop.item","seen_us":1700000000000000},"ttl":
    [[1700000000000000,86400]]}`; `log` and `topic` are null when they are unknown.

    Attributes:
        log_id: id of the log table that was read; None when it is unknown.
        ttls: since which write time (in us) the log has had which TTL (in s, 0 for no expiry), ascending.
        topic: the change topic; None when it is unknown.
    """

    log_id: UUID | None = None
    ttls: tuple[tuple[UnixMicros, int], ...] = ()
    topic: KnownTopic | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "log": None if self.log_id is None else str(self.log_id),
            "ttl": [list(one) for one in self.ttls],
            "topic": None if self.topic is None else self.topic.to_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the facts that `to_json` wrote.

        Raises:
            BridgeError: `value` is anything else.
        """
        try:
            match value:
                case {"log": str() | None as log, "ttl": list(ttls), "topic": topic}:
                    return cls(
                        None if log is None else UUID(log),
                        tuple((UnixMicros(int(since_us)), int(ttl_s)) for since_us, ttl_s in ttls),
                        None if topic is None else KnownTopic.from_json(topic),
                    )
        except (ValueError, TypeError) as error:
            raise BridgeError(f"not a table's facts: {value!r}") from error
        raise BridgeError(f"not a table's facts: {value!r}")
