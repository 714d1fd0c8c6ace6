"""What Spark starts in place of Python: has a warm process do the work (`fork_server`), or becomes Python itself.

Run by its path, without `site`, so that it costs next to nothing: only the standard library is imported here.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Final

VARIABLE: Final = "SCYLLA_CDC_BRIDGE_NURSERY"
"""Names the nursery's socket to the job's processes."""

LENGTH: Final = struct.Struct("!I")
PORTS: Final = 3
_MODULE: Final = "-m"
_OURS: Final = {"pyspark.daemon": "spark.workers.daemon"}
"""For planners Spark starts PySpark's daemon, whatever `spark.python.daemon.module` says. Ours prints no tracebacks
of answers that nobody waits for any more."""


def main() -> None:
    """Do what `python ARGUMENTS...` does, with our daemon in place of PySpark's; ends when that ends."""
    address = os.environ.get(VARIABLE)
    words = sys.argv[1:]
    if words[:1] == [_MODULE]:
        words[1:2] = [_OURS.get(name, name) for name in words[1:2]]
    if address is not None and words[:1] == [_MODULE]:
        try:
            _ask(address, words[1:])
        except OSError as error:
            sys.stderr.write(f"no warm Python process ({error}); starting a cold one\n")
        else:
            return
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606  # the job's own interpreter


def _ask(address: str, words: list[str]) -> None:
    """Have a module run by a fork of the warm process, which gets our files, and wait for its end.

    Should this process end before, so does the fork.

    Raises:
        OSError: there is no warm process (any more), or it declined.
    """
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    folder = os.getcwd()  # noqa: PTH109  # importing pathlib takes as long as all the rest
    request = "\0".join([folder, str(len(words)), *words, *variables]).encode(errors="surrogateescape")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [LENGTH.pack(len(request))], range(PORTS))
        connection.sendall(request)
        if len(connection.recv(LENGTH.size, socket.MSG_WAITALL)) < LENGTH.size:
            raise ConnectionResetError(f"nothing was forked by {address}")
        connection.recv(1)


if __name__ == "__main__":
    main()
