"""Python processes of a job that start warm: forked from one that has imported already what all of them need.

Spark starts a Python process for each kind of call to a data source, and most of those fork another one: a dozen in a
job's first seconds, one after the other, which would all import the same. `Nursery` is the job's side: a process that
imports while Spark's JVM comes up, and a command that Spark takes for its Python. `python -m
spark.workers.fork_server` is that
process, `spark.workers.fork_client` that command.

A request is one message over a Unix socket in a folder of the job's own, behind its length as 4 bytes, and with it the
file descriptors 0, 1 and 2 of who asks: the folder to work in, how many words follow, a module and its arguments, the
variables as NAME=VALUE, with a NUL between any two. The answer is the id of the forked process, 4 bytes; it runs the
module as `python -m` does. The connection ends when it ends; should it be the other way about, a SIGIO ends it.
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
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from bridge.runtime.temp_dir import TemporaryFolder
from spark.workers import fork_client
from spark.workers.fork_client import LENGTH, PORTS, VARIABLE

WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""For libraries that would start threads when they are imported, which a fork does not take along."""

MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "bridge.engine.frame_headers",
    "bridge.engine.write_lane",
    "spark.source.source",
)
"""What Spark runs in its Python processes, and what of ours it loads there."""

_BACKLOG: Final = 64


class Nursery:
    """The warm process, as the job sees it. It ends with the job, however that ends, as its standard input does."""

    def __init__(self) -> None:
        """Start it; it need not be ready for what asks it: that waits.

        Raises:
            OSError: there is no folder for temporary files, or none that may hold sockets and programs; or no process
                can be started.
        """
        self._folder = TemporaryFolder()
        try:
            self.python = self._make_command(self._folder.path)
            self._process = self._start(str(self._folder.path / "nursery"))
        except OSError:
            self._folder.close()
            raise

    @staticmethod
    def _make_command(folder: Path) -> str:
        path = folder / "python"
        command = shlex.join([sys.executable, "-IS", str(fork_client.__file__)])
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
        # Also where the file system is mounted with `noexec`, as folders for temporary files sometimes are.
        if not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, "no program can be run there", str(folder))
        return str(path)

    @staticmethod
    def _start(address: str) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(_BACKLOG)
            process = subprocess.Popen(
                # Unbuffered, because what its forks print is read line by line.
                [sys.executable, "-u", "-m", "spark.workers.fork_server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                # The hash seed is as PySpark has it in its workers.
                env={"PYTHONHASHSEED": "0", **os.environ, **WITHOUT_THREADS},
            )
        os.environ[VARIABLE] = address
        return process

    @property
    def pid(self) -> int:
        """The warm process's id."""
        return self._process.pid

    def close(self) -> None:
        """Let it end; what it has forked goes on."""
        os.environ.pop(VARIABLE, None)
        self._folder.close()
        assert self._process.stdin is not None
        self._process.stdin.close()


def main() -> None:
    """The process itself: import, then fork for whoever asks, until standard input ends."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    # A signal to all processes of the job means the job, which ends us.
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
        # Whoever asks and ends before it has the answer is none of ours to end for.
        with connection, suppress(OSError, ValueError):
            _serve(connection, listening)


def preload() -> bool:
    """Import it all and take it out of the garbage collector's sight; says whether this process may be forked."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    tasks = Path("/proc/self/task")
    return not tasks.exists() or len(list(tasks.iterdir())) == 1


def _serve(connection: socket.socket, listening: socket.socket) -> None:
    head, ports, _, _ = socket.recv_fds(connection, LENGTH.size, PORTS)
    try:
        request = _request(connection, head)
        pid = os.fork()
        if pid == 0:
            listening.close()
            _become(request, ports, connection)
    finally:
        for port in ports:
            os.close(port)
    connection.sendall(LENGTH.pack(pid))


def _request(connection: socket.socket, head: bytes) -> list[str]:
    if len(head) < LENGTH.size:
        raise ConnectionResetError("nothing was asked for")
    (length,) = LENGTH.unpack(head)
    with connection.makefile("rb") as stream:
        request = stream.read(length)
    if len(request) < length:
        raise ConnectionResetError(f"the request ends after {len(request)} of {length} bytes")
    return request.decode(errors="surrogateescape").split("\0")


def _become(request: list[str], ports: list[int], connection: socket.socket) -> NoReturn:
    """In the fork: what Spark meant to start."""
    code = 1
    try:
        for number, port in enumerate(ports):
            os.dup2(port, number)
            os.close(port)
        # SIGTERM stays ignored, as it is by what Spark's JVM starts itself: sent to all, it means the job.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_with(connection)
        folder, count, *rest = request
        words, variables = rest[: int(count)], rest[int(count) :]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(dict(one.split("=", 1) for one in variables))
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
        module, *sys.argv[1:] = words
        # For whoever looks at the machine's processes; other systems than Linux have no such files.
        with suppress(OSError):
            Path("/proc/self/comm").write_text(module.rpartition("worker.")[2], encoding="ascii")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except ConnectionError:
        # Spark has closed its end, as it does to a planner when a query is stopped in the midst of a question: nobody
        # waits for the answer. Of servers that can't be reached Spark is told; that does not come here.
        pass
    except BaseException:  # noqa: BLE001  # the last word of a process
        traceback.print_exc()
    finally:
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """Have the kernel end us, by a SIGIO, when the other side ends: it stands for us."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    # What ended before that sends no signal any more. It says nothing after its request.
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)
    # Processes that we fork must not keep it open.
    os.register_at_fork(after_in_child=connection.close)


if __name__ == "__main__":
    main()
