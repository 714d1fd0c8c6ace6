"""Writes changes at a steady rate until its standard input ends: `python -m bench.data.writer`, for `bench.latency`.

It is a process of its own, so that its work does not delay the measurement. It writes only the log: in a real cluster,
other machines write the base table. It prints `{"ready": true}` when the table exists, and the number of changes at the
end.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from bench.data import fill, tables
from bench.data.fill import Cluster, Positions
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.write_times import paced, system_clock_us
from sandbox.scylla.writer import Simulator

_GENERATION_S_AGO: Final = 30


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.data.writer")
    parser.add_argument("--cql", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--most-seconds", type=float, required=True)
    parser.add_argument("--vnodes", type=int, required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args(argv)
    cluster = Cluster(arguments.vnodes, arguments.shards, arguments.seed)
    session = fill.connect(arguments.cql)
    try:
        simulated = tables.table(arguments.table)
        simulated.drop(session)
        simulated.create(session)
        made = SimulatedCluster(session, seed=cluster.seed, vnodes=cluster.vnodes, shards=cluster.shards)
        made.reset()
        made.add_generation(UnixMillis(system_clock_us() // 1000 - _GENERATION_S_AGO * 1000))
        simulator = Simulator(session, made, [simulated], seed=cluster.seed, oracle=Positions())
        print(json.dumps({"ready": True}), flush=True)
        stopped = _until_input_ends()
        timed = paced(
            tables.mutations(simulated, seed=cluster.seed),
            count=round(arguments.rate * arguments.most_seconds),
            rate_per_s=arguments.rate,
        )
        written = simulator.write_many(simulated, takewhile(lambda _: not stopped.is_set(), timed), base=False)
        print(json.dumps({"written": written}), flush=True)
    finally:
        session.close()
    return 0


def _until_input_ends() -> threading.Event:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


if __name__ == "__main__":
    sys.exit(main())
