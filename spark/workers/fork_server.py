"""Starts Python processes of a job as forks of one process that has imported everything they need.

Spark starts a Python process for each kind of call to a data source, and most of those fork another one: a dozen in a
job's first seconds, one after the other, which would all import the same modules. `ForkServer` is the job's side: it
starts the server process while Spark's JVM starts, and gives the command that Spark uses as its Python. `python -m
spark.workers.fork_server` is the server process, and `spark.workers.fork_client` is that command.

A request is one message over a Unix socket in a folder of the job's own: its length in 4 bytes, sent together with the
client's file descriptors 0, 1 and 2; then the folder to work in, the number of words that follow, a module and its
arguments, and the variables as NAME=VALUE, with a NUL between any two. The answer is the id of the forked process in 4
bytes. The fork runs the module as `python -m` does. The connection closes when the fork ends; if the client ends first,
a SIGIO ends the fork.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from bridge.runtime.temp_dir import TemporaryFolder
from spark.workers import fork_client
from spark.workers.fork_client import LENGTH, STANDARD_STREAMS, VARIABLE

WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Variables for libraries that start threads when they are imported; a fork does not have those threads."""

MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "bridge.engine.frame_headers",
    "bridge.engine.write_lane",
    "spark.source.source",
)
"""The modules that Spark runs in its Python processes, and those of the bridge that it loads there."""

_BACKLOG: Final = 64


class ForkServer:
    """The job's side of the fork server. The server ends when its standard input closes, so it ends with the job.

    Attributes:
        python: path of the command that Spark uses as its Python.
    """

    def __init__(self, parent: Path | None = None, *, can_access: Callable[[Path, int], bool] = os.access) -> None:
        """Start the server process. Clients wait until it is ready.

        Args:
            parent: the folder for temporary files; None for the usual one.
            can_access: whether this process may use a file in a mode such as `os.X_OK`.

        Raises:
            OSError: there is no folder for temporary files that may hold sockets and programs, or no process can be
                started.
        """
        self._folder = TemporaryFolder(parent)
        try:
            self.python = self._write_command(self._folder.path, can_access)
            self._process = self._start(str(self._folder.path / "socket"))
        except OSError:
            self._folder.close()
            raise

    @staticmethod
    def _write_command(folder: Path, can_access: Callable[[Path, int], bool]) -> str:
        path = folder / "python"
        command = shlex.join([sys.executable, "-IS", str(fork_client.__file__)])
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
        # Folders for temporary files are sometimes mounted with `noexec`.
        if not can_access(path, os.X_OK):
            raise PermissionError(errno.EACCES, "no program can be run there", str(folder))
        return str(path)

    @staticmethod
    def _start(address: str) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(_BACKLOG)
            process = subprocess.Popen(
                # Unbuffered: the forks inherit it, and Spark reads their output line by line.
                [sys.executable, "-u", "-m", "spark.workers.fork_server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                # PySpark's workers have the same hash seed.
                env={"PYTHONHASHSEED": "0", **os.environ, **WITHOUT_THREADS},
            )
        os.environ[VARIABLE] = address
        return process

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def close(self) -> None:
        """Let the server end; its forks go on."""
        os.environ.pop(VARIABLE, None)
        self._folder.close()
        assert self._process.stdin is not None
        self._process.stdin.close()


def main() -> None:
    """Run the server: import the modules, then fork for each request, until standard input closes."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    # A signal to all processes of the job is meant for the job, which ends this server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not preload():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listening, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if 0 in ready:
            return
        connection, _ = listening.accept()
        # A client that ends before it has its answer must not end the server.
        with connection, suppress(OSError, ValueError):
            _answer_request(connection, listening)


def preload() -> bool:
    """Import the modules, and freeze their objects for the garbage collector.

    Returns:
        Whether this process may be forked: it has no threads.
    """
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    tasks = Path("/proc/self/task")
    return not tasks.exists() or len(list(tasks.iterdir())) == 1


def _answer_request(connection: socket.socket, listening: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, STANDARD_STREAMS)
    try:
        request = _read_request(connection, head)
        pid = os.fork()
        if pid == 0:
            listening.close()
            _run_module(request, streams, connection)
    finally:
        for stream in streams:
            os.close(stream)
    connection.sendall(LENGTH.pack(pid))


def _read_request(connection: socket.socket, head: bytes) -> list[str]:
    if len(head) < LENGTH.size:
        raise ConnectionResetError("the client has sent no request")
    (length,) = LENGTH.unpack(head)
    with connection.makefile("rb") as stream:
        request = stream.read(length)
    if len(request) < length:
        raise ConnectionResetError(f"the request ends after {len(request)} of {length} bytes")
    return request.decode(errors="surrogateescape").split("\0")


def _run_module(request: list[str], streams: list[int], connection: socket.socket) -> NoReturn:
    """Run the requested module in the fork, and end the fork."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # SIGTERM stays ignored, as in processes that Spark's JVM starts: a SIGTERM to all is meant for the job.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_with_client(connection)
        folder, count, *rest = request
        argv, variables = rest[: int(count)], rest[int(count) :]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(dict(one.split("=", 1) for one in variables))
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
        module, *sys.argv[1:] = argv
        # Shows the module's name in lists of processes. Only Linux has this file.
        with suppress(OSError):
            Path("/proc/self/comm").write_text(module.rpartition("worker.")[2], encoding="ascii")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except ConnectionError:
        # Spark has closed its end, as it does when a query stops during a planner's call. Errors of ScyllaDB and Kafka
        # go to Spark as answers; they do not get here.
        pass
    except BaseException:  # noqa: BLE001  # nothing above this catches it
        traceback.print_exc()
    finally:
        os._exit(code)


def _end_with_client(connection: socket.socket) -> None:
    """Have the kernel end this process, by a SIGIO, when the client ends: Spark sees the client as this process."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    # A client that has ended already sends no signal. A client sends nothing after its request.
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)
    # Children of this process must not keep the connection open.
    os.register_at_fork(after_in_child=connection.close)


if __name__ == "__main__":
    main()
