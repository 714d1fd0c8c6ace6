"""What the commands that need servers have in common: some options, and how they end.

Exit statuses: 0 measured; 1 a measurement failed, or its result is wrong; 2 an option is unknown, or has a value that
it can't have; 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench.data.tables import TABLES
from bench.errors import BenchError
from bridge.errors import BridgeError
from bridge.runtime import log_setup
from sandbox.errors import LocalStackError


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """A command's options, with those that say where it measures and in which form it prints."""
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.add_argument(
        "--folder", type=Path, help="a local stack to use: its generations are replaced; started if it does not run"
    )
    made.add_argument("--markdown", action="store_true", help="print tables for bench/README.md")
    return made


def add_drain(to: argparse.ArgumentParser, *, changes: int, timeout_s: float) -> None:
    """The options of a drain, with their defaults."""
    to.add_argument("--changes", type=count, default=changes, help="changes in the log that is drained")
    to.add_argument("--drain-timeout", type=positive, default=timeout_s, help="longest time for each drain, in s")


def add_tables(to: argparse.ArgumentParser, default: tuple[str, ...], known: tuple[str, ...] = TABLES) -> None:
    """Which tables, of those that the command knows."""

    def names_of(text: str) -> tuple[str, ...]:
        names = tuple(filter(None, text.split(",")))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"no such table: {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    to.add_argument(
        "--tables", type=names_of, default=default, help=f"which of {', '.join(known)}; separated by commas"
    )


def count(text: str) -> int:
    """An option's whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, and not {text!r}")
    return found


def positive(text: str) -> float:
    """An option's number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _number(text, "a number above 0", lambda found: found > 0)


def not_negative(text: str) -> float:
    """An option's number of at least 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _number(text, "a number from 0 on", lambda found: found >= 0)


def carry_out(measure: Callable[[], None]) -> int:
    """Measure; gives the exit status, and has said what went wrong."""
    log_setup.setup("warning")
    # So that an ended benchmark cleans up after itself, however it was asked to end. A shell starts what is in its
    # background with SIGINT ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        measure()
    except (BenchError, BridgeError, LocalStackError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    return 0


def _number(text: str, wanted: str, fits: Callable[[float], bool]) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and fits(found)):
        raise argparse.ArgumentTypeError(f"{wanted}, and not {text!r}")
    return found
