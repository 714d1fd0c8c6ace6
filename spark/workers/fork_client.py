"""What Spark starts in place of Python: asks the fork server for a process (`fork_server`), or becomes Python itself.

Spark runs this file by its path, without `site`. It imports only the standard library, so it costs next to nothing.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VARIABLE: Final = "SCYLLA_CDC_BRIDGE_FORK_SERVER"
"""Names the fork server's socket to the job's processes."""

LENGTH: Final = struct.Struct("!I")
STANDARD_STREAMS: Final = 3
_MODULE: Final = "-m"
_OUR_MODULES: Final = {"pyspark.daemon": "spark.workers.daemon"}
"""Spark starts PySpark's daemon for planners, whatever `spark.python.daemon.module` names. Our daemon prints no
traceback when Spark drops a planner's answer."""


def main(execute: Callable[[str, list[str]], object] = os.execv, arguments: Sequence[str] | None = None) -> None:
    """Do what `python ARGUMENTS...` does, with our daemon in place of PySpark's; ends when that process ends.

    Args:
        execute: replaces this process by a program, given its path and its command line.
        arguments: of Python; None for those of this process.
    """
    address = os.environ.get(VARIABLE)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == [_MODULE]:
        argv[1:2] = [_OUR_MODULES.get(name, name) for name in argv[1:2]]
    if address is not None and argv[:1] == [_MODULE]:
        try:
            _run_in_fork(address, argv[1:])
        except OSError as error:
            sys.stderr.write(f"the fork server does not answer ({error}); starting a new Python process\n")
        else:
            return
    execute(sys.executable, [sys.executable, *argv])  # the job's own interpreter


def _run_in_fork(address: str, argv: list[str]) -> None:
    """Have the fork server run a module with this process's files, and wait for its end.

    If this process ends first, the kernel ends the fork.

    Raises:
        OSError: there is no fork server, or it made no fork.
    """
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    folder = os.getcwd()  # noqa: PTH109  # importing pathlib takes as long as all the rest
    request = "\0".join([folder, str(len(argv)), *argv, *variables]).encode(errors="surrogateescape")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [LENGTH.pack(len(request))], range(STANDARD_STREAMS))
        connection.sendall(request)
        if len(connection.recv(LENGTH.size, socket.MSG_WAITALL)) < LENGTH.size:
            raise ConnectionResetError(f"{address} has made no fork")
        connection.recv(1)


if __name__ == "__main__":
    main()
