"""Goes on with a lane when the table's columns change under way, without a record twice, lost, or under a wrong schema.

A change of the log's columns is met as a page that the encoder was not compiled for. What was handed on before stands:
it was right under its schema. The rest of the window is read again under the new schema (all log rows can be read under
the newest one: added columns are null in old rows, dropped ones are gone), and what was handed on already is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from bridge.captured import AGREE_WITHIN_S, CapturedTable
from bridge.encoding import EncodedChange, EncodedRun
from bridge.errors import BridgeError, RefusedError
from bridge.lane_reader import ColumnsChangedError
from bridge.model.times import sort_key

_PAUSE_S: Final = 0.2
_STREAM_ID_END: Final = 16
_TIMEUUID_END: Final = 32

Changes = Iterator[EncodedChange | EncodedRun]


def runs(
    table: CapturedTable,
    changes: Callable[[CapturedTable], Changes],
    capture: Callable[[], CapturedTable],
    *,
    streams: int,
    within_s: float = AGREE_WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[CapturedTable, Changes]]:
    """The changes of a lane's task in runs of one schema each; exhaust a run before you ask for the next.

    Args:
        table: as it was known at the task's beginning.
        changes: reads and encodes the task's changes from their beginning, for a table; those of one stream in order.
        capture: the table as it is now; see `bridge.captured.capture`.
        streams: of how many streams these changes can be.
        within_s: for how long pages may have other columns than the table that was captured last, without a change
            handed on in between.
        clock: monotonic seconds.
        sleep: pauses for so many seconds.

    Raises:
        ColumnsChangedError: that long; another attempt is no worse.
        RefusedError: the same for a server that refuses to read the log though it exists.
        TableMissingError, UnsettledSchemaError: from `capture`.
    """
    reached: dict[bytes, bytes] = {}
    until_s: float | None = None
    while True:
        met: list[BridgeError] = []
        before = dict(reached)
        yield table, _until_changed(changes(table), before, reached, met, streams)
        if not met:
            return
        if until_s is None or reached != before:
            until_s = clock() + within_s
        elif clock() >= until_s:
            raise met[0]
        else:
            sleep(_PAUSE_S)
        table = capture()


def _until_changed(
    changes: Changes, before: dict[bytes, bytes], reached: dict[bytes, bytes], met: list[BridgeError], streams: int
) -> Changes:
    """What lies beyond `before` in its stream, noted in `reached`; ends early, with the reason in `met`."""
    try:
        for change in changes:
            if isinstance(change, EncodedRun):
                run = _beyond(change, before) if before else change
                reached.update(_last_of_each(run, streams))
                yield run
                continue
            position = change.position
            stream_id = position[:_STREAM_ID_END]
            if before:
                done = before.get(stream_id)
                if done is not None and _order(position) <= _order(done):
                    continue
            reached[stream_id] = position
            yield change
    except (ColumnsChangedError, RefusedError) as error:
        met.append(error)


def _last_of_each(run: EncodedRun, streams: int) -> dict[bytes, bytes]:
    """The last position of each stream; `streams` says how many there can be."""
    last: dict[bytes, bytes] = {}
    # From behind: the lane's streams take turns, so all of them are met long before the front.
    for *_, position in reversed(run.records):
        stream_id = position[:_STREAM_ID_END]
        if stream_id not in last:
            last[stream_id] = position
            if len(last) == streams:
                break
    return last


def _beyond(run: EncodedRun, before: dict[bytes, bytes]) -> EncodedRun:
    return EncodedRun(
        [
            record
            for record in run.records
            if (done := before.get(record[3][:_STREAM_ID_END])) is None or _order(record[3]) > _order(done)
        ]
    )


def _order(position: bytes) -> tuple[bytes, bytes]:
    return sort_key(position[_STREAM_ID_END:_TIMEUUID_END]), position[_TIMEUUID_END:]
