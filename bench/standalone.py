"""A Spark standalone cluster on this machine, from PySpark's own jars: a master and workers, on loopback only."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from bench.bridge_run import environment
from bench.errors import BenchError
from sandbox.stack import processes
from sandbox.stack.ports import LOOPBACK, free_ports
from sandbox.stack.processes import ProcessIdentity
from spark.jvm.launcher import MODULE_OPTIONS, class_path, find_java, spark_folder

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""They carry no data: what starts quickly leaves more of the machine to what is measured."""
_READY_WITHIN_S: Final = 90.0
_ANSWER_WITHIN_S: Final = 5.0
_STOP_GRACE_S: Final = 10.0


class StandaloneCluster:
    """Use it in a `with` statement: entering it waits until every worker is known to the master.

    Attributes:
        url: what `spark.master` takes.
        worker_pids: the processes below which executors come and go.
    """

    def __init__(self, folder: Path, *, workers: int, cores: int, memory_mib: int) -> None:
        """Prepare; nothing is started yet.

        Args:
            folder: gets logs and the executors' working folders.
            workers: how many.
            cores: of each, for executors.
            memory_mib: of each, for executors.
        """
        self._folder = folder
        self._workers = workers
        self._cores, self._memory_mib = cores, memory_mib
        port, self._page = free_ports(2)
        self.url = f"spark://{LOOPBACK}:{port}"
        self.worker_pids: list[int] = []
        self._master = [_MASTER, "--host", LOOPBACK, "--port", str(port), "--webui-port", str(self._page)]
        self._started = ExitStack()

    def __enter__(self) -> Self:
        with self._started:
            self._start("master", self._master)
            self._await(0)
            for number in range(self._workers):
                self.worker_pids.append(self._start(f"worker-{number}", self._worker(number)).pid)
            self._await(self._workers)
            self._started = self._started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _worker(self, number: int) -> list[str]:
        return [
            _WORKER, "--host", LOOPBACK, "--webui-port", "0", "--cores", str(self._cores),
            "--memory", f"{self._memory_mib}m", "--work-dir", str(self._folder / f"worker-{number}"), self.url,
        ]  # fmt: skip

    def _start(self, name: str, words: list[str]) -> ProcessIdentity:
        spark = spark_folder()
        command = [find_java(), *_OPTIONS, *MODULE_OPTIONS, "-cp", os.pathsep.join(class_path(spark / "jars")), *words]
        process = processes.start(
            command,
            log=self._folder / f"{name}.log",
            cwd=self._folder,
            # What Spark's scripts set, for executors; and no interface but this one, for their pages either.
            environment={
                **environment(),
                "SPARK_HOME": str(spark),
                "SPARK_SCALA_VERSION": _scala_version(spark / "jars"),
                "SPARK_LOCAL_IP": LOOPBACK,
            },
        )
        self._started.callback(processes.stop, process, grace_s=_STOP_GRACE_S)
        return process

    def _await(self, workers: int) -> None:
        if not processes.wait_until(lambda: self._alive() == workers, _READY_WITHIN_S):
            logs = sorted(self._folder.glob("*.log"))
            raise BenchError(
                f"Spark's master at {self.url} does not know {workers} workers after {_READY_WITHIN_S:.0f} s."
                + "".join(map(processes.log_tail, logs))
            )

    def _alive(self) -> int | None:
        """How many workers the master knows; None when it does not answer."""
        with suppress(URLError, ConnectionError, TimeoutError):
            with urlopen(f"http://{LOOPBACK}:{self._page}/json/", timeout=_ANSWER_WITHIN_S) as answer:
                found: dict[str, Any] = json.load(answer)
            alive: int = found["aliveworkers"]
            return alive
        return None


def _scala_version(jars: Path) -> str:
    """Of the jars, as 2.13."""
    (library,) = jars.glob("scala-library-*.jar")
    return ".".join(library.stem.removeprefix("scala-library-").split(".")[:2])
