"""How a starting job goes on with a table, as a value that travels from the job's process to the planner's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros, UnixMillis

_RESTARTED_WITHIN_US: Final = 600_000_000
"""The longest restart, from a crash to the next look at the log, during which expired changes are excused."""


@dataclass(frozen=True, slots=True)
class TableStart:
    """How a starting job goes on with a table, according to the committed progress in Kafka.

    Attributes:
        layout: the lanes to work with.
        cursor: what is done on every lane.
        interrupted: the micro-batch that some lanes have committed, wholly or in part, and others have not.
        assign: whether every lane's progress record must get the layout before work begins.
        recover: whether `layout` is not the configured one and is kept only to finish `interrupted` under it. The job
            then decides again.
        entered_from_ms: the generation that was read before that of `goes_on_in_ms`; None when that is unknown.
        first: whether nothing of the table was published yet.
        at_edge: whether the cursor may lie where changes are just expiring. What expires before the reading has left
            that place is no gap (`excuses`).
        edge_us: the write time before which changes may have expired when the table's first lanes were assigned. Set
            only if they were assigned there or behind it, and the first micro-batch is not done yet.
        facts: what is known about the table from earlier runs; None when nothing is.
    """

    layout: Layout
    cursor: Cursor
    interrupted: PlannedBatch | None = None
    assign: bool = False
    recover: bool = False
    entered_from_ms: UnixMillis | None = None
    first: bool = False
    at_edge: bool = False
    edge_us: UnixMicros | None = None
    facts: TableFacts | None = None

    def __post_init__(self) -> None:
        if self.recover and self.interrupted is None:
            raise ValueError("nothing to recover")

    @property
    def goes_on_in_ms(self) -> UnixMillis:
        """The generation in which the next micro-batch is planned, once the interrupted one is done."""
        return (self.cursor if self.interrupted is None else self.interrupted.next).generation_ms

    def excuses(self, until_us: UnixMicros | None) -> bool:
        """Return whether expired changes are no gap, with the cursor where it is.

        Before the first publication the job has promised no changes. Once the first micro-batch at the edge is
        interrupted, only what expires during one restart (600 s) is excused.

        Args:
            until_us: the write time before which changes have expired; None when it is unknown.
        """
        if not self.at_edge or self.interrupted is None or until_us is None:
            return self.at_edge
        reached_us = self.interrupted.next.reached_us
        return until_us <= max(reached_us, self.edge_us or reached_us) + _RESTARTED_WITHIN_US

    def moved_to(self, cursor: Cursor, lanes: int) -> TableStart:
        """Return a start with all lanes at a later cursor, because the changes before it are lost.

        An interrupted micro-batch is given up too: its rest belongs to what is lost.

        Args:
            cursor: where reading can go on.
            lanes: the configured number of lanes.

        Returns:
            This start itself when its cursor is there already.
        """
        if cursor == self.cursor:
            return self
        beyond = cursor if self.interrupted is None else max(cursor, self.interrupted.next)
        return TableStart(Layout(lanes, beyond), beyond, assign=True, at_edge=True, facts=self.facts)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        batch = self.interrupted
        return {
            "layout": self.layout.to_json(),
            "cursor": self.cursor.to_json(),
            "interrupted": None if batch is None else StreamOffset(batch.next, batch).to_json(),
            "assign": self.assign,
            "recover": self.recover,
            "from": self.entered_from_ms,
            "first": self.first,
            "at_edge": self.at_edge,
            "edge": self.edge_us,
            "facts": None if self.facts is None else self.facts.to_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the start that `to_json` wrote.

        Raises:
            BridgeError: `value` is anything else.
        """
        match value:
            case {
                "layout": layout,
                "cursor": cursor,
                "interrupted": interrupted,
                "assign": bool(assign),
                "recover": bool(recover),
                "from": int() | None as before_ms,
                "first": bool(first),
                "at_edge": bool(at_edge),
                "edge": int() | None as edge,
                "facts": facts,
            }:
                return cls(
                    Layout.from_json(layout),
                    Cursor.from_json(cursor),
                    None if interrupted is None else StreamOffset.from_json(interrupted).batch,
                    assign,
                    recover,
                    None if before_ms is None else UnixMillis(before_ms),
                    first,
                    at_edge,
                    None if edge is None else UnixMicros(edge),
                    None if facts is None else TableFacts.from_json(facts),
                )
        raise BridgeError(f"not a table's start: {value!r}")
