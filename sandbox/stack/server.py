"""What a server of the stack is to the rest of it, and how one is brought to readiness."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.errors import LocalStackError
from sandbox.stack import processes
from sandbox.stack.processes import ProcessIdentity

_POLL_S = 0.1


class Server(Protocol):
    """One server of the stack. Every method may be called again after a stop or a crash, on the same data."""

    @property
    def name(self) -> str:
        """The component's name as the user writes it."""

    @property
    def log(self) -> Path:
        """Where the server's output goes."""

    @property
    def data(self) -> Path:
        """The folder with its files; also its working directory."""

    def prepare(self) -> None:
        """Write configuration and format storage. Raises LocalStackError."""

    def command(self) -> list[str]:
        """Return the command line that starts it."""

    def problem(self) -> str | None:
        """Probe it once with its own protocol: None if it is ready, else what is still missing."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answered: its process, and how long that took."""

    process: ProcessIdentity
    seconds: float


def launch(server: Server) -> ProcessIdentity:
    """Prepare and start a server, without waiting for it.

    Raises:
        LocalStackError: it could not be prepared or started.
    """
    server.data.mkdir(parents=True, exist_ok=True)
    server.prepare()
    return processes.start(server.command(), log=server.log, cwd=server.data)


def wait_ready(server: Server, process: ProcessIdentity, *, timeout_s: float) -> None:
    """Wait until a server answers.

    Raises:
        LocalStackError: it ended, or wasn't ready within `timeout_s`; the message shows the end of its log.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        problem = server.problem()
        if problem is None:
            return
        if not process.is_alive():
            message = f"{server.name} ended while it was starting.{processes.log_tail(server.log)}"
            raise LocalStackError(message)
        if time.monotonic() >= deadline_s:
            message = f"{server.name} was not ready after {timeout_s:.0f} s: {problem}.{processes.log_tail(server.log)}"
            raise LocalStackError(message)
        time.sleep(_POLL_S)
