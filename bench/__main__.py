"""`python -m bench`: measures the bridge on this machine; prints JSON lines, then a table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench import command, figures, many_tables, stages
from bench.data import fill
from bench.data.fill import Cluster
from bench.data.tables import DEFAULT_TABLES
from bench.drain import drain
from bench.figures import Figures
from bench.latency import latency
from bench.local_stack import a_stack, machine_now, say, server_pids
from bench.processes.bridge_run import Servers
from bench.processes.watch import Watch
from sandbox.stack.stack import LocalStack


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    return command.carry_out(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    if arguments.tables_count:
        _run_many(arguments)
        return
    lines: list[Figures] = []
    with a_stack(arguments.folder) as stack, Watch(below={}, of=server_pids(stack)) as watch:
        for table in arguments.tables:
            lines.append(_measure(stack, table, arguments, watch))
            print(figures.json_line(lines[-1]), flush=True)
    machine = figures.machine_line([line["machine"] for line in lines])
    print(f"\n{figures.plain_table(lines)}\n{machine}")
    if arguments.markdown:
        print(f"\n{figures.markdown_table(lines)}\n\n{machine}")


def _run_many(arguments: argparse.Namespace) -> None:
    lines: list[Figures] = []
    with a_stack(arguments.folder) as stack:
        machine = machine_now()
        for count in arguments.tables_count:
            found = many_tables.measure(
                stack,
                count,
                lanes=arguments.lanes,
                confidence_ms=arguments.confidence,
                settle_s=arguments.settle,
                seconds=arguments.seconds,
                timeout_s=arguments.drain_timeout,
            )
            lines.append({**found, "machine": machine})
            print(figures.json_line(lines[-1]), flush=True)
    table = figures.markdown_table if arguments.markdown else figures.plain_table
    print(f"\n{table(lines, many_tables.COLUMNS)}\n{figures.machine_line([machine])}")


def _measure(stack: LocalStack, table: str, arguments: argparse.Namespace, watch: Watch) -> Figures:
    servers = Servers(stack.cql, stack.kafka, stack.registry)
    work = stack.folder / "bench"
    lanes: int = arguments.lanes
    settings: dict[str, Any] = {"reading": {"confidence_ms": arguments.confidence}}
    cluster = Cluster(arguments.vnodes, arguments.shards)
    line: Figures = {"table": table}
    session = fill.connect(servers.cql)
    try:
        began_s = time.monotonic()
        say(f"{table}: filling the log with {arguments.changes:,} changes")
        written = fill.load(session, table, changes=arguments.changes, cluster=cluster)
        say(f"{table}: filled in {time.monotonic() - began_s:.0f} s; draining it with {lanes} lanes")
    finally:
        session.close()
    drain_it = partial(
        drain, work, servers, table, written,
        lanes=lanes, settings=settings, timeout_s=arguments.drain_timeout, watch=watch,
    )  # fmt: skip
    if arguments.stages:
        line["changes_per_s_cold"] = drain_it()["changes_per_s"]
        say(f"{table}: {line['changes_per_s_cold']:,.0f} changes/s; once more, as the servers are warm now")
    machine = machine_now()
    rounds = []
    for number in range(1, arguments.rounds + 1):
        rounds.append(drain_it())
        say(f"{table}: {rounds[-1]['changes_per_s']:,.0f} changes/s, every change there once")
        if arguments.stages:
            say(f"{table}: each stage alone ({number} of {arguments.rounds})")
            found = stages.measure(servers, table, changes=arguments.changes, parts=lanes, watch=watch)
            rounds[-1] |= figures.against_stages(rounds[-1], found)
    line |= figures.of_rounds(rounds)
    if arguments.seconds:
        say(f"{table}: latency at {arguments.rate:g} changes/s for {arguments.seconds:g} s")
        line |= latency(
            work, servers, table, rate=arguments.rate, seconds=arguments.seconds, lanes=lanes, settings=settings,
            cluster=cluster,
        )  # fmt: skip
    line |= {"lanes": lanes, "confidence_ms": arguments.confidence, "machine": machine}
    return line


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("bench", "Measure the bridge on this machine.")
    command.add_tables(parser, DEFAULT_TABLES)
    parser.add_argument(
        "--tables-count",
        type=command.counts,
        default=(),
        help="instead of draining, run one job over so many tables of one row each; several numbers with commas",
    )
    parser.add_argument(
        "--settle",
        type=command.not_negative,
        default=600.0,
        help="with --tables-count: how long the job rests before its cost at rest is measured, in s",
    )
    command.add_drain(parser, changes=1_000_000, timeout_s=900.0)
    parser.add_argument("--lanes", type=command.count, default=os.cpu_count() or 1, help="lanes; default: cores")
    parser.add_argument("--rate", type=command.positive, default=1000.0, help="changes a second for the latency")
    parser.add_argument(
        "--seconds", type=command.not_negative, default=30.0, help="how long latency is measured; 0 leaves it out"
    )
    parser.add_argument("--confidence", type=command.count, default=2000, help="confidence window in ms")
    parser.add_argument(
        "--stages", action="store_true", help="also run each stage alone, a plain loop; drains once more, before"
    )
    parser.add_argument(
        "--rounds",
        type=command.count,
        default=1,
        help="drain, and run the stages, so often in turn; the middle round counts",
    )
    parser.add_argument("--vnodes", type=command.count, default=16, help="vnodes of each simulated node")
    parser.add_argument("--shards", type=command.count, default=2, help="shards of each simulated node")
    return parser


if __name__ == "__main__":
    sys.exit(main())
