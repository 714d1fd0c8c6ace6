"""How a starting job goes on with a table, as a value that travels from the job's process to the planner's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis

_RESTARTED_WITHIN_US: Final = 600_000_000
"""How long a restart takes at most, between a crash and the next look at the log."""


@dataclass(frozen=True, slots=True)
class TableStart:
    """How a starting job goes on with a table, according to Kafka.

    Attributes:
        layout: the lanes to work with now.
        cursor: what is done on every lane.
        interrupted: the micro-batch that some lanes have committed, wholly or in part, and others have not.
        assign: whether the layout is to be written to every lane's progress before work begins.
        recover: whether `layout` is not the wanted one and is kept only to finish `interrupted` under it; then the
            decision is to be made again.
        entered_from_ms: the generation that was read before that of `goes_on_in_ms`; None when that is not known.
        first: whether nothing of the table was published yet.
        at_edge: whether the cursor may lie where changes are just expiring: then what expires before the reading has
            left that place is no gap (`excuses`).
        edge_us: before which write time changes may have expired when the table was laid, if it was laid there or
            behind it, and its first micro-batch is not done yet.
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

    def __post_init__(self) -> None:
        if self.recover and self.interrupted is None:
            raise ValueError("nothing to recover")

    @property
    def goes_on_in_ms(self) -> UnixMillis:
        """The generation in which the next micro-batch is planned, what was interrupted being done."""
        return (self.cursor if self.interrupted is None else self.interrupted.next).generation_ms

    def excuses(self, until_us: UnixMicros | None) -> bool:
        """Whether it is no gap that changes from before `until_us` have expired, with the cursor where it is.

        As long as nothing is published, nobody was promised anything. Of a first micro-batch at the edge that was
        interrupted, so much can't be had as a restart takes. What expires while nobody reads for longer is lost.
        """
        if not self.at_edge or self.interrupted is None or until_us is None:
            return self.at_edge
        reached_us = self.interrupted.next.reached_us
        return until_us <= max(reached_us, self.edge_us or reached_us) + _RESTARTED_WITHIN_US

    def moved_to(self, cursor: Cursor, lanes: int) -> TableStart:
        """The start with all lanes at a later cursor, because what lies before it is lost; the same if they are there.

        What was interrupted is given up too: on the lanes that have not finished it, it belongs to what is lost.
        """
        if cursor == self.cursor:
            return self
        beyond = cursor if self.interrupted is None else max(cursor, self.interrupted.next)
        return TableStart(Layout(lanes, beyond), beyond, assign=True, at_edge=True)

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
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
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The start that `to_json` gave; raises BridgeError for anything else."""
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
            }:
                batch = None if interrupted is None else StreamOffset.from_json(interrupted).batch
                entered_from_ms = None if before_ms is None else UnixMillis(before_ms)
                return cls(
                    Layout.from_json(layout), Cursor.from_json(cursor), batch, assign, recover, entered_from_ms,
                    first, at_edge, None if edge is None else UnixMicros(edge),
                )  # fmt: skip
        raise BridgeError(f"not a table's start: {value!r}")
