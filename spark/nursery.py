"""Python processes of a job that start warm: forked from one that has imported already what all of them need.

Spark starts a Python process for each kind of call to a data source, and each of those forks another one: a dozen in a
job's first seconds, which would all import the same. `Nursery` is the job's side: a process that imports while Spark's
JVM comes up. `python -m spark.nursery` is that process. `spark.daemon` is what Spark starts; it asks here.

A request is one message over a Unix socket in a folder of the job's own: a JSON object with `arguments`, `environment`
and `folder`, behind its length as 4 bytes, and with it the file descriptors 0, 1 and 2 of the process that asks. The
answer is the id of the forked process, 4 bytes; the connection ends when that ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

VARIABLE: Final = "SCYLLA_CDC_BRIDGE_NURSERY"
"""Names the socket to the job's processes."""

WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Libraries that would start threads when they are imported, which a fork does not take along."""

MODULES: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "spark.sink",
    "spark.source",
)
"""What Spark runs in its Python processes, and what of ours it loads there."""

_LENGTH: Final = struct.Struct("!I")
_PORTS: Final = 3
_BACKLOG: Final = 64


def preload() -> bool:
    """Import it all and take it out of the garbage collector's sight; says whether this process may be forked."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    return _is_single_threaded()


def _is_single_threaded() -> bool:
    tasks = Path("/proc/self/task")
    return not tasks.exists() or len(list(tasks.iterdir())) == 1


class Nursery:
    """The warm process, as the job sees it. It ends with the job, however that ends, as its standard input does."""

    def __init__(self) -> None:
        """Start it; it need not be ready for what asks it: that waits.

        Raises:
            OSError: there is no folder for temporary files, or no process can be started.
        """
        self._folder = tempfile.mkdtemp(prefix="scylla-cdc-bridge-")
        address = str(Path(self._folder, "nursery"))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(_BACKLOG)
            self._process = subprocess.Popen(
                # Unbuffered, because what its forks print is read line by line.
                [sys.executable, "-u", "-m", "spark.nursery", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                # The hash seed is as PySpark has it in its workers.
                env={"PYTHONHASHSEED": "0", **os.environ, **WITHOUT_THREADS},
            )
        os.environ[VARIABLE] = address

    @property
    def pid(self) -> int:
        """The warm process's id."""
        return self._process.pid

    def close(self) -> None:
        """Let it end; what it has forked goes on."""
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(self._folder, ignore_errors=True)
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
            request, ports = _request(connection)
            pid = os.fork()
            if pid == 0:
                listening.close()
                _become(request, ports, connection)
            for port in ports:
                os.close(port)
            connection.sendall(_LENGTH.pack(pid))


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, ports, _, _ = socket.recv_fds(connection, _LENGTH.size, _PORTS)
    (length,) = _LENGTH.unpack(head)
    with connection.makefile("rb") as stream:
        request: dict[str, Any] = json.loads(stream.read(length))
    return request, ports


def _become(request: dict[str, Any], ports: list[int], connection: socket.socket) -> NoReturn:
    """In the fork: what Spark meant to start. The connection stays open for as long as this lives."""
    code = 1
    try:
        for number, port in enumerate(ports):
            os.dup2(port, number)
            os.close(port)
        # Workers that the fork makes must not keep it open.
        os.register_at_fork(after_in_child=connection.close)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["arguments"]
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # the last word of a process
        traceback.print_exc()
    finally:
        connection.close()
        os._exit(code)


def run() -> None:
    """PySpark's own daemon, which takes over this process."""
    import_module("pyspark.daemon").manager()


def ask(address: str) -> int:
    """Have this process's work done by a fork of the warm one, and wait for its end; gives an exit status.

    A SIGTERM is handed on.

    Raises:
        OSError: there is no warm process (any more), or it declined.
    """
    request = json.dumps(
        {"arguments": sys.argv, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
    ).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [_LENGTH.pack(len(request))], range(_PORTS))
        connection.sendall(request)
        answer = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
        if len(answer) < _LENGTH.size:
            raise ConnectionResetError(f"nothing was forked by {address}")
        (pid,) = _LENGTH.unpack(answer)

        def hand_on(number: int, _frame: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        signal.signal(signal.SIGTERM, hand_on)
        connection.recv(1)
    return 0


if __name__ == "__main__":
    main()
