"""The local stack of a benchmark, and the description of the machine."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.errors import BenchError
from bench.figures import Figures
from bench.processes.bridge_run import ROOT
from sandbox.errors import LocalStackError
from sandbox.stack.jars import JARS_VARIABLE
from sandbox.stack.stack import COMPONENTS, LocalStack
from spark.jvm.launcher import ARCHIVE

_JARS: Final = ROOT / ".local-stack" / "jars"
_DEFAULT_FOLDER: Final = ROOT / ".local-stack" / "bench"
_PACKAGES: Final = ("pyspark", "scylla-driver", "confluent-kafka", "fastavro", "pyarrow")


@contextmanager
def a_stack(folder: Path | None) -> Iterator[LocalStack]:
    """Use the stack in a folder, and start and stop it if it does not run. Without a folder, use a new stack.

    Raises:
        BenchError: another benchmark uses the folder.
        LocalStackError: a server does not start.
    """
    place = _DEFAULT_FOLDER if folder is None else folder
    with _alone(place):
        yield from _stack(place, own=folder is None)


def _stack(place: Path, *, own: bool) -> Iterator[LocalStack]:
    if not own and _runs(place):
        yield LocalStack.load(place)
        return
    if own:
        _remove_former(place)
    stack = LocalStack.up(place, report=say, jars=None if JARS_VARIABLE in os.environ else _JARS)
    try:
        yield stack
    except KeyboardInterrupt:
        stack.down(delete_data=own)
        raise
    except BaseException:
        # Keep the logs, so that the user can find the cause.
        stack.down()
        raise
    stack.down(delete_data=own)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Lock the folder: a second benchmark would replace the generations and delete the data of the first."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock_file = place.joinpath(".bench-lock").open("w", encoding="ascii")
    except OSError as error:
        message = f"{place} can't be made, or written to: {error.strerror}. Name another folder with --folder"
        raise BenchError(message) from None
    with lock_file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another benchmark runs in {place}. Wait until it is done, or name another folder with --folder"
            raise BenchError(message) from None
        yield


def server_pids(stack: LocalStack) -> dict[str, list[int]]:
    """The processes of a stack's servers, by their names."""
    return {name: [pid] for name in COMPONENTS if (pid := stack.pid(name)) is not None}


def machine_now() -> Figures:
    """Describe the machine: cores, memory, versions and present load."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 1024**3),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "class_archive": ARCHIVE.is_file(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def say(line: str) -> None:
    """Print a line on the progress."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def _runs(folder: Path) -> bool:
    try:
        return all(component.is_up for component in LocalStack.load(folder).status())
    except LocalStackError:
        return False


def _remove_former(folder: Path) -> None:
    """Stop and delete the stack that an earlier run without `--folder` may have left."""
    try:
        former = LocalStack.load(folder)
    except LocalStackError:
        shutil.rmtree(folder / "data", ignore_errors=True)
    else:
        former.down(delete_data=True)
    shutil.rmtree(folder / "bench", ignore_errors=True)
