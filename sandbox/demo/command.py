"""The command `scylla-cdc-bridge demo`: its options and its exit statuses."""

from __future__ import annotations

import argparse
import fcntl
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
    from sandbox.demo.console import ProgressConsole
    from sandbox.demo.demo_run import DemoResult, DemoSettings

    # The type of what add_subparsers() returns has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

DEFAULT_OUTPUT: Final = Path("build/demo")
DEFAULT_JARS: Final = Path(".local-stack/jars")

_OK, _FAULTY, _NOT_STARTED = 0, 1, 2
_SIGNALLED: Final = 128


def add_parser(subparsers: Subparsers) -> None:
    """Add the command `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="run the whole bridge on this machine and write a report",
        description="Start Kafka, a schema registry and a simulated ScyllaDB cluster on this machine. Write to the "
        "cluster while nodes join it, publish its changes to Kafka with the bridge, check every change, and write "
        "summary.json and report.html.",
    )
    parser.add_argument(
        "--seconds",
        type=_parse_seconds,
        default=45.0,
        help="duration of the writes, 10 s or more (default: %(default)g)",
    )
    parser.add_argument(
        "--rate",
        type=_parse_rate,
        default=1000.0,
        help="writes per second to all tables together; a write makes 1.3 changes on average (default: %(default)g)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help="folder for the results (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder of the local stack. If a stack runs there, the demo uses it, replaces its CDC generations, and "
        "leaves it running (default: `stack` in the results' folder)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the local stack running, so that you can read its topics and tables"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo and return the exit status: 0 no fault, 1 a fault, 2 the demo could not start."""
    from sandbox.demo.console import ProgressConsole

    try:
        with _signals_as_exceptions(), _exclusive_lock(args.output):
            return _run_on_stack(args, ProgressConsole())
    except _SignalledError as signalled:
        _print_error(f"Ended by {signal.Signals(signalled.number).name}. All processes of the demo are stopped.")
        return _SIGNALLED + signalled.number
    except (LocalStackError, StartupError) as error:
        _print_error(str(error))
        return _NOT_STARTED
    except OSError as error:
        _print_error(f"{error.filename or args.output}: {error.strerror}")
        return _NOT_STARTED
    except (BridgeError, SchemaError) as error:
        _print_error(str(error))
        return _FAULTY


def _run_on_stack(args: argparse.Namespace, console: ProgressConsole) -> int:
    # Imported here: matplotlib takes long, and `--help` does not need it.
    from sandbox.demo.demo_run import DemoSettings, delete_former_results, run_demo
    from sandbox.demo.report.summary import faults, summary_lines
    from sandbox.demo.scenario import running_stack

    settings = DemoSettings(seconds=args.seconds, rate_per_s=args.rate, seed=args.seed, output=args.output)
    delete_former_results(settings.output)
    named = os.environ.get(JARS_VARIABLE)
    found: list[str] = []
    stack = running_stack(
        args.folder or settings.output / "stack",
        jars=Path(named) if named else DEFAULT_JARS,
        keep=args.keep,
        # Keep the data of a folder that the user named, and data in which the user may look for a fault.
        delete_data=lambda: args.folder is None and not found,
        say=console.say,
    )
    with stack as running:
        result = run_demo(running, settings, console)
        found += faults(result.summary)
        _write_results(result, settings)
    console.say("")
    for line in summary_lines(result.summary):
        console.say(line)
    console.say(f"Report       {settings.output / 'report.html'}")
    for line in (*found, *result.summary["examples"]):
        _print_error(line)
    return _FAULTY if found else _OK


def _write_results(result: DemoResult, settings: DemoSettings) -> None:
    from sandbox.demo.report.page import report

    text = json.dumps(result.summary, indent=2, ensure_ascii=False)
    (settings.output / "summary.json").write_text(text + "\n", encoding="utf-8")
    (settings.output / "report.html").write_text(report(result.summary, result.observations), encoding="utf-8")


def _parse_seconds(text: str) -> float:
    least = 10
    seconds = float(text)
    if seconds < least:
        raise argparse.ArgumentTypeError(f"{text}: two generation changes need at least {least} s")
    return seconds


def _parse_rate(text: str) -> float:
    rate = float(text)
    if not 1 <= rate <= 20_000:
        raise argparse.ArgumentTypeError(f"{text}: not a rate from 1 to 20000 per second")
    return rate


class _SignalledError(BaseException):
    """A signal requests the end. Only `run` catches it, as with KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Raise an exception at the first Ctrl-C or SIGTERM, and ignore further ones while the demo cleans up."""

    def unwind(number: int, _frame: FrameType | None) -> NoReturn:
        for one in signals.STOP_SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise _SignalledError(number)

    with signals.restoring_handlers():
        for one in signals.STOP_SIGNALS:
            signal.signal(one, unwind)
        yield


@contextmanager
def _exclusive_lock(output: Path) -> Iterator[None]:
    """Lock the folder against a second demo."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / ".lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"Another demo runs in {output}. Wait until it is done.") from None
        yield


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
