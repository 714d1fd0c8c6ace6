"""`scylla-cdc-bridge local up|down|status`: the local stack from the command line, in plain text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.local.errors import LocalStackError
from bridge.local.jars import JARS_VARIABLE
from bridge.local.ports import Ports
from bridge.local.stack import LocalStack

if TYPE_CHECKING:
    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

DEFAULT_FOLDER = Path(".local-stack")

_OK, _SOMETHING_IS_DOWN, _REFUSED = 0, 1, 2


def add_parser(subparsers: Subparsers) -> None:
    """Add `local` with its own subcommands."""
    parser = subparsers.add_parser(
        "local",
        help="run Kafka, a CQL server that speaks as ScyllaDB, and a schema registry on this machine",
        description="Run Kafka, a CQL server that speaks as ScyllaDB, and a schema registry on this machine.",
    )
    _add_actions(parser)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse what stands after `local`; for programs that have no command line of their own."""
    parser = argparse.ArgumentParser(prog="local")
    _add_actions(parser)
    return parser.parse_args(arguments)


def run(args: argparse.Namespace) -> int:
    """Do what the command line says; return the exit status: 0 done, 1 a server is down (`status`), 2 refused."""
    try:
        if args.local_action == "up":
            return _up(args)
        if args.local_action == "down":
            return _down(args)
        return _status(args)
    except LocalStackError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _REFUSED


def _add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="local_action", required=True)
    up = actions.add_parser("up", help="start the servers and wait until they are ready")
    down = actions.add_parser("down", help="stop the servers; their data stays for the next start")
    status = actions.add_parser("status", help="ask every server whether it is ready")
    for action in (up, down, status):
        action.add_argument(
            "--folder",
            type=Path,
            default=DEFAULT_FOLDER,
            help="the stack's folder: data, logs, and the jars unless the environment variable "
            f"{JARS_VARIABLE} names another folder for them (default: %(default)s)",
        )
    for server in ("cql", "kafka", "registry"):
        up.add_argument(
            f"--{server}-port",
            type=_port,
            metavar="N",
            help=f"port of {server} (default: the former one, or a free one)",
        )
    up.add_argument(
        "--cql-password", action="store_true", help="let the CQL server ask for a login: cassandra, cassandra"
    )
    down.add_argument("--delete-data", action="store_true", help="delete the servers' data and logs as well")


def _port(text: str) -> int:
    highest = 65_535
    port = int(text)
    if not 0 < port <= highest:
        message = f"not a port number: {text}"
        raise argparse.ArgumentTypeError(message)
    return port


def _up(args: argparse.Namespace) -> int:
    ports = Ports(cql=args.cql_port, kafka=args.kafka_port, registry=args.registry_port)
    stack = LocalStack.up(args.folder, ports=ports, cql_password=args.cql_password, report=_say)
    _say(f"  CQL             {stack.cql}")
    _say(f"  Kafka           {stack.kafka}")
    _say(f"  Schema registry {stack.registry}")
    _say(f"Stop it with: scylla-cdc-bridge local down --folder {args.folder}")
    return _OK


def _down(args: argparse.Namespace) -> int:
    LocalStack.load(args.folder).down(delete_data=args.delete_data, report=_say)
    return _OK


def _status(args: argparse.Namespace) -> int:
    found = LocalStack.load(args.folder).status()
    for one in found:
        process = f"process {one.pid}" if one.pid is not None else "no process"
        _say(f"{one.name:<9} {'up' if one.is_up else 'DOWN':<5} {one.address:<45} {one.problem or process}")
    return _OK if all(one.is_up for one in found) else _SOMETHING_IS_DOWN


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201
