"""The interface of a server of the stack, and how the stack starts one and waits until it is ready."""

from __future__ import annotations

import time
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
        """The component's name on the command line."""

    @property
    def log(self) -> Path:
        """Where the server's output goes."""

    @property
    def data(self) -> Path:
        """The folder with its files; also its working directory."""

    def prepare(self) -> None:
        """Write configuration and format storage. Raises LocalStackError."""

    def command(self) -> list[str]:
        """Return the command line that starts the server."""

    def problem(self) -> str | None:
        """Probe the server once with its own protocol: None if it is ready, else the reason why it is not."""


def launch(server: Server) -> ProcessIdentity:
    """Prepare and start a server, without waiting until it is ready.

    Raises:
        LocalStackError: the server could not be prepared or started.
    """
    server.data.mkdir(parents=True, exist_ok=True)
    server.prepare()
    return processes.start(server.command(), log=server.log, cwd=server.data)


def wait_ready(server: Server, process: ProcessIdentity, *, timeout_s: float) -> None:
    """Wait until a server answers.

    Raises:
        LocalStackError: the server ended, or was not ready within `timeout_s`. The message shows the end of its log.
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
