"""Continues a lane when the table's columns change while it is read: no record twice, lost, or under a wrong schema.

A change of the log's columns shows as a page that the encoder was not compiled for. The changes delivered before it
stay valid under their schema. The rest of the window is read again under the new schema. That schema fits all log rows:
added columns are null in old rows, and dropped columns are gone. Changes that were delivered already are left out:
changes come in lane order, so these are all changes up to the last delivered one.
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
_SortKey = tuple[bytes, bytes, bytes]
"""Orders changes as the lane does: sort key of `cdc$time`, stream id, `cdc$batch_seq_no`."""


def runs_by_schema(
    table: CapturedTable,
    read_changes: Callable[[CapturedTable], Changes],
    capture: Callable[[], CapturedTable],
    *,
    within_s: float = AGREE_WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[CapturedTable, Changes]]:
    """The changes of a lane's task, in runs of one schema each.

    Exhaust a run before you request the next one.

    Args:
        table: the table as captured before the task.
        read_changes: reads and encodes all of the task's changes under a captured table, in lane order.
        capture: captures the table again.
        within_s: how long, in s, pages may have other columns than the captured table while no change is delivered.
        clock: monotonic seconds.
        sleep: pauses for that many seconds.

    Yields:
        The captured table of a run, and its changes.

    Raises:
        ColumnsChangedError: pages still have other columns after `within_s`; another attempt may succeed.
        RefusedError: the server still refuses to read the log after `within_s`, although the log exists.
        TableMissingError, UnsettledSchemaError: from `capture`.
    """
    deadline_s: float | None = None
    delivered: _SortKey | None = None
    while True:
        reading = _Reading(delivered)
        yield table, reading.until_columns_change(read_changes(table))
        if reading.failure is None:
            return
        if deadline_s is None or reading.delivered != delivered:
            deadline_s = clock() + within_s
        elif clock() >= deadline_s:
            raise reading.failure
        else:
            sleep(_PAUSE_S)
        delivered = reading.delivered
        table = capture()


class _Reading:
    """One reading of a task's changes, from their beginning.

    Attributes:
        delivered: the sort key of the last delivered change, of this reading or an earlier one.
        failure: why the reading ended early; None if it did not.
    """

    def __init__(self, delivered: _SortKey | None) -> None:
        self.delivered = self._delivered_before = delivered
        self.failure: BridgeError | None = None

    def until_columns_change(self, changes: Changes) -> Changes:
        """The changes that no earlier reading delivered, up to a page with other columns."""
        before = self._delivered_before
        try:
            for change in changes:
                if isinstance(change, EncodedRun):
                    run = change if before is None else _records_after(change, before)
                    if run.records:
                        self.delivered = sort_key_of(run.records[-1][3])
                        yield run
                    continue
                key = sort_key_of(change.position)
                if before is None or key > before:
                    self.delivered = key
                    yield change
        except (ColumnsChangedError, RefusedError) as error:
            self.failure = error


def _records_after(run: EncodedRun, key: _SortKey) -> EncodedRun:
    return EncodedRun([record for record in run.records if sort_key_of(record[3]) > key])
