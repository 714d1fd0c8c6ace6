"""`scylla-cdc-bridge local up|down|status|cql|streams`: the local stack from the command line, in plain text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import StartupError
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.source import statements_of
from sandbox.errors import LocalStackError
from sandbox.local import streams_command as streams
from sandbox.stack.jars import JARS_VARIABLE
from sandbox.stack.ports import Ports
from sandbox.stack.scylla_versions import NEWEST, VERSIONS
from sandbox.stack.stack import LocalStack

if TYPE_CHECKING:
    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

DEFAULT_FOLDER = Path(".local-stack")

_OK, _SOMETHING_IS_DOWN, _REFUSED = 0, 1, 2


def add_parser(subparsers: Subparsers) -> None:
    """Add the command `local` and its subcommands."""
    parser = subparsers.add_parser(
        "local",
        help="run Kafka, a simulated ScyllaDB server and a schema registry on this machine",
        description="Run Kafka, a simulated ScyllaDB server and a schema registry on this machine.",
    )
    _add_actions(parser)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `local`, for programs without a command line of their own."""
    parser = argparse.ArgumentParser(prog="local")
    _add_actions(parser)
    return parser.parse_args(arguments)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return the exit status: 0 done, 1 a server is down (`status`), 2 refused.

    Raises:
        bridge.errors.BridgeError: the CQL server does not answer, or refuses the login (`cql`, `streams`).
    """
    try:
        if args.local_action == "up":
            return _start_stack(args)
        if args.local_action == "down":
            return _stop_stack(args)
        if args.local_action == "cql":
            return _run_cql(args)
        if args.local_action == "streams":
            return _run_streams(args)
        return _print_status(args)
    except (LocalStackError, StartupError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _REFUSED


def _add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="local_action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="start the servers and wait until they are ready")
    down = actions.add_parser("down", help="stop the servers and keep their data")
    status = actions.add_parser("status", help="show whether each server is ready")
    cql = actions.add_parser(
        "cql",
        help="run CQL statements, and write the CDC logs of captured tables as ScyllaDB does",
        description="Run CQL statements on the stack's server, and write the CDC logs of captured tables as ScyllaDB "
        "does: the server itself writes no CDC log. Creates the first stream generation if there is none.",
    )
    cql.add_argument("statements", nargs="*", metavar="STATEMENT", help="one or more statements (default: those of -f)")
    cql.add_argument(
        "-f", "--file", type=Path, metavar="FILE", help="a file of statements (default: standard input, to its end)"
    )
    of_streams = streams.add_parser(actions)
    for action in (up, down, status, cql, *of_streams):
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
            help=f"port of {server} (default: the port of the last start, or a free one)",
        )
    up.add_argument(
        "--cql-password",
        action="store_true",
        help="require a login from CQL clients (cassandra, cassandra)",
    )
    up.add_argument(
        "--scylla-version",
        choices=VERSIONS,
        help="the ScyllaDB whose system tables the CQL server shows (default: that of the last start, or the newest, "
        f"{NEWEST})",
    )
    down.add_argument("--delete-data", action="store_true", help="also delete the servers' data and logs")


def _port(text: str) -> int:
    highest = 65_535
    port = int(text) if text.isdecimal() else 0
    if not 0 < port <= highest:
        message = f"not a port number: {text}"
        raise argparse.ArgumentTypeError(message)
    return port


def _start_stack(args: argparse.Namespace) -> int:
    ports = Ports(cql=args.cql_port, kafka=args.kafka_port, registry=args.registry_port)
    stack = LocalStack.up(
        args.folder,
        ports=ports,
        cql_password=args.cql_password,
        scylla_version=args.scylla_version,
        report=_say,
    )
    _say(f"  CQL             {stack.cql}")
    _say(f"  Kafka           {stack.kafka}")
    _say(f"  Schema registry {stack.registry}")
    _say(f"Stop it with: scylla-cdc-bridge local down --folder {args.folder}")
    return _OK


def _stop_stack(args: argparse.Namespace) -> int:
    LocalStack.load(args.folder).down(delete_data=args.delete_data, report=_say)
    return _OK


def _print_status(args: argparse.Namespace) -> int:
    found = LocalStack.load(args.folder).status()
    for one in found:
        process = f"process {one.pid}" if one.pid is not None else "no process"
        _say(f"{one.name:<9} {'up' if one.is_up else 'DOWN':<5} {one.address:<45} {one.problem or process}")
    return _OK if all(one.is_up for one in found) else _SOMETHING_IS_DOWN


def _run_cql(args: argparse.Namespace) -> int:
    if args.statements and args.file:
        message = "give either statements or a file of them, not both"
        raise LocalStackError(message)
    stack = LocalStack.load(args.folder)
    name, text = _read_statements(args)
    try:
        found = statements_of(text, name)
    except CqlError as error:
        raise LocalStackError(str(error)) from error
    session = stack.cql_session()
    try:
        LocalCql(session, _say).run(found, name)
    finally:
        session.close()
    return _OK


def _run_streams(args: argparse.Namespace) -> int:
    session = LocalStack.load(args.folder).cql_session()
    try:
        streams.run(args, session, _say)
    finally:
        session.close()
    return _OK


def _read_statements(args: argparse.Namespace) -> tuple[str, str]:
    """Return the source of the statements, for messages, and their text."""
    if args.statements:
        return "statement", ";\n".join(args.statements)
    if args.file is None:
        if sys.stdin.isatty():
            print("Type CQL statements, each with a semicolon at its end, then Ctrl-D:", file=sys.stderr)  # noqa: T201
        return "stdin", sys.stdin.read()
    try:
        return str(args.file), args.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{args.file} cannot be read: {error}"
        raise LocalStackError(message) from error


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201
