"""`python -m bench.idle`: measures the cost of a table without writes.

It runs the bridge over an empty log, waits until it is idle, and then counts CPU seconds of all processes by process
and thread, the requests that the CQL server answers, and the partitions that it reads for them. It prints a JSON line,
then tables. `bench.command` lists the exit statuses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench import command, figures
from bench.data import fill, tables, topics
from bench.data.tables import KEYSPACE
from bench.errors import BenchError
from bench.figures import Figures
from bench.local_stack import a_stack, machine_now, say
from bench.processes.bridge_run import BridgeRun, Servers, new_name
from bench.processes.cpu_time import ThreadTimes, descendants, everyone
from bridge.adapters.scylla.session import CqlSession
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.write_times import system_clock_us
from sandbox.stack.stack import LocalStack

_TABLE: Final = "narrow"
_SHARDS: Final = 4
_GENERATION_S_AGO: Final = 30
_BEGINS_WITHIN_S: Final = 180.0
_LOOK_EVERY_S: Final = 0.5
_WORTH_A_ROW_MS_PER_S: Final = 0.05
_READS: Final = "SELECT keyspace_name, table_name, count FROM system_views.coordinator_read_latency"
_REQUESTS: Final = (
    "SELECT name, value FROM system_views.cql_metrics "
    "WHERE name IN ('prepared_statements_executed', 'regular_statements_executed')"
)
_OWN_REQUESTS: Final = 2
"""Between the first reading of that and the second: of what is read besides, and one of the two."""
_LOG_TABLE: Final = f"{KEYSPACE}.{_TABLE}_scylla_cdc_log"
_COLUMNS: Final = (
    ("streams", "streams"),
    ("lanes", "lanes"),
    ("interval_s", "longest pause s"),
    ("seconds", "counted s"),
    ("percent_of_a_core", "% of a core"),
    ("requests_per_s", "requests/s"),
    ("log_partitions_per_s", "streams of the log read/s"),
)
_THREAD_COLUMNS: Final = (("process", "process"), ("thread", "thread"), ("ms_per_s", "ms of CPU a second"))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    return command.carry_out(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    with a_stack(arguments.folder) as stack:
        machine = machine_now()
        line = _measure(stack, arguments)
    print(figures.json_line({**line, "machine": machine}))
    table = figures.markdown_table if arguments.markdown else figures.plain_table
    print(
        f"\n{table([line], _COLUMNS)}\n\n{table(line['threads'], _THREAD_COLUMNS)}\n{figures.machine_line([machine])}"
    )


def _measure(stack: LocalStack, arguments: argparse.Namespace) -> Figures:
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    session = fill.connect(servers.cql)
    try:
        simulated = tables.table(_TABLE)
        simulated.drop(session)
        simulated.create(session)
        cluster = SimulatedCluster(session, seed=1, vnodes=arguments.streams // _SHARDS, shards=_SHARDS)
        cluster.reset()
        cluster.add_generation(UnixMillis(system_clock_us() // 1000 - _GENERATION_S_AGO * 1000))
        run = BridgeRun(
            stack.folder / "bench",
            servers,
            name=new_name(_TABLE, "idle"),
            tables=[f"{KEYSPACE}.{_TABLE}"],
            settings={
                "spark": {"lanes": arguments.lanes},
                "reading": {"idle_interval_ms": round(arguments.interval * 1000)},
            },
            once=False,
        )
        with run:
            before = _reads(session)
            _until(run, lambda: _reads(session).get(_LOG_TABLE, 0) > before.get(_LOG_TABLE, 0), _BEGINS_WITHIN_S)
            say(f"the bridge reads; resting for {arguments.settle:.0f} s, then counting for {arguments.seconds:.0f} s")
            _follow(run, arguments.settle, ThreadTimes())
            found = _count(run, session, arguments.seconds)
            measured = run.stop()
        topics.delete(servers.kafka, run.topic, run.progress_topic)
    finally:
        session.close()
    cores = measured.cpu_s_between(found["from_s"], found["until_s"]) / (found["until_s"] - found["from_s"])
    streams = arguments.streams // _SHARDS * _SHARDS
    interval_s = arguments.interval
    return {
        "streams": streams,
        "lanes": arguments.lanes,
        "interval_s": interval_s,
        "percent_of_a_core": 100 * cores,
        **found,
    }


def _count(run: BridgeRun, session: CqlSession, seconds: float) -> Figures:
    threads = ThreadTimes()
    _look(run, threads)
    before, asked_before, cpu_before, from_s = _reads(session), _requests(session), threads.totals(), time.time()
    _follow(run, seconds, threads)
    after, asked_after, cpu_after, until_s = _reads(session), _requests(session), threads.totals(), time.time()
    took_s = until_s - from_s
    read = {name: count - before.get(name, 0) for name, count in after.items()}
    used = {name: 1000 * (s - cpu_before.get(name, 0.0)) / took_s for name, s in cpu_after.items()}
    return {
        "seconds": took_s,
        "from_s": from_s,
        "until_s": until_s,
        "requests_per_s": (asked_after - asked_before - _OWN_REQUESTS) / took_s,
        "log_partitions_per_s": read.get(_LOG_TABLE, 0) / took_s,
        "partitions_read": {name: count for name, count in sorted(read.items()) if count},
        "threads": [
            {"process": role, "thread": thread, "ms_per_s": ms_per_s}
            for (role, thread), ms_per_s in sorted(used.items(), key=lambda one: -one[1])
            if ms_per_s >= _WORTH_A_ROW_MS_PER_S
        ],
    }


def _reads(session: CqlSession) -> Mapping[str, int]:
    """How many partitions the server has read of each table."""
    return {f"{row['keyspace_name']}.{row['table_name']}": row["count"] for row in session.rows(_READS, ())}


def _requests(session: CqlSession) -> int:
    """How many requests the server has answered."""
    return sum(int(row["value"]) for row in session.rows(_REQUESTS, ()))


def _follow(run: BridgeRun, seconds: float, threads: ThreadTimes) -> None:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        run.check()
        time.sleep(min(left_s, _LOOK_EVERY_S))
        _look(run, threads)


def _look(run: BridgeRun, threads: ThreadTimes) -> None:
    job = run.job_pid
    if job is not None:
        threads.look(descendants(run.meter_pid, everyone()), job)


def _until(run: BridgeRun, done: Any, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline_s:
            raise BenchError(f"the bridge did not begin to read within {timeout_s:.0f} s.{run.tail()}")
        run.check()
        time.sleep(_LOOK_EVERY_S)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("bench.idle", "Measure what a silent table costs.")
    parser.add_argument(
        "--streams", type=_streams, default=1000, help=f"streams of the log; rounded down to a multiple of {_SHARDS}"
    )
    parser.add_argument("--lanes", type=command.count, default=2, help="lanes of the bridge")
    parser.add_argument(
        "--interval",
        type=command.positive,
        default=30.0,
        help="longest pause of a silent table (`reading.idle_interval_ms`), in s",
    )
    parser.add_argument("--settle", type=command.not_negative, default=60.0, help="how long it may come to rest, in s")
    parser.add_argument("--seconds", type=command.positive, default=60.0, help="how long is counted")
    return parser


def _streams(text: str) -> int:
    found = command.count(text)
    if found < _SHARDS:
        raise argparse.ArgumentTypeError(f"at least {_SHARDS}, and not {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
