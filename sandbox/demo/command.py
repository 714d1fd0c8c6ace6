"""`scylla-cdc-bridge demo`: its options, what it starts and stops, and its exit status."""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from bridge.errors import BridgeError, StartupError
from bridge.runtime import signals
from sandbox.errors import LocalStackError
from sandbox.stack.jars import JARS_VARIABLE
from schemas.errors import SchemaError

if TYPE_CHECKING:
    from sandbox.demo.course import Result, Settings
    from sandbox.demo.screen import Screen

    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

DEFAULT_OUTPUT: Final = Path("build/demo")
DEFAULT_JARS: Final = Path(".local-stack/jars")

_OK, _FAULTY, _NOT_STARTED = 0, 1, 2
_SIGNALLED: Final = 128
_EXTRA: Final = ("matplotlib", "psutil")


def add_parser(subparsers: Subparsers) -> None:
    """Add `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="run the whole bridge on this machine and write a report",
        description="Start a local stack, let a simulated ScyllaDB cluster write while nodes join, carry its changes "
        "into Kafka with the bridge, check every single one, and write summary.json and report.html.",
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=45.0, help="how long changes are written, 10 or more (default: %(default)g)"
    )
    parser.add_argument(
        "--rate",
        type=_rate,
        default=1000.0,
        help="writes each second, of all tables together, 1.3 changes each (default: %(default)g)",
    )
    parser.add_argument("--seed", type=int, default=1, help="decides all that is random (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help="folder for the results (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="the local stack's folder; one that runs there is used, its generations replaced, and left running "
        "(default: `stack` in the results' folder)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the local stack running, to look at its topics and tables"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; gives the exit status: 0 all well, 1 a fault was found or met, 2 it could not start."""
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        _complain(f"The demo needs {' and '.join(missing)}: pip install 'scylla-cdc-bridge[demo]'")
        return _NOT_STARTED
    from sandbox.demo.screen import Screen

    try:
        with _signals_as_exceptions(), _only_one(args.output):
            return _run(args, Screen())
    except _SignalledError as signalled:
        _complain(f"Ended by {signal.Signals(signalled.number).name}; everything that was started is stopped")
        return _SIGNALLED + signalled.number
    except (LocalStackError, StartupError) as error:
        _complain(str(error))
        return _NOT_STARTED
    except OSError as error:
        _complain(f"{error.filename or args.output}: {error.strerror}")
        return _NOT_STARTED
    except (BridgeError, SchemaError) as error:
        _complain(str(error))
        return _FAULTY


def _run(args: argparse.Namespace, screen: Screen) -> int:
    # Not before it is known that the demo's packages are there.
    from sandbox.demo.course import Settings, carry_out, forget_former
    from sandbox.demo.report.summary import faults, summary_lines
    from sandbox.demo.stage import running_stack

    settings = Settings(seconds=args.seconds, rate_per_s=args.rate, seed=args.seed, output=args.output)
    forget_former(settings.output)
    named = os.environ.get(JARS_VARIABLE)
    found: list[str] = []
    stack = running_stack(
        args.folder or settings.output / "stack",
        jars=Path(named) if named else DEFAULT_JARS,
        keep=args.keep,
        # A folder that the user named may hold what the user wants to keep; and faults are looked for in the data.
        delete_data=lambda: args.folder is None and not found,
        say=screen.say,
    )
    with stack as running:
        result = carry_out(running, settings, screen)
        found += faults(result.summary)
        _write(result, settings)
    screen.say("")
    for line in summary_lines(result.summary):
        screen.say(line)
    screen.say(f"Report       {settings.output / 'report.html'}")
    for line in (*found, *result.summary["examples"]):
        _complain(line)
    return _FAULTY if found else _OK


def _write(result: Result, settings: Settings) -> None:
    from sandbox.demo.report.page import report

    text = json.dumps(result.summary, indent=2, ensure_ascii=False)
    (settings.output / "summary.json").write_text(text + "\n", encoding="utf-8")
    (settings.output / "report.html").write_text(report(result.summary, result.observations), encoding="utf-8")


def _seconds(text: str) -> float:
    least = 10
    seconds = float(text)
    if seconds < least:
        raise argparse.ArgumentTypeError(f"{text}: two changes of generation need {least} s at least")
    return seconds


def _rate(text: str) -> float:
    rate = float(text)
    if not 1 <= rate <= 20_000:
        raise argparse.ArgumentTypeError(f"{text}: not a rate from 1 to 20000 a second")
    return rate


class _SignalledError(BaseException):
    """A signal asks for the end. Like KeyboardInterrupt, nothing but `run` may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM unwind the demo once; while it cleans up, more of them change nothing."""

    def unwind(number: int, _frame: FrameType | None) -> NoReturn:
        for one in signals.STOP_SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise _SignalledError(number)

    with signals.restoring_handlers():
        for one in signals.STOP_SIGNALS:
            signal.signal(one, unwind)
        yield


@contextmanager
def _only_one(output: Path) -> Iterator[None]:
    """Keep a second demo out of the folder."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / ".lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"Another demo is at work in {output}. Wait until it is done.") from None
        yield


def _complain(line: str) -> None:
    sys.stderr.write(f"{line}\n")
