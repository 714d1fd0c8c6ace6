"""`python -m tests.live`: runs the bridge against a ScyllaDB, and compares Kafka with its logs and tables.

Kafka and the registry are the local stack's. Without `--scylla`, the CQL server is the local stack's, too. The run
prints a JSON line for each table and one in total. Exit status 1: a difference, or nothing was compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.stack.stack import LocalStack
from tests.live.keyspaces import KINDS
from tests.live.run import Outcome, Plan, Run
from tests.live.server import LocalServer, ScyllaServer, Server
from tests.live.tables import SHAPES


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = _parser().parse_args(argv)
    # A run that is ended in any way removes its keyspaces and stops its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="live-"))
    _say(f"everything lies in {folder}")
    stack = LocalStack.up(folder / "stack", report=_say)
    try:
        server: Server
        if arguments.scylla:
            stack.stop("cql")
            contact_points = arguments.scylla.split(",")
            server = ScyllaServer(contact_points)
        else:
            contact_points = [stack.cql]
            server = LocalServer(stack.cql)
        run_folder = folder / "run"
        run_folder.mkdir()
        try:
            outcome = Run(stack, server, contact_points, run_folder, _plan(arguments), _say).carry_out()
        finally:
            server.close()
    finally:
        stack.down()
    report(outcome)
    return 0 if outcome.is_clean else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.live", description=(__doc__ or "").split("\n\n")[1])
    add = parser.add_argument
    add("--scylla", default=os.environ.get("SCYLLA"), help="host:port[,host:port] (default: the local stack's server)")
    add("--seed", type=int, default=1, help="decides the statements")
    add("--statements", type=int, default=2000, help="how many (default: %(default)s)")
    add("--minutes", type=float, default=30.0, help="write at most this long (default: %(default)s)")
    add("--rate", type=float, default=0.0, help="statements in a second; 0: as many as possible (default)")
    add("--tables", type=_among(SHAPES), default=SHAPES, help=f"of {', '.join(SHAPES)} (default: all)")
    add("--keyspaces", type=_among(KINDS), help=f"of {', '.join(KINDS)} (default: those that the server has)")
    add("--replicas", type=int, default=1, help="replication factor (default: %(default)s)")
    add("--kills", type=int, default=2, help="kill -9 of the whole job (default: %(default)s)")
    add("--alters", type=int, default=6, help="ALTER TABLE and ALTER TYPE (default: %(default)s)")
    add("--log-switches", type=int, default=0, help="CDC off and on again (default: %(default)s)")
    add("--switch", metavar="COMMAND", help="a shell command that makes the cluster change its streams")
    add("--switch-every", type=float, default=60.0, metavar="S", help="seconds between two (default: %(default)s)")
    add("--confidence-ms", type=int, default=4000, help="the bridge's confidence window (default: %(default)s)")
    add("--lanes", type=int, default=2, help="lanes of each table (default: %(default)s)")
    add("--keep", action="store_true", help="do not remove the keyspaces")
    add("--folder", type=Path, help="where everything goes, and stays")
    return parser


def _among(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (choose from {', '.join(known)})")
        return given

    return names


def _plan(arguments: argparse.Namespace) -> Plan:
    return Plan(
        seed=arguments.seed,
        statements=arguments.statements,
        minutes=arguments.minutes,
        rate_per_s=arguments.rate,
        shapes=arguments.tables,
        keyspaces=arguments.keyspaces,
        replicas=arguments.replicas,
        kills=arguments.kills,
        alters=arguments.alters,
        log_switches=arguments.log_switches,
        switch=arguments.switch,
        switch_every_s=arguments.switch_every,
        confidence_ms=arguments.confidence_ms,
        lanes=arguments.lanes,
        keep=arguments.keep,
    )


def report(outcome: Outcome) -> None:
    """Print the examples, a line for each table and one in total."""
    counted = ("log_rows", "changes", "records", "missing", "late", "doubled", "unexpected", "out_of_order", "rows")
    for table, statements, finding in outcome.tables:
        for example in finding.examples:
            _say(example)
        line = {"keyspace": table.keyspace, "table": table.name, "statements": statements}
        line |= {name: getattr(finding, name) for name in counted}
        print(json.dumps(line | {"differing_rows": finding.differing_rows}), flush=True)
    for problem in outcome.problems:
        _say(problem)
    findings = [finding for _, _, finding in outcome.tables]
    total = {"tables": len(findings), "clean": outcome.is_clean, **outcome.total}
    total |= {name: sum(getattr(one, name) for one in findings) for name in counted}
    total |= {"differing_rows": sum(one.differing_rows or 0 for one in findings), "problems": len(outcome.problems)}
    print(json.dumps(total), flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
