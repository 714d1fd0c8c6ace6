"""Options and exit statuses that the benchmark's commands share.

Exit statuses: 0 measured; 1 a measurement failed, or its result is wrong; 2 an unknown option or an invalid value; 130
interrupted.
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
    """Return a parser with the options for the stack's folder and the form of the output."""
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.add_argument(
        "--folder", type=Path, help="a local stack to use: its generations are replaced; started if it does not run"
    )
    made.add_argument("--markdown", action="store_true", help="print tables for bench/README.md")
    return made


def add_drain(to: argparse.ArgumentParser, *, changes: int, timeout_s: float) -> None:
    """Add the options of a drain."""
    to.add_argument("--changes", type=count, default=changes, help="changes in the log that is drained")
    to.add_argument("--drain-timeout", type=positive, default=timeout_s, help="longest time for each drain, in s")


def add_tables(to: argparse.ArgumentParser, default: tuple[str, ...], known: tuple[str, ...] = TABLES) -> None:
    """Add the option for the tables to measure."""

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
    """Parse a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, and not {text!r}")
    return found


def counts(text: str) -> tuple[int, ...]:
    """Parse whole numbers of at least 1, separated by commas.

    Raises:
        argparse.ArgumentTypeError: the text is not such a list.
    """
    return tuple(count(number) for number in text.split(","))


def positive(text: str) -> float:
    """Parse a number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    return _number(text, "a number above 0", lambda found: found > 0)


def not_negative(text: str) -> float:
    """Parse a number of at least 0.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    return _number(text, "a number from 0 on", lambda found: found >= 0)


def carry_out(measure: Callable[[], None]) -> int:
    """Measure, print errors, and return the exit status."""
    log_setup.setup("warning")
    # Clean up on both signals. A shell starts background jobs with SIGINT ignored.
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
