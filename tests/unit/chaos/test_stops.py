"""A run under faults fails when a job gives a table up that should go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import LayoutError
from bridge.model.cursors import Cursor, LaneProgress, Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing import LaneTask, remainder
from tests.chaos.plan import KINDS
from tests.chaos.stops import MAY_STOP, Stops

TABLES = ("ks.orders", "ks.lines")
LOST = "2026-01-01T00:00:00.000Z ERROR spark.supervisor: ks.orders stops: lane 1: the cursor lies before the window\n"
OTHERS = (
    "2026-01-01T00:00:00.000Z INFO spark.job: SIGTERM: stopping\n"
    "2026-01-01T00:00:00.000Z ERROR spark.supervisor: ks.orders has stopped: lane 1: the cursor lies before\n"
    "2026-01-01T00:00:00.000Z WARNING spark.supervisor: ks.orders: it stops: Kafka is away (failure 1)\n"
    "2026-01-01T00:00:00.000Z ERROR spark.supervisor: other.orders stops: it is none of ours\n"
)


def replaced() -> str:
    """What the product says of a layout that another job has replaced."""
    layout, start = Layout(2, Cursor(UnixMillis(1), UnixMicros(10))), Cursor(UnixMillis(1), UnixMicros(20))
    batch = PlannedBatch(start, Cursor(UnixMillis(1), UnixMicros(30)), layout)
    with pytest.raises(LayoutError) as caught:
        remainder(LaneTask("ks", "orders", 1, batch), LaneProgress(1, Layout(3, start), start), "progress")
    return f"2026-01-01T00:00:00.000Z ERROR spark.supervisor: ks.orders stops: {caught.value}\n"


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_table_that_stops_is_told_once(tmp_path: Path, kind: str | None) -> None:
    """Under no fault may progress be lost, whichever of the jobs says so, and however its lines come."""
    stops, logs = Stops(TABLES), [tmp_path / "one.log", tmp_path / "two.log"]
    assert stops.unexpected(logs, kind) == []
    logs[0].write_text(OTHERS)
    logs[1].write_text(LOST[:90])
    assert stops.unexpected(logs, kind) == []
    with logs[1].open("a") as log:
        log.write(LOST[90:])
    assert stops.unexpected(logs, kind) == [LOST.rstrip()]
    assert stops.unexpected(logs, kind) == []


def test_whose_layout_is_replaced_may_stop(tmp_path: Path) -> None:
    """Two jobs named alike, and nothing else, may end in that."""
    log = tmp_path / "job.log"
    log.write_text(replaced())
    assert {kind for kind in KINDS if not Stops(TABLES).unexpected([log], kind)} == {"second job", "zombie job"}
    assert MAY_STOP.keys() <= set(KINDS)
