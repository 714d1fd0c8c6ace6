"""Goes on with a lane when the table's columns change under way, without a record twice, lost, or under a wrong schema.

A change of the log's columns is met as a page that the encoder was not compiled for. What was handed on before stands:
it was right under its schema. The rest of the window is read again under the new schema (all log rows can be read under
the newest one: added columns are null in old rows, dropped ones are gone), and what was handed on already is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import itemgetter
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
    within_s: float = AGREE_WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[CapturedTable, Changes]]:
    """The changes of a lane's task in runs of one schema each; exhaust a run before you ask for the next.

    Args:
        table: as it was known at the task's beginning.
        changes: reads and encodes the task's changes from their beginning, for a table; those of one stream in order.
        capture: the table as it is now; see `bridge.captured.capture`.
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
        yield table, _until_changed(changes(table), before, reached, met)
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
    changes: Changes, before: dict[bytes, bytes], reached: dict[bytes, bytes], met: list[BridgeError]
) -> Changes:
    """What lies beyond `before` in its stream, noted in `reached`; ends early, with the reason in `met`."""
    try:
        for change in changes:
            if isinstance(change, EncodedRun):
                run = _beyond(change, before) if before else change
                # Of each stream the last one stays.
                reached.update(zip(map(_stream_id, run.positions), run.positions, strict=True))
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


_stream_id: Final = itemgetter(slice(_STREAM_ID_END))


def _beyond(run: EncodedRun, before: dict[bytes, bytes]) -> EncodedRun:
    left = [
        (key, value, position)
        for key, value, position in zip(*run, strict=True)
        if (done := before.get(_stream_id(position))) is None or _order(position) > _order(done)
    ]
    return EncodedRun(*(list(map(itemgetter(part), left)) for part in range(3)))


def _order(position: bytes) -> tuple[bytes, bytes]:
    return sort_key(position[_STREAM_ID_END:_TIMEUUID_END]), position[_TIMEUUID_END:]
