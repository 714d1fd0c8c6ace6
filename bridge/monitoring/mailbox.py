"""How what tasks report reaches the job's first process.

Spark hands the commit messages of a micro-batch to another Python process on the same machine (the sink's `commit`) and
offers no way from there to ours. A Unix socket in a folder that only this user can enter is that way. Nothing waits for
it: a report that can't be delivered in time is dropped and said so.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from bridge.errors import BridgeError, StartupError
from bridge.model.cursors import Cursor
from bridge.monitoring import figures
from bridge.monitoring.figures import Counted
from bridge.temporary import TemporaryFolder

_log = logging.getLogger(__name__)

_SEND_WITHIN_S: Final = 1.0
_READ_WITHIN_S: Final = 5.0
_AGAIN_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class LaneReached:
    """A lane that has published its part of a micro-batch."""

    table: str
    lane: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What the tasks of one micro-batch of one table report.

    Attributes:
        committed: whether every task succeeded; otherwise the micro-batch will be tried again.
        reached: the lanes that did.
        counted: what their processes have counted, of whatever lane.
    """

    committed: bool
    reached: tuple[LaneReached, ...]
    counted: Counted

    def to_bytes(self) -> bytes:
        """As it travels."""
        reached = [[one.table, one.lane, one.cursor.to_json()] for one in self.reached]
        return json.dumps(
            {"v": 1, "committed": self.committed, "reached": reached, "counted": figures.to_json(self.counted)}
        ).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Raises BridgeError when this is not what `to_bytes` gave."""
        try:
            value: Any = json.loads(raw)
        except ValueError as error:
            raise BridgeError(f"a report of {len(raw)} bytes is no JSON") from error
        match value:
            case {"v": 1, "committed": bool(committed), "reached": list(reached), "counted": list(counted)}:
                lanes = tuple(LaneReached(table, lane, Cursor.from_json(cursor)) for table, lane, cursor in reached)
                return cls(committed, lanes, figures.from_json(counted))
        raise BridgeError(f"not a report: {raw[:200]!r}")


def send(path: str, report: BatchReport) -> None:
    """Hand a report to the mailbox at a path; figures are never worth an error."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
            sender.settimeout(_SEND_WITHIN_S)
            sender.connect(path)
            sender.sendall(report.to_bytes())
    except OSError as error:
        _log.warning("a micro-batch's figures could not be handed on: %s", error.strerror or type(error).__name__)


class Mailbox:
    """Takes reports in a thread of its own.

    Attributes:
        path: what `send` wants.
    """

    def __init__(self, deliver: Callable[[BatchReport], None]) -> None:
        """Open the socket and begin to listen.

        Args:
            deliver: called with each report, in the mailbox's thread.

        Raises:
            StartupError: there is no folder for temporary files that can be written to.
        """
        self._deliver = deliver
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # In the system's own folder for these: a socket's path may have 100 characters or so.
            self._folder = TemporaryFolder()
            self.path = str(self._folder.path / "figures")
            self._socket.bind(self.path)
        except OSError as error:
            self._socket.close()
            raise StartupError(
                f"no socket can be made among the temporary files ({error.strerror or error}); set TMPDIR to a folder "
                "that can be written to and whose path is short, or monitoring.enabled to false"
            ) from error
        self._socket.listen(64)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_READ_WITHIN_S)
        self._socket.close()
        self._folder.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._closed.is_set():
                    _log.warning("figures can't be received: %s", error.strerror)
                    self._closed.wait(_AGAIN_AFTER_S)
                continue
            with connection:
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        connection.settimeout(_READ_WITHIN_S)
        parts: list[bytes] = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
            self._deliver(BatchReport.from_bytes(b"".join(parts)))
        except (OSError, BridgeError) as error:
            _log.warning("a micro-batch's figures did not arrive: %s", error)
