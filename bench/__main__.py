"""`python -m bench`: measure the bridge on this machine; JSON lines, then a table, on standard output.

Exit statuses: 0 measured; 1 a measurement failed, or its result is wrong; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench import figures, load, stages
from bench.bridge_run import ROOT, Servers
from bench.drain import drain
from bench.errors import BenchError
from bench.figures import Figures
from bench.latency import latency
from bench.load import Cluster
from bench.tables import DEFAULT_TABLES, TABLES
from bridge import logs
from bridge.errors import BridgeError
from bridge.local.errors import LocalStackError
from bridge.local.jars import JARS_VARIABLE
from bridge.local.stack import LocalStack
from spark.gateway import ARCHIVE

_JARS: Final = ROOT / ".local-stack" / "jars"
_DEFAULT_FOLDER: Final = ROOT / ".local-stack" / "bench"
_PACKAGES: Final = ("pyspark", "scylla-driver", "confluent-kafka", "fastavro", "pyarrow")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    logs.setup("warning")
    # So that an ended benchmark cleans up after itself, however it was asked to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lines: list[Figures] = []
    try:
        with _stack(arguments.folder) as stack:
            for table in arguments.tables:
                lines.append(_measure(stack, table, arguments))
                print(figures.json_line(lines[-1]), flush=True)
    except (BenchError, BridgeError, LocalStackError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    machine = figures.machine_line([line["machine"] for line in lines])
    print(f"\n{figures.plain_table(lines)}\n{machine}")
    if arguments.markdown:
        print(f"\n{figures.markdown_table(lines)}\n\n{machine}")
    return 0


def _measure(stack: LocalStack, table: str, arguments: argparse.Namespace) -> Figures:
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    work = stack.folder / "bench"
    lanes: int = arguments.lanes
    settings: dict[str, Any] = {"reading": {"confidence_ms": arguments.confidence}}
    cluster = Cluster(arguments.vnodes, arguments.shards)
    line: Figures = {"table": table}
    session = load.connect(servers.cql)
    try:
        began_s = time.monotonic()
        _say(f"{table}: filling the log with {arguments.changes:,} changes")
        written = load.load(session, table, changes=arguments.changes, cluster=cluster)
        _say(f"{table}: filled in {time.monotonic() - began_s:.0f} s; draining it with {lanes} lanes")
    finally:
        session.close()
    machine = _machine()
    line |= drain(work, servers, table, written, lanes=lanes, settings=settings, timeout_s=arguments.drain_timeout)
    _say(f"{table}: {line['changes_per_s']:,.0f} changes/s, every change there once")
    if arguments.stages:
        _say(f"{table}: each stage alone")
        found = stages.measure(servers, table, changes=arguments.changes, parts=lanes)
        slowest = min(found, key=lambda stage: found[stage]["per_s"])
        line |= {
            "stages": found,
            "slowest_stage": slowest,
            "ratio_to_slowest_stage": line["changes_per_s"] / found[slowest]["per_s"],
            "cpu_ratio_to_read": line["cpu_s_per_million"] / found["read"]["cpu_s_per_million"],
            "cpu_ratio_to_read_streaming": line["cpu_s_per_million_streaming"] / found["read"]["cpu_s_per_million"],
        }
    if arguments.seconds:
        _say(f"{table}: latency at {arguments.rate:g} changes/s for {arguments.seconds:g} s")
        line |= latency(
            work, servers, table, rate=arguments.rate, seconds=arguments.seconds, lanes=lanes, settings=settings,
            cluster=cluster,
        )  # fmt: skip
    line |= {"lanes": lanes, "confidence_ms": arguments.confidence, "machine": machine}
    return line


@contextmanager
def _stack(folder: Path | None) -> Iterator[LocalStack]:
    """The stack in a folder, started and stopped again if it does not run; without a folder, a new one."""
    place = _DEFAULT_FOLDER if folder is None else folder
    if folder is not None and _runs(place):
        yield LocalStack.load(place)
        return
    if folder is None:
        _remove_former(place)
    stack = LocalStack.up(place, report=_say, jars=None if JARS_VARIABLE in os.environ else _JARS)
    try:
        yield stack
    except BaseException:
        # The logs stay for whoever looks into it.
        stack.down()
        raise
    stack.down(delete_data=folder is None)


def _runs(folder: Path) -> bool:
    try:
        return all(component.is_up for component in LocalStack.load(folder).status())
    except LocalStackError:
        return False


def _remove_former(folder: Path) -> None:
    """Stop and delete what an earlier run without `--folder` may have left."""
    try:
        LocalStack.load(folder).down(delete_data=True)
    except LocalStackError:
        shutil.rmtree(folder / "data", ignore_errors=True)
    shutil.rmtree(folder / "bench", ignore_errors=True)


def _machine() -> Figures:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 1024**3),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "class_archive": ARCHIVE.is_file(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the bridge on this machine.")
    parser.add_argument(
        "--tables", type=_names, default=DEFAULT_TABLES, help=f"which of {', '.join(TABLES)}; separated by commas"
    )
    parser.add_argument("--changes", type=int, default=1_000_000, help="changes in the log that is drained")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="lanes; default: cores")
    parser.add_argument("--rate", type=float, default=1000.0, help="changes a second for the latency")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long latency is measured; 0 leaves it out")
    parser.add_argument("--confidence", type=int, default=2000, help="confidence window in ms")
    parser.add_argument("--stages", action="store_true", help="also run each stage alone, as a plain loop")
    parser.add_argument("--vnodes", type=int, default=16, help="vnodes of each simulated node")
    parser.add_argument("--shards", type=int, default=2, help="shards of each simulated node")
    parser.add_argument("--drain-timeout", type=float, default=900.0, help="longest time for draining, in s")
    parser.add_argument(
        "--folder", type=Path, help="a local stack to use: its generations are replaced; started if it does not run"
    )
    parser.add_argument("--markdown", action="store_true", help="also print the table for bench/README.md")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    unknown = [name for name in names if name not in TABLES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"no such table: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    return names


def _say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
