"""`python -m bench.simulation`: a simulated day of generation changes, without any server; figures on standard output.

Many tables of a large cluster are read by the bridge's own planner, pacing and lane protocol while generations change
and are published early or late, clocks of coordinators and of the reader differ and step, rows become visible late or
come late into old streams, and jobs are killed with or without their checkpoint. Every row must come once, every key in
order, nothing may be left out, no more be asked than is allowed, and no key wait longer than is promised; the first
violation ends the program with exit status 1.

Two days are simulated: one with a change every minute, which takes more requests a second than the default (each
generation is asked for once at least), and one with a change every hour under the default.
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
