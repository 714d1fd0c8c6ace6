"""Where it is measured: a local stack of the benchmark's own, or one that is there, and what machine that is."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.bridge_run import ROOT
from bench.figures import Figures
from bridge.local.errors import LocalStackError
from bridge.local.jars import JARS_VARIABLE
from bridge.local.stack import COMPONENTS, LocalStack
from spark.gateway import ARCHIVE

_JARS: Final = ROOT / ".local-stack" / "jars"
_DEFAULT_FOLDER: Final = ROOT / ".local-stack" / "bench"
_PACKAGES: Final = ("pyspark", "scylla-driver", "confluent-kafka", "fastavro", "pyarrow")


@contextmanager
def a_stack(folder: Path | None) -> Iterator[LocalStack]:
    """The stack in a folder, started and stopped again if it does not run; without a folder, a new one.

    Raises:
        LocalStackError: a server does not start.
    """
    place = _DEFAULT_FOLDER if folder is None else folder
    if folder is not None and _runs(place):
        yield LocalStack.load(place)
        return
    if folder is None:
        _remove_former(place)
    stack = LocalStack.up(place, report=say, jars=None if JARS_VARIABLE in os.environ else _JARS)
    try:
        yield stack
    except BaseException:
        # The logs stay for whoever looks into it.
        stack.down()
        raise
    stack.down(delete_data=folder is None)


def server_pids(stack: LocalStack) -> dict[str, list[int]]:
    """The processes of a stack's servers, by their names."""
    return {name: [pid] for name in COMPONENTS if (pid := stack.pid(name)) is not None}


def machine_now() -> Figures:
    """The machine, the versions that matter, and how busy it is now."""
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
    """Tell who waits what is done now."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def _runs(folder: Path) -> bool:
    try:
        return all(component.is_up for component in LocalStack.load(folder).status())
    except LocalStackError:
        return False


def _remove_former(folder: Path) -> None:
    """Stop and delete what an earlier run without `--folder` may have left."""
    try:
        LocalStack.load(folder).down(delete_data=True)
    except LocalStackError:
        shutil.rmtree(folder / "data", ignore_errors=True)
    shutil.rmtree(folder / "bench", ignore_errors=True)
