"""`scylla-cdc-bridge local streams`: generations and tablets that change when the user says so."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING

from bridge.model.times import UnixMillis
from sandbox.cql.writing_session import WritingSession
from sandbox.local.stream_changes import LEAST_LEAD_S, Ahead, Say, StreamChanges, captured_table
from sandbox.local.stream_listing import shown
from sandbox.scylla.pacing import system_clock_us

if TYPE_CHECKING:
    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_LEAD_S = 5.0
_MOST_LEAD_S = 86_400.0


def add_parser(actions: Subparsers) -> tuple[argparse.ArgumentParser, ...]:
    """Add `streams` with its own subcommands; returns the parsers of these."""
    parser = actions.add_parser(
        "streams",
        help="show the log's streams, and let them change as on a cluster",
        description="Show the log's streams, and let them change as they do on a cluster: new generations of a cluster "
        "with vnodes, and tablets that split and merge.",
    )
    streams = parser.add_subparsers(dest="streams_action", required=True, metavar="CHANGE")
    show = streams.add_parser("show", help="the streams of a table, or what there is of all tables")
    generation = streams.add_parser(
        "new-generation", help="let a node join: new streams for all tables in keyspaces without tablets"
    )
    split = streams.add_parser("split", help="make two of each tablet of a table")
    merge = streams.add_parser("merge", help="make one of each two tablets of a table")
    publish = streams.add_parser("publish", help="show readers what was made with --unpublished")
    collect = streams.add_parser(
        "collect",
        help="forget a table's stream sets of before the log's TTL, as ScyllaDB does with tablets every minute",
    )
    old = streams.add_parser("old-format", help="show generations as ScyllaDB before 4.4 does (V1)")
    upgrade = streams.add_parser("upgrade", help="copy them to today's tables, as an upgraded cluster does (V1 to V2)")
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
            help=f"when it begins; {LEAST_LEAD_S:.0f} at least, for nodes learn of it before (default: %(default)s)",
        )
        one.add_argument(
            "--unpublished", action="store_true", help="do not show it to readers yet: see the change `publish`"
        )
        one.add_argument("--wait", action="store_true", help="return only when it has begun")
    for one in (split, merge):
        one.add_argument(
            "--partial", action="store_true", help="of the first tablet, or two, alone: the other streams go on"
        )
    return show, generation, split, merge, publish, collect, old, upgrade


def run(args: argparse.Namespace, session: WritingSession, say: Say) -> None:
    """Do what the command line says.

    Args:
        args: as `add_parser` has them read.
        session: to the stack's server.
        say: gets the lines.

    Raises:
        LocalStackError: it can't be done.
        RetriableError, BridgeError: the server does not answer, or refuses us.
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
