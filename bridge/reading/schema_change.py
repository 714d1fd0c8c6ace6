"""Goes on with a lane when the table's columns change under way, without a record twice, lost, or under a wrong schema.

A change of the log's columns is met as a page that the encoder was not compiled for. What was handed on before stands:
it was right under its schema. The rest of the window is read again under the new schema (all log rows can be read under
the newest one: added columns are null in old rows, dropped ones are gone), and what was handed on already is left out:
changes come in lane order, so that is all up to the last of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from bridge.encoding.group_encoder import EncodedChange, EncodedRun
from bridge.errors import BridgeError, RefusedError
from bridge.model.position import sort_key_of
from bridge.reading.lane_merge import ColumnsChangedError
from bridge.reading.table_capture import AGREE_WITHIN_S, CapturedTable

_PAUSE_S: Final = 0.2

Changes = Iterator[EncodedChange | EncodedRun]
_Place = tuple[bytes, bytes, bytes]
"""Of a change in lane order: sort key of `cdc$time`, stream id, `cdc$batch_seq_no`."""


def runs(
    table: CapturedTable,
    changes: Callable[[CapturedTable], Changes],
    capture: Callable[[], CapturedTable],
    *,
    within_s: float = AGREE_WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[CapturedTable, Changes]]:
    """The changes of a lane's task in runs of one schema each; exhaust a run before you ask for the next.

    Args:
        table: as it was known at the task's beginning.
        changes: reads and encodes the task's changes from their beginning, for a table, in lane order.
        capture: the table as it is now; see `bridge.reading.table_capture.capture`.
        within_s: for how long pages may have other columns than the table that was captured last, without a change
            handed on in between.
        clock: monotonic seconds.
        sleep: pauses for so many seconds.

    Raises:
        ColumnsChangedError: that long; another attempt is no worse.
        RefusedError: the same for a server that refuses to read the log though it exists.
        TableMissingError, UnsettledSchemaError: from `capture`.
    """
    until_s: float | None = None
    before: _Place | None = None
    while True:
        reading = _Reading(before)
        yield table, reading.until_changed(changes(table))
        if reading.met is None:
            return
        if until_s is None or reading.reached != before:
            until_s = clock() + within_s
        elif clock() >= until_s:
            raise reading.met
        else:
            sleep(_PAUSE_S)
        before = reading.reached
        table = capture()


class _Reading:
    """One reading of a task's changes, from their beginning.

    Attributes:
        reached: the place of the last change that was handed on, in this reading or one before.
        met: why it ended early, if it did.
    """

    def __init__(self, before: _Place | None) -> None:
        self.reached = self._before = before
        self.met: BridgeError | None = None

    def until_changed(self, changes: Changes) -> Changes:
        """What lies beyond what was handed on before."""
        before = self._before
        try:
            for change in changes:
                if isinstance(change, EncodedRun):
                    run = change if before is None else _beyond(change, before)
                    if run.records:
                        self.reached = sort_key_of(run.records[-1][3])
                        yield run
                    continue
                place = sort_key_of(change.position)
                if before is None or place > before:
                    self.reached = place
                    yield change
        except (ColumnsChangedError, RefusedError) as error:
            self.met = error


def _beyond(run: EncodedRun, before: _Place) -> EncodedRun:
    return EncodedRun([record for record in run.records if sort_key_of(record[3]) > before])
