"""Opens and closes the parts of monitoring together: the HTTP port, the topology watcher and the log handler."""

from __future__ import annotations

import logging
import time
from importlib import metadata
from types import TracebackType
from typing import Final, Literal, Self

from bridge.config.document import BridgeConfig
from bridge.monitoring.server import Answers, MonitoringServer
from bridge.monitoring.snapshot import Message
from bridge.monitoring.state import JobState
from bridge.monitoring.topology import TopologyWatcher

_log = logging.getLogger(__name__)

_LONGEST_TEXT: Final = 1000


class Monitor:
    """A context manager; entering it raises StartupError if the port can't be opened.

    Attributes:
        job_state: the state of the job, collected even if monitoring is off.
        address: the address of the port, `host:port`; None if monitoring is off.
    """

    def __init__(self, config: BridgeConfig) -> None:
        self.job_state = JobState(config, _version(), time.time)
        self.address: str | None = None
        self._config = config
        self._handler = MessageHandler(self.job_state)
        self._server: MonitoringServer | None = None
        self._watcher: TopologyWatcher | None = None

    def __enter__(self) -> Self:
        """Open the port and start the watcher, unless monitoring is off."""
        settings = self._config.monitoring
        if not settings.enabled:
            return self
        self._server = MonitoringServer(
            settings.listen, Answers(self.job_state.snapshot), or_free_port="listen" not in settings.model_fields_set
        )
        self.address = self._server.address
        _log.info("status page at http://%s/, metrics at /metrics", self.address)
        self._watcher = TopologyWatcher(self._config, self.job_state)
        self._watcher.start()
        logging.getLogger().addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port and stop the watcher."""
        logging.getLogger().removeHandler(self._handler)
        for part in (self._watcher, self._server):
            if part is not None:
                part.close()


class MessageHandler(logging.Handler):
    """Keeps warnings and errors of the log for the status page."""

    def __init__(self, job_state: JobState) -> None:
        super().__init__(logging.WARNING)
        self._job_state = job_state

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of the log."""
        level: Literal["warning", "error"] = "error" if record.levelno >= logging.ERROR else "warning"
        self._job_state.add_message(Message(record.created, level, record.getMessage()[:_LONGEST_TEXT]))


def _version() -> str:
    try:
        return metadata.version("scylla-cdc-bridge")
    except metadata.PackageNotFoundError:
        return "unknown"
