"""The command `scylla-cdc-bridge local streams`: changes generations and tablets on the user's request."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING

from bridge.model.times import UnixMillis
from sandbox.local.stream_changes import LEAST_LEAD_S, Ahead, Say, StreamChanges, captured_table
from sandbox.local.stream_listing import shown
from sandbox.scylla.write_times import system_clock_us
from sandbox.writing_session import WritingSession

if TYPE_CHECKING:
    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_LEAD_S = 5.0
_MOST_LEAD_S = 86_400.0


def add_parser(actions: Subparsers) -> tuple[argparse.ArgumentParser, ...]:
    """Add the command `streams`; return the parsers of its subcommands."""
    parser = actions.add_parser(
        "streams",
        help="show the log's streams, and change them as on a cluster",
        description="Show the log's streams, and change them as on a cluster: create generations of a cluster with "
        "vnodes, and split and merge tablets.",
    )
    streams = parser.add_subparsers(dest="streams_action", required=True, metavar="CHANGE")
    show = streams.add_parser("show", help="show the streams of a table, or the generations and all tables")
    generation = streams.add_parser(
        "new-generation", help="simulate a joining node: new streams for all tables in keyspaces without tablets"
    )
    split = streams.add_parser("split", help="split each tablet of a table in two")
    merge = streams.add_parser("merge", help="merge each pair of tablets of a table")
    publish = streams.add_parser("publish", help="publish what was created with --unpublished")
    collect = streams.add_parser(
        "collect",
        help="delete a table's stream sets that are older than the log's TTL, as ScyllaDB does every minute",
    )
    old = streams.add_parser("old-format", help="publish generations in the format of ScyllaDB before 4.4 (V1)")
    upgrade = streams.add_parser("upgrade", help="copy generations to today's tables, as an upgraded cluster does (V2)")
    for one in (split, merge, collect):
        one.add_argument("table", metavar="TABLE", help="keyspace.table, quoted as in CQL")
    for one in (show, publish):
        one.add_argument(
            "table", nargs="?", metavar="TABLE", help="keyspace.table, quoted as in CQL (default: the generations)"
        )
    for one in (generation, split, merge):
        one.add_argument(
            "--in",
            dest="lead_s",
            type=_lead_s,
            default=_LEAD_S,
            metavar="SECONDS",
            help=f"seconds until the change begins; at least {LEAST_LEAD_S:.0f}, because nodes must know it before "
            "(default: %(default)s)",
        )
        one.add_argument(
            "--unpublished", action="store_true", help="do not publish it yet; `local streams publish` does so later"
        )
        one.add_argument("--wait", action="store_true", help="return after it has begun")
    for one in (split, merge):
        one.add_argument(
            "--partial", action="store_true", help="only the first tablet, or the first pair; the other streams stay"
        )
    return show, generation, split, merge, publish, collect, old, upgrade


def run(args: argparse.Namespace, session: WritingSession, say: Say) -> None:
    """Run the subcommand.

    Args:
        args: arguments that a parser of `add_parser` has read.
        session: session to the stack's server.
        say: receives the lines of the output.

    Raises:
        LocalStackError: the state of the streams does not allow the change.
        RetriableError, BridgeError: the server does not answer, or refuses the request.
    """
    changes = StreamChanges(session, say, system_clock_us)
    named = getattr(args, "table", None)
    table = None if named is None else captured_table(session, named)
    match args.streams_action:
        case "show":
            for line in shown(session, table, system_clock_us()):
                say(line)
        case "new-generation":
            _wait(args, changes.new_generation(_ahead(args)))
        case "split" | "merge" as how if table is not None:
            _wait(args, changes.resize(table, how, _ahead(args), partial=args.partial))
        case "publish":
            changes.publish(table)
        case "collect" if table is not None:
            changes.collect(table)
        case "old-format":
            changes.old_format()
        case "upgrade":
            changes.upgrade()


def _ahead(args: argparse.Namespace) -> Ahead:
    return Ahead(args.lead_s, publish=not args.unpublished)


def _wait(args: argparse.Namespace, start_ms: UnixMillis) -> None:
    if args.wait:
        time.sleep(max(0, start_ms * 1000 - system_clock_us()) / 1_000_000)


def _lead_s(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not LEAST_LEAD_S <= found <= _MOST_LEAD_S:
        message = f"not a number of seconds from {LEAST_LEAD_S:.0f} to {_MOST_LEAD_S:.0f}: {text}"
        raise argparse.ArgumentTypeError(message)
    return found
