"""The command line of `scylla-cdc-bridge`: its subcommands and their options.

A subcommand's module is imported when the subcommand runs, so that `--help` and usage errors appear at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module, metadata, resources
from typing import TYPE_CHECKING, Final

from bridge.errors import StartupError
from bridge.runtime import log_setup, signals

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # argparse gives it no public name

PROGRAM: Final = "scylla-cdc-bridge"
COMMANDS_GROUP: Final = "scylla_cdc_bridge.commands"
"""Entry points by which other distributions add a subcommand: a module with `add_parser(subparsers)` and
`run(arguments)`."""
_SANDBOX: Final = "scylla-cdc-bridge-sandbox"
_SANDBOX_COMMANDS: Final = ("local", "demo")


def build_parser(command_line: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser for a command line; parsed arguments have the command to call as `function`.

    Args:
        command_line: the arguments. Of the subcommands that other distributions add, only the one it names is imported.

    Raises:
        StartupError: it names a subcommand of a distribution that is not installed.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Carries ScyllaDB's CDC log into Kafka: every change once, in order, as Avro.",
        epilog=f"`local` and `demo` come with the distribution {_SANDBOX}.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_validate(commands)
    _add_status(commands)
    _add_consume(commands)
    _add_schemas(commands)
    _add_example(commands)
    _add_other_distributions(commands, command_line)
    return parser


def _add_run(commands: Subparsers) -> None:
    run = _add_command_with_file(commands, "run", _run_job, "publish changes until stopped by SIGTERM or Ctrl-C")
    run.set_defaults(log_level="info")
    run.add_argument("--once", action="store_true", help="publish what can be read now, then end")


def _add_validate(commands: Subparsers) -> None:
    help_text = "check the configuration and show what the job would do"
    validate = _add_command_with_file(commands, "validate", _command_of("validate"), help_text)
    validate.add_argument("--online", action="store_true", help="also check the servers and every table")


def _add_status(commands: Subparsers) -> None:
    help_text = "show how far each lane of each table has got"
    status = _add_command_with_file(commands, "status", _command_of("status"), help_text)
    status.add_argument("--json", action="store_true", help="one JSON document")
    status.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")


def _add_consume(commands: Subparsers) -> None:
    help_text = "print committed changes, decoded, as JSON documents"
    consume = _add_command_with_file(commands, "consume", _command_of("consume"), help_text)
    consume.add_argument("table", nargs="?", metavar="TABLE", help="keyspace.table, one of the file's")
    consume.add_argument("--topic", metavar="TOPIC", help="a topic instead of a table")
    consume.add_argument("--from-beginning", action="store_true", help="all that the topic holds, not only new records")
    consume.add_argument("--until-end", action="store_true", help="end where the topic ended at the start")
    consume.add_argument("--max", type=_parse_count, metavar="N", help="end after N records")
    consume.add_argument("--json", action="store_true", help="one line for each document, not indented")


def _add_schemas(commands: Subparsers) -> None:
    help_text = "print the tables' Avro schemas with their subjects"
    schemas = _add_command_with_file(commands, "schemas", _command_of("schemas"), help_text)
    schemas.add_argument("table", nargs="?", metavar="TABLE", help="keyspace.table, one of the file's; else all")
    schemas.add_argument("--register", action="store_true", help="register what the registry does not hold yet")
    schemas.add_argument("--json", action="store_true", help="one JSON document for each schema, on a line")


def _add_example(commands: Subparsers) -> None:
    help_text = "print a configuration file with every setting, its default and its meaning"
    _add_command(commands, "example", _print_example, help_text)


def _add_other_distributions(commands: Subparsers, command_line: Sequence[str]) -> None:
    named = next((word for word in command_line if not word.startswith("-")), None)
    for entry_point in _find_entry_points():
        if entry_point.name == named:
            module = entry_point.load()
            module.add_parser(commands)
            commands.choices[entry_point.name].set_defaults(function=module.run)
        else:
            distribution = entry_point.dist.name if entry_point.dist is not None else entry_point.module
            commands.add_parser(entry_point.name, help=f"added by {distribution}")
    if named in _SANDBOX_COMMANDS and named not in commands.choices:
        raise StartupError(f"`{named}` is part of another distribution. Install it: pip install {_SANDBOX}")


@cache
def _find_entry_points() -> Sequence[metadata.EntryPoint]:
    # The search reads the metadata of every installed distribution.
    return sorted(metadata.entry_points(group=COMMANDS_GROUP))


def _add_command(
    commands: Subparsers, name: str, function: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
    command.set_defaults(function=function)
    command.add_argument("--log-level", choices=log_setup.LEVELS, default="warning", help="default: %(default)s")
    return command


def _add_command_with_file(
    commands: Subparsers, name: str, function: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    command = _add_command(commands, name, function, help_text)
    command.add_argument("-c", "--config", required=True, metavar="FILE", help="the configuration file")
    return command


def _command_of(module: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that imports a module of `bridge.cli` and calls its `run`."""

    def run(arguments: argparse.Namespace) -> int:
        status: int = import_module(f"bridge.cli.{module}").run(arguments)
        return status

    return run


def _run_job(arguments: argparse.Namespace) -> int:
    # Signals end the process at once, because the imports take a while and nothing needs an orderly end yet.
    with signals.terminating_immediately():
        return _command_of("run")(arguments)


def _print_example(_arguments: argparse.Namespace) -> int:
    sys.stdout.write(resources.files("bridge.config").joinpath("example.yaml").read_text(encoding="utf-8"))
    return 0


def _version() -> str:
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "(not installed: running from its source tree)"


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
