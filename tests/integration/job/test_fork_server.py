"""Python processes that are forked from a warm one: what Spark meant to start, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark.workers.fork_client import LENGTH, VARIABLE
from spark.workers.fork_server import ForkServer
from tests.integration.support.running import wait_for

pytestmark = pytest.mark.integration
_MODULE = "pyspark.sql.worker.create_data_source"


@pytest.fixture(scope="module")
def warm() -> Iterator[tuple[ForkServer, psutil.Process]]:
    """A fork server and its process."""
    made = ForkServer()
    process = psutil.Process(made.pid)
    yield made, process
    made.close()
    process.wait(10)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for Unix sockets, whose paths may have 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:
        yield Path(folder)


class Daemon:
    """What Spark starts, as Spark starts it."""

    def __init__(self, python: str, folder: Path, **variables: str) -> None:
        self.folder = folder
        environment = os.environ | {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder)}
        self.process = subprocess.Popen(
            [python, "-m", "pyspark.daemon", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | variables,
        )

    def socket(self) -> Path:
        """Where it says that it listens."""
        assert self.process.stdout is not None
        length = int.from_bytes(self.process.stdout.read(4), "big")
        return Path(self.process.stdout.read(length).decode())

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


def test_other_words_are_pythons(warm: tuple[ForkServer, psutil.Process]) -> None:
    """Spark asks for the interpreter's version this way."""
    words = [warm[0].python, "-c", "import sys; print(sys.version_info[0], sys.executable)"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
    assert said.split() == ["3", sys.executable]


def _forks(process: psutil.Process) -> list[psutil.Process]:
    return process.children()


def test_fork_is_the_daemon_that_was_asked_for(warm: tuple[ForkServer, psutil.Process], short_path: Path) -> None:
    """A fork has the variables and the streams of the client, and ends when its input ends."""
    with Daemon(warm[0].python, short_path) as daemon:
        assert daemon.socket().parent == short_path
        (fork,) = _forks(warm[1])
        assert fork.num_threads() == 1
        assert daemon.process.stdin is not None
        daemon.process.stdin.close()
        assert daemon.process.wait(10) == 0
        wait_for("the fork's end", lambda: not _forks(warm[1]), 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_fork_ends_with_what_spark_started(
    warm: tuple[ForkServer, psutil.Process], short_path: Path, number: signal.Signals
) -> None:
    """Spark ends its processes by signals; the forks end with them."""
    with Daemon(warm[0].python, short_path) as daemon:
        daemon.socket()
        assert len(_forks(warm[1])) == 1
        daemon.process.send_signal(number)
        daemon.process.wait(10)
        wait_for("the fork's end", lambda: not _forks(warm[1]), 10)


def test_who_ends_too_soon_leaves_nothing(warm: tuple[ForkServer, psutil.Process], short_path: Path) -> None:
    """A client that ends before its request, or before the fork has started, does not disturb the others."""
    address = str(Path(warm[0].python).with_name("socket"))
    reading, writing = os.pipe()
    for request in (b"", _request(short_path)):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(address)
            if request:
                socket.send_fds(asking, [LENGTH.pack(len(request))], [reading, 1, 2])
                asking.sendall(request)
    with Daemon(warm[0].python, short_path) as daemon:
        daemon.socket()
        wait_for("the end of the fork that nobody wants", lambda: len(_forks(warm[1])) == 1, 10)
    os.close(reading)
    os.close(writing)


def _request(folder: Path) -> bytes:
    variables = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder)}
    words = ["pyspark.daemon", _MODULE]
    return "\0".join([str(folder), str(len(words)), *words, *map("=".join, variables.items())]).encode()


def test_planner_that_spark_leaves_ends_in_silence(
    warm: tuple[ForkServer, psutil.Process], short_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A planner whose query is stopped during a request ends without a traceback."""
    path = str(short_path / "planner")
    environment = os.environ | {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_PATH": path}
    with socket.socket(socket.AF_UNIX) as spark:
        spark.bind(path)
        spark.listen()
        spark.settimeout(20)
        words = [warm[0].python, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
        with subprocess.Popen(words, env=environment) as planner:
            connection, _ = spark.accept()
            assert len(connection.recv(4, socket.MSG_WAITALL)) == 4
            connection.close()
            assert planner.wait(20) == 0
    wait_for("the fork's end", lambda: not _forks(warm[1]), 10)
    assert capfd.readouterr().err == ""


def test_worker_that_spark_leaves_ends_in_silence(
    warm: tuple[ForkServer, psutil.Process], short_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker whose query restarts after a failure ends without a traceback."""
    # As Spark sets it.
    with Daemon(warm[0].python, short_path, PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="1") as daemon:
        path = str(daemon.socket())
        with socket.socket(socket.AF_UNIX) as spark:
            spark.connect(path)
            worker = psutil.Process(int.from_bytes(spark.recv(4, socket.MSG_WAITALL), "big"))
        psutil.wait_procs([worker], timeout=20)
        assert not worker.is_running()
    wait_for("the fork's end", lambda: not _forks(warm[1]), 10)
    assert capfd.readouterr().err == ""


def test_without_a_warm_process_a_cold_one_does_it(warm: tuple[ForkServer, psutil.Process], short_path: Path) -> None:
    """Without the fork server, a new process does the work."""
    with Daemon(warm[0].python, short_path, **{VARIABLE: str(short_path / "nobody")}) as daemon:
        assert daemon.socket().parent == short_path
        assert _forks(warm[1]) == []
        assert daemon.process.stdin is not None
        daemon.process.stdin.close()
        daemon.process.wait(10)


def test_ends_with_the_job(short_path: Path) -> None:
    """The fork server ends with the job, also if the job is killed, because its standard input ends."""
    script = "from spark.workers.fork_server import ForkServer; print(ForkServer().pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        process = psutil.Process(int(job.stdout.readline()))
        job.kill()
        process.wait(20)
