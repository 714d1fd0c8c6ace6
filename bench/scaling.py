"""`python -m bench.scaling`: how throughput grows with lanes over the executors of a Spark standalone cluster.

Starts a local stack, a master and workers, fills a log once, and drains it with one number of lanes after the other,
each time with fresh executors; every change must be there once. A JSON line for each, then a table, on standard output.
Exit statuses: as of `bench.command`.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench import command, figures, load
from bench.bridge_run import Servers
from bench.drain import Drained, drained
from bench.figures import Figures
from bench.load import Cluster
from bench.place import a_stack, machine_now, say, server_pids
from bench.standalone import StandaloneCluster
from bench.tables import TABLES
from bench.watch import Watch
from sandbox.stack.ports import LOOPBACK
from sandbox.stack.stack import LocalStack
from spark.jvm.launcher import java_options

_MILLION: Final = 1_000_000
_EXECUTORS: Final = "executors"
_EXECUTOR_MIB: Final = 512
_WORKER_MIB: Final = 1024
_COLUMNS: Final = (
    ("lanes", "lanes"),
    ("changes_per_s", "changes/s"),
    ("of_first", "of the first"),
    ("seconds", "s"),
    ("cpu_s_per_million", "CPU s/million"),
    ("cpu_s_per_million_by.driver", "driver"),
    ("cpu_s_per_million_by.executors_jvm", "executors' JVMs"),
    ("cpu_s_per_million_by.executors_python", "their Python"),
    ("cores.job", "cores: job"),
    ("cores.cql", "CQL server"),
    ("cores.kafka", "Kafka"),
    ("cores.machine", "machine"),
    ("executors_peak_pss_mib", "executors' PSS MiB"),
    ("startup_s", "start-up s"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    return command.carry_out(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    with a_stack(arguments.folder) as stack:
        lines, machine = _measure(stack, arguments)
    table = figures.markdown_table if arguments.markdown else figures.plain_table
    print(f"\n{table(lines, _COLUMNS)}\n{figures.machine_line([machine])}")


def _measure(stack: LocalStack, arguments: argparse.Namespace) -> tuple[list[Figures], Figures]:
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    work = stack.folder / "bench"
    session = load.connect(servers.cql)
    try:
        say(f"{arguments.table}: filling the log with {arguments.changes:,} changes")
        written = load.load(session, arguments.table, changes=arguments.changes, cluster=Cluster())
    finally:
        session.close()
    machine = machine_now()
    place = work / "standalone"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    lines: list[Figures] = []
    say(f"starting a master and {arguments.workers} workers with {arguments.cores} core each")
    with StandaloneCluster(
        place, workers=arguments.workers, cores=arguments.cores, memory_mib=_WORKER_MIB
    ) as cluster, Watch(
        below={_EXECUTORS: cluster.worker_pids},
        of=server_pids(stack),
    ) as watch:  # fmt: skip
        for lanes in arguments.lanes:
            say(f"{arguments.table}: draining it with {lanes} lanes on {cluster.url}")
            found = drained(
                work, servers, arguments.table, written, lanes=lanes, settings=_settings(cluster, arguments.cores),
                timeout_s=arguments.drain_timeout,
            )  # fmt: skip
            line = {"table": arguments.table, "lanes": lanes, **_figures(found, watch)}
            line["of_first"] = found.per_s / lines[0]["changes_per_s"] if lines else 1.0
            lines.append(line)
            print(figures.json_line(line), flush=True)
    return lines, machine


def _settings(cluster: StandaloneCluster, cores: int) -> Mapping[str, Any]:
    """What the configuration of a job on that cluster has besides; a new one, since a run takes it apart."""
    properties = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": f"{_EXECUTOR_MIB}m",
        "spark.executor.cores": cores,
        # As the driver's own: other collectors and compilers have threads that compete for the cores.
        "spark.executor.extraJavaOptions": shlex.join(java_options("")),
    }
    return {"spark": {"master": cluster.url, "properties": properties}}


def _figures(found: Drained, watch: Watch) -> Figures:
    seconds, millions = found.last_s - found.settled_s, found.settled_changes / _MILLION
    by = _cpu_s(found, watch, found.settled_s, found.last_s)
    job_s = sum(by.values())
    return {
        "changes": found.changes,
        "changes_per_s": found.per_s,
        "seconds": seconds,
        "mib_per_s": found.per_s * found.size_bytes / found.changes / 1024 / 1024,
        "startup_s": found.first_s - found.measured.began_s,
        "cpu_s_startup_by": _cpu_s(found, watch, found.measured.began_s, found.first_s),
        "cpu_s_per_million": job_s / millions,
        "cpu_s_per_million_by": {name: cpu_s / millions for name, cpu_s in by.items()},
        "cores": {**watch.cores_between(found.settled_s, found.last_s), "job": job_s / seconds},
        "executors_peak_pss_mib": watch.peak_pss_mib(found.measured.began_s, found.measured.ended_s),
        "driver_peak_pss_mib": found.measured.peak_pss_mib,
    }


def _cpu_s(found: Drained, watch: Watch, start_s: float, end_s: float) -> dict[str, float]:
    """CPU seconds of the job's processes between two instants: where the driver is, and on executors."""
    whole_s = watch.cpu_s_between(_EXECUTORS, start_s, end_s)
    python_s = watch.cpu_s_between(f"{_EXECUTORS}.workers", start_s, end_s)
    return {
        "driver": found.measured.cpu_s_between(start_s, end_s),
        "executors_jvm": whole_s - python_s,
        "executors_python": python_s,
    }


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("bench.scaling", "Measure lanes over the executors of a standalone cluster.")
    command.add_drain(parser, changes=400_000, timeout_s=240.0)
    parser.add_argument("--table", choices=TABLES, default="narrow", help="which table")
    parser.add_argument(
        "--lanes", type=_numbers, default=(1, 2, 4), help="numbers of lanes, separated by commas; one drain for each"
    )
    parser.add_argument("--workers", type=command.count, default=2, help="workers, so executors")
    parser.add_argument(
        "--cores", type=command.count, default=1, help="cores of each, so lanes that it works at a time"
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"numbers of lanes, as 1,2,4, and not {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
