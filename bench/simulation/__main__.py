"""`python -m bench.simulation`: simulates a day of generation changes without servers, and prints figures.

The bridge's own planner, poll rate and lane protocol read many tables of a large cluster. Meanwhile generations change
and are published early or late, the clocks of coordinators and of the reader differ and step, rows become visible late
or arrive late in old streams, and jobs are killed with or without their checkpoint. The program checks that every row
is read once, that each key is in order, that no row is missing, that the request limit holds, and that no key waits
longer than the bound. The first violation ends the program with exit status 1.

It simulates two days: one with a change every minute, which needs more requests per second than the default limit
(each generation needs at least one request per stream), and one with a change every hour under the default limit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from bench import command
from bench.simulation.run import resolving, run
from bench.simulation.scenario import Size, Violation
from bridge.config.document import ScyllaSettings


def main(argv: Sequence[str] | None = None) -> int:
    """The program; see the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    whole = Size()
    parser.add_argument("--tables", type=command.count, default=whole.tables)
    parser.add_argument("--minutes", type=command.count, default=whole.minutes)
    parser.add_argument("--nodes", type=command.count, default=100)
    parser.add_argument("--vnodes", type=command.count, default=256)
    parser.add_argument("--shards", type=command.count, default=16)
    parser.add_argument(
        "--interval",
        type=command.count,
        default=whole.interval_s,
        help="seconds from look to look for a micro-batch that is due",
    )
    parser.add_argument(
        "--requests-per-second",
        type=command.count,
        default=whole.requests_per_s,
        help="the first day's limit, over all tables",
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    streams = given.nodes * given.vnodes * given.shards
    often = Size(
        tables=given.tables,
        minutes=given.minutes,
        streams=streams,
        interval_s=given.interval,
        requests_per_s=given.requests_per_second,
    )
    default: int = ScyllaSettings.model_fields["requests_per_second"].default
    try:
        for size in (often, replace(often, change_every_s=3600, requests_per_s=default)):
            print(json.dumps(run(size, given.seed)), flush=True)
    except Violation as violation:
        print(f"violated: {violation}", file=sys.stderr)
        return 1
    growth = [resolving(streams // share, whole.lanes) for share in (4, 2, 1)]
    for line in growth:
        print(json.dumps(line))
    if growth[-1]["mib"] > 1.25 * 4 * growth[0]["mib"]:
        print("memory grows faster than the number of streams", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
