"""Everything that tells about the job, opened and closed together."""

from __future__ import annotations

import logging
import time
from importlib import metadata
from types import TracebackType
from typing import Final, Literal, Self

from bridge.config.document import BridgeConfig
from bridge.monitoring.server import Answers, MonitoringServer
from bridge.monitoring.snapshot import Message
from bridge.monitoring.state import Board
from bridge.monitoring.topology import TopologyWatcher

_log = logging.getLogger(__name__)

_LONGEST_TEXT: Final = 1000


class Monitor:
    """Use with `with`. Entering raises StartupError when the port can't be opened.

    Attributes:
        board: what the job tells goes here, whether a port is open or not.
        address: where the port is open, `host:port`; None when monitoring is off.
    """

    def __init__(self, config: BridgeConfig) -> None:
        self.board = Board(config, _version(), time.time)
        self.address: str | None = None
        self._config = config
        self._handler = MessageHandler(self.board)
        self._server: MonitoringServer | None = None
        self._watcher: TopologyWatcher | None = None

    def __enter__(self) -> Self:
        """Open the port and the watcher, as far as monitoring is on."""
        settings = self._config.monitoring
        if not settings.enabled:
            return self
        self._server = MonitoringServer(
            settings.listen, Answers(self.board.view), or_free_port="listen" not in settings.model_fields_set
        )
        self.address = self._server.address
        _log.info("status page at http://%s/, metrics at /metrics", self.address)
        self._watcher = TopologyWatcher(self._config, self.board)
        self._watcher.start()
        logging.getLogger().addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them."""
        logging.getLogger().removeHandler(self._handler)
        for one in (self._watcher, self._server):
            if one is not None:
                one.close()


class MessageHandler(logging.Handler):
    """Keeps warnings and errors for the status page."""

    def __init__(self, board: Board) -> None:
        super().__init__(logging.WARNING)
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        level: Literal["warning", "error"] = "error" if record.levelno >= logging.ERROR else "warning"
        self._board.message(Message(record.created, level, record.getMessage()[:_LONGEST_TEXT]))


def _version() -> str:
    try:
        return metadata.version("scylla-cdc-bridge")
    except metadata.PackageNotFoundError:
        return "unknown"
