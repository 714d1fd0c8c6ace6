"""The command `scylla-cdc-bridge`: what each subcommand is called, and what becomes of errors.

Exit statuses: 0 done; 1 failed while running; 2 refused before anything was written (a bad file, a server that can't be
reached, wrong credentials, a table that is not captured, a command line that is not understood).
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module, metadata, resources
from types import ModuleType
from typing import Final

from bridge.errors import BridgeError, ConfigError, StartupError
from bridge.runtime import log_setup, signals
from schemas.errors import SchemaError

PROGRAM: Final = "scylla-cdc-bridge"
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_INTERRUPTED: Final = 130
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

COMMANDS_GROUP: Final = "scylla_cdc_bridge.commands"
"""Entry points of other distributions that add a command: a module with `add_parser(subparsers)` and
`run(arguments)`."""
_SANDBOX: Final = "scylla-cdc-bridge-sandbox"
_SANDBOX_COMMANDS: Final = ("local", "demo")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    log_setup.open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    # Looked for by hand, because errors may come before the options are read.
    debug = not {"debug", "--log-level=debug"}.isdisjoint(words)
    try:
        return _run(words)
    except SystemExit as ended:  # argparse has said why
        return ended.code if isinstance(ended.code, int) else EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (as `| head` does). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (ConfigError, StartupError) as error:
        return _failed(error, EXIT_REFUSED, debug=debug)
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            return _failed(error, EXIT_FAILED, debug=debug)
        return _failed(BridgeError(f"standard output can't be written: {error.strerror}"), EXIT_FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  # the one place where a person, not a program, gets the error
        return _failed(error, EXIT_FAILED, debug=debug)


def _run(words: list[str]) -> int:
    parser, modules = _parser(words)
    arguments = parser.parse_args(words)
    log_setup.setup(getattr(arguments, "log_level", "warning"))
    module = modules.get(arguments.command)
    if module is not None:
        delegated: int = module.run(arguments)
        return delegated
    command: Callable[[argparse.Namespace], int] = arguments.function
    return command(arguments)


def _failed(error: Exception, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if not isinstance(error, BridgeError | SchemaError):
        text = f"{type(error).__name__}: {text} (please report this; --log-level debug shows where it comes from)"
    for line in text.splitlines() or [type(error).__name__]:
        sys.stderr.write(f"{PROGRAM}: error: {line}\n")
    return status


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, dict[str, ModuleType]]:
    """The parser, and the modules of delegated commands; only the one that is asked for is imported."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Carries ScyllaDB's CDC log into Kafka: every change once, in order, as Avro.",
        epilog=f"`local` and `demo` come with the distribution {_SANDBOX}.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], help_text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        command.set_defaults(function=function)
        command.add_argument(
            "--log-level",
            choices=log_setup.LEVELS,
            default="info" if name == "run" else "warning",
            help="default: %(default)s",
        )
        return command

    def add_with_file(
        name: str, function: Callable[[argparse.Namespace], int], help_text: str
    ) -> argparse.ArgumentParser:
        command = add(name, function, help_text)
        command.add_argument("-c", "--config", required=True, metavar="FILE", help="the configuration file")
        return command

    run = add_with_file("run", _become_the_job, "publish changes until stopped by SIGTERM or Ctrl-C")
    run.add_argument("--once", action="store_true", help="publish what can be read now, then end")

    validate = add_with_file("validate", _command("validate"), "check the configuration and say what would be done")
    validate.add_argument("--online", action="store_true", help="ask the servers too, and look at every table")

    status = add_with_file("status", _command("status"), "show how far each lane of each table has got")
    status.add_argument("--json", action="store_true", help="one JSON document")
    status.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")

    consume = add_with_file("consume", _command("consume"), "print committed changes, decoded")
    consume.add_argument("table", nargs="?", metavar="TABLE", help="keyspace.table, one of the file's")
    consume.add_argument("--topic", metavar="TOPIC", help="a topic instead of a table")
    consume.add_argument(
        "--from-beginning", action="store_true", help="all that the topic holds, not only what comes now"
    )
    consume.add_argument("--until-end", action="store_true", help="end where the topic ended at the start")
    consume.add_argument("--max", type=_count, metavar="N", help="end after N records")
    consume.add_argument("--json", action="store_true", help="JSON documents, one a line")

    schemas = add_with_file("schemas", _command("schemas"), "print the tables' Avro schemas with their subjects")
    schemas.add_argument("table", nargs="?", metavar="TABLE", help="keyspace.table, one of the file's; else all")
    schemas.add_argument("--register", action="store_true", help="register what the registry does not hold yet")
    schemas.add_argument("--json", action="store_true", help="JSON documents, one a line")

    add("example", _example, "print a configuration file with every setting, its default and its meaning")

    modules: dict[str, ModuleType] = {}
    asked = next((word for word in words if not word.startswith("-")), None)
    for entry_point in sorted(metadata.entry_points(group=COMMANDS_GROUP)):
        if entry_point.name == asked:
            modules[entry_point.name] = entry_point.load()
            modules[entry_point.name].add_parser(commands)
        else:
            distribution = entry_point.dist.name if entry_point.dist is not None else entry_point.module
            commands.add_parser(entry_point.name, help=f"added by {distribution}")
    if asked in _SANDBOX_COMMANDS and asked not in modules:
        raise StartupError(f"`{asked}` is part of another distribution. Install it: pip install {_SANDBOX}")
    return parser, modules


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """A command of `bridge.cli.commands`, imported when it is run: `--help` and bad usage answer at once."""

    def run(arguments: argparse.Namespace) -> int:
        status: int = getattr(import_module("bridge.cli.commands"), name)(arguments)
        return status

    return run


def _become_the_job(arguments: argparse.Namespace) -> int:
    # What is imported alone takes a while, and there is nothing yet to be ended in order.
    with signals.ending_at_once():
        status: int = import_module("bridge.cli.run").run(arguments)
        return status


def _version() -> str:
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "(not installed: running from its source tree)"


def _example(_arguments: argparse.Namespace) -> int:
    sys.stdout.write(resources.files("bridge.config").joinpath("example.yaml").read_text(encoding="utf-8"))
    return EXIT_OK


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.exit(code)
