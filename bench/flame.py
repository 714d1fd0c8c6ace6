"""`python -m bench.flame --py-spy PATH`: where the CPU goes while a log is drained, as a flame graph and as tables.

Fills a log, drains it once, and looks on from the first record to the end: at the stacks of the job's Python processes,
by py-spy (a development tool that stays outside of the project's environment), and at every thread's CPU time. Exit
statuses: as of `bench.command`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import command, figures, load, stacks
from bench.bridge_run import ROOT, BridgeRun, Servers
from bench.drain import Drained, drained
from bench.errors import BenchError
from bench.figures import Figures
from bench.load import Cluster
from bench.place import a_stack, machine_now, say
from bench.processes import OTHER_PYTHON, ThreadTimes, descendants, everyone, role
from bench.stacks import Stack
from bench.topics import Beginning
from sandbox.stack.stack import LocalStack

_MILLION: Final = 1_000_000
_LOOK_EVERY_S: Final = 0.2
_WRITES_WITHIN_S: Final = 60.0
_WORTH_A_ROW: Final = 0.1
"""us of CPU a change; what takes less stands in one row together."""
_REST: Final = "other"
_SEEN: Final = "workers"
"""The processes whose stacks are looked at: of the others' time little is Python's."""
_COLUMNS: Final = (
    ("process", "process"),
    ("thread", "thread"),
    ("stage", "stage"),
    ("us_per_change", "us of CPU a change"),
    ("percent", "% of all"),
)


def _in(*places: str) -> Callable[[str], bool]:
    marks = tuple(f"({place}" for place in places)
    return lambda frame: any(mark in frame for mark in marks)


STAGES: Final = (
    ("importing", _in("<frozen importlib")),
    ("cells to Avro: compiled loops", _in("<string>")),
    ("receiving: driver, pages", _in("cassandra/", "bridge/adapters/scylla", "bridge/adapters/change_log")),
    ("receiving: driver, pages", _in("bridge/adapters/results", "bridge/monitoring/observed", "bridge/captured")),
    ("Kafka client: produce, commit", _in("bridge/adapters/kafka")),
    ("records: keys, headers, transactions", _in("bridge/lane_publisher", "spark/lane_output", "bridge/publishing")),
    ("merging streams", _in("bridge/lane_reader", "bridge/schema_switch")),
    ("plain rows: choosing, sorting", _in("bridge/plain_rows", "bridge/model/")),
    ("rows to changes, general path", _in("bridge/assembly", "bridge/encoding", "schemas/")),
    ("key checks", _in("bridge/integrity")),
    ("Spark's Python", _in("pyspark/", "spark/", "py4j/")),
)
"""What a stack counts as: the innermost of its frames that one of these takes, decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    return command.carry_out(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    _look_for(arguments.py_spy)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with a_stack(arguments.folder) as stack:
        machine = machine_now()
        _measure(stack, arguments)
    print(figures.machine_line([machine]))


def _look_for(py_spy: str) -> None:
    if shutil.which(py_spy) is None:
        raise BenchError(f"there is no {py_spy}: install py-spy into an environment of its own")


class _Onlooker:
    """Looks on at a run from its first record to its end."""

    def __init__(self, kafka: str, py_spy: str, rate: int, output: Path) -> None:
        self._kafka = kafka
        self._command = [
            py_spy, "record", "--subprocesses", "--threads", "--function", "--format", "raw", "--rate", str(rate),
            "--duration", "unlimited", "--output", str(output),
        ]  # fmt: skip
        self._output = output
        self._threads = ThreadTimes()
        self._looks: list[tuple[float, dict[tuple[str, str], float]]] = []
        self.roles: dict[int, str] = {}

    def __call__(self, run: BridgeRun) -> None:
        with Beginning(self._kafka, run.topic) as beginning:
            while not run.has_ended and not beginning.is_over():
                self._look(run)
                time.sleep(_LOOK_EVERY_S)
        with self._output.with_suffix(".log").open("wb") as log:
            spy = subprocess.Popen([*self._command, "--pid", str(run.meter_pid)], stdout=log, stderr=log)
            try:
                while not run.has_ended:
                    self._look(run)
                    time.sleep(_LOOK_EVERY_S)
                # It ends with the process that it was told to look at.
                spy.wait(_WRITES_WITHIN_S)
            except subprocess.TimeoutExpired:
                raise BenchError(f"py-spy did not end within {_WRITES_WITHIN_S:.0f} s") from None
            finally:
                if spy.poll() is None:
                    spy.kill()
                    spy.wait()

    def stacks(self) -> list[Stack]:
        """What py-spy saw of the job's Python workers."""
        try:
            found = stacks.parse(self._output.read_text(encoding="utf-8"), str(ROOT))
        except (FileNotFoundError, ValueError) as error:
            said = self._output.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
            raise BenchError(f"py-spy gave no stacks ({error}). It says:\n{said}") from error
        return [one for one in found if self.roles.get(one.pid) == _SEEN and not one.waits]

    def thread_seconds(self, start_s: float, end_s: float) -> Mapping[tuple[str, str], float]:
        """CPU seconds by role and thread between two instants, to a look's distance."""
        before = max((one for one in self._looks if one[0] <= start_s), default=self._looks[0])[1]
        after = min((one for one in self._looks if one[0] >= end_s), default=self._looks[-1])[1]
        return {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}

    def _look(self, run: BridgeRun) -> None:
        job = run.job_pid
        if job is None:
            return
        tree = descendants(run.meter_pid, everyone())
        for one in tree:
            self.roles[one.pid] = role(one, job) or self.roles.get(one.pid, "")
        self._threads.look(tree, job)
        self._looks.append((time.time(), self._threads.totals()))


def _measure(stack: LocalStack, arguments: argparse.Namespace) -> None:
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    work = stack.folder / "bench"
    work.mkdir(parents=True, exist_ok=True)
    session = load.connect(servers.cql)
    try:
        for table in arguments.tables:
            say(f"{table}: filling the log with {arguments.changes:,} changes")
            written = load.load(session, table, changes=arguments.changes, cluster=Cluster())
            say(f"{table}: draining it with {arguments.lanes} lanes")
            onlooker = _Onlooker(servers.kafka, arguments.py_spy, arguments.rate, work / f"{table}.stacks")
            found = drained(
                work, servers, table, written, lanes=arguments.lanes, settings={}, timeout_s=arguments.drain_timeout,
                meanwhile=onlooker,
            )  # fmt: skip
            _tell(arguments, table, found, onlooker)
    finally:
        session.close()


def _tell(arguments: argparse.Namespace, table: str, found: Drained, onlooker: _Onlooker) -> None:
    seen = onlooker.stacks()
    graph = stacks.flame_graph(
        stacks.merged(seen, onlooker.roles),
        f"{table}: the job's Python workers while {found.changes:,} changes are drained with {arguments.lanes} lanes",
    )
    path = arguments.output / f"flame-graph-{table}.svg"
    path.write_text(graph, encoding="utf-8")
    lines = _lines(found, seen, onlooker)
    all_us = found.cpu_s_per_million
    left_us = max(0.0, all_us - sum(line["us_per_change"] for line in lines))
    lines.append({"process": "all", "thread": _REST, "stage": "", "us_per_change": left_us})
    for line in lines:
        line["percent"] = 100 * line["us_per_change"] / all_us
    print(f"{table}: {found.per_s:,.0f} changes/s, {all_us:.2f} us of CPU a change without start-up\n")
    print(figures.markdown_table(lines, _COLUMNS) if arguments.markdown else figures.plain_table(lines, _COLUMNS))
    say(f"{table}: {path}")


def _lines(found: Drained, seen: Sequence[Stack], onlooker: _Onlooker) -> list[Figures]:
    """Each thread's time a change; those of workers' own Python divided by what their stacks say."""
    lines: list[Figures] = []
    for (process, thread), seconds in onlooker.thread_seconds(found.settled_s, found.last_s).items():
        us = seconds / found.settled_changes * _MILLION
        own = [one for one in seen if _is_of(one, process, thread)]
        shares = stacks.by_stage(own, STAGES, _REST) if own else {"": 1.0}
        lines += [
            {"process": process, "thread": thread, "stage": stage, "us_per_change": us * share}
            for stage, share in shares.items()
            if us * share >= _WORTH_A_ROW
        ]
    return sorted(lines, key=lambda line: -line["us_per_change"])


def _is_of(stack: Stack, process: str, thread: str) -> bool:
    """Whether a stack is of the threads that `ThreadTimes` calls so."""
    if process != _SEEN or thread not in ("main", OTHER_PYTHON):
        return False
    return (thread == "main") == (stack.thread == "MainThread")


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("bench.flame", "Show where the CPU goes.")
    command.add_tables(parser, ("narrow",))
    command.add_drain(parser, changes=500_000, timeout_s=240.0)
    parser.add_argument("--py-spy", default="py-spy", help="the py-spy command")
    parser.add_argument("--lanes", type=command.count, default=2, help="lanes of the bridge")
    parser.add_argument("--rate", type=command.count, default=250, help="stacks a second of each thread")
    parser.add_argument("--output", type=Path, default=ROOT / "bench", help="folder for the flame graphs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
