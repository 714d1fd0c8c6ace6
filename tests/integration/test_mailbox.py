"""Reports from the sink's driver side to the job's first process, over a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from bridge.errors import StartupError
from bridge.model.cursors import Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring import mailbox
from bridge.monitoring.figures import LaneFigures
from bridge.monitoring.mailbox import BatchReport, LaneReached, Mailbox
from tests.integration.running import wait_for

pytestmark = pytest.mark.integration

REPORT = BatchReport(
    True,
    tuple(LaneReached("ks.t", lane, Cursor(UnixMillis(5), UnixMicros(5_001))) for lane in range(1024)),
    [("ks.t", lane, LaneFigures(changes=lane, transactions=1)) for lane in range(1024)],
)


@pytest.fixture
def received() -> Queue[BatchReport]:
    return Queue()


@pytest.fixture
def box(received: Queue[BatchReport]) -> Iterator[Mailbox]:
    made = Mailbox(received.put)
    yield made
    made.close()


def test_reports_arrive(box: Mailbox, received: Queue[BatchReport]) -> None:
    """One of as many lanes as there can be, too; only this user may look into the folder."""
    mailbox.send(box.path, REPORT)
    assert received.get(timeout=10) == REPORT
    assert Path(box.path).parent.stat().st_mode & 0o077 == 0


def test_damaged_report_is_dropped(
    box: Mailbox, received: Queue[BatchReport], caplog: pytest.LogCaptureFixture
) -> None:
    """It is said so, and the next one arrives."""
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect(box.path)
        sender.sendall(REPORT.to_bytes()[:-5])
    wait_for("the warning", lambda: "figures did not arrive" in caplog.text, 10)
    mailbox.send(box.path, REPORT)
    assert received.get(timeout=10) == REPORT


def test_nobody_listens(box: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    """A micro-batch does not fail because its figures can't be told; closing leaves no file behind."""
    box.close()
    mailbox.send(box.path, REPORT)
    assert "figures could not be handed on: No such file or directory" in caplog.text
    assert not Path(box.path).parent.exists()


def test_no_place_for_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says what to set."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StartupError, match="set TMPDIR"):
        Mailbox(lambda _report: None)
