"""Named points of the lane protocol at which a process of a real job can be made to die, stop or wake.

Production code knows nothing of this. A test starts the job with `environment(folder)`: its processes (driver, planner,
workers) then import `hook/sitecustomize.py`, as any Python does, and that wraps what the lane publisher is given from
outside: its producer and its progress reader. In the folder lie the points that are armed, a file each, named like the
point and holding the manner; taking it away is the atomic step that makes a point fire once. `clock` holds how many
microseconds this machine's clock is off, by which windows are planned (`bridge.planning.server_clock`).

Only the standard library is imported here, because every Python process of the job imports it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, get_args

FOLDER: Final = "SCYLLA_CDC_BRIDGE_TEST_FAULTS"
VARIANT: Final = "SCYLLA_CDC_BRIDGE_TEST_VARIANT"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_PRODUCED: Final = 3
_CLOCK_ASKED: Final = "clock asked"
_EXITING: Final = 0x4
"""PF_EXITING of Linux: the process is shutting down."""

Point = Literal[
    "before init",
    "after init",
    "cursor read",
    "mid-produce",
    "before marker",
    "after marker",
    "before commit",
    "after commit",
    "before Spark's commit",
]
POINTS: Final[tuple[Point, ...]] = get_args(Point)
"""In the order in which a lane comes by."""
IN_LANE: Final = POINTS[:-1]
"""Those of the lane protocol itself; it knows nothing of Spark."""
OPENING: Final[tuple[Point, ...]] = ("before init", "after init", "cursor read")
"""Those that a lane comes by only when it opens its id again: a worker that is in step keeps it."""
IN_PRODUCER: Final = tuple(point for point in IN_LANE if point != "cursor read")
"""Those that a `Watched` producer comes by."""

Manner = Literal["exception", "kill", "stop"]
"""An exception in the process; SIGKILL to every process of the job; SIGSTOP to the process itself."""


class FaultError(Exception):
    """What a point raises that is armed with an exception."""


def environment(folder: Path, variant: str | None = None) -> dict[str, str]:
    """The environment variables that a job with fault points is started with.

    Args:
        folder: for this job alone; its processes are told by it.
        variant: a deliberately broken form of the protocol, one of `tests.chaos.broken`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = [str(_REPOSITORY / "tests" / "chaos" / "hook"), str(_REPOSITORY)]
    former = os.environ.get("PYTHONPATH")
    variables = {FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(path + ([former] if former else []))}
    return variables if variant is None else variables | {VARIANT: variant}


def arm(folder: Path, point: Point, manner: Manner) -> None:
    """Make a point fire once, in whichever task comes by first.

    That it fired when it was armed before is forgotten: else the second time would be met whoever comes by.
    """
    _taken(folder, point).unlink(missing_ok=True)
    (folder / point).write_text(manner, encoding="ascii")


def disarm(folder: Path) -> None:
    """Let no point fire any more."""
    for point in POINTS:
        (folder / point).unlink(missing_ok=True)


def fired(folder: Path, point: Point) -> bool:
    """Whether a point has fired since it was last armed."""
    return not (folder / point).exists() and _taken(folder, point).exists()


def _taken(folder: Path, point: Point) -> Path:
    """What an armed point's file is renamed to by whoever comes by."""
    return folder / f"{point} fired"


def set_clock(folder: Path, off_us: int) -> None:
    """Put the planner's clock forward, or back."""
    new = folder / "clock.new"
    new.write_text(str(off_us), encoding="ascii")
    new.replace(folder / "clock")
    # Only now: who looked just before has seen the former one.
    (folder / _CLOCK_ASKED).unlink(missing_ok=True)


def clock_asked(folder: Path) -> bool:
    """Whether anybody has looked at the clock since it was put."""
    return (folder / _CLOCK_ASKED).exists()


def processes(folder: Path) -> list[int]:
    """Every process that was started with this folder, orphans too; the ids of those that still run."""
    wanted = f"{FOLDER}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not ours
        if wanted in variables:
            found.append(int(entry.name))
    return found


def survivors(folder: Path) -> list[int]:
    """Those of them that nobody has killed: what is dying can still be seen while its memory is given back."""
    return [pid for pid in processes(folder) if not _is_dying(pid)]


def _is_dying(pid: int) -> bool:
    try:
        flags = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[6])
        status = (Path("/proc") / str(pid) / "status").read_text()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return bool(flags & _EXITING) or any(mask >> (signal.SIGKILL - 1) & 1 for mask in pending)


def signal_all(folder: Path, number: signal.Signals) -> int:
    """Send a signal to every process of a job; says to how many."""
    found = processes(folder)
    for pid in found:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return len(found)


# -- inside the job's processes ---------------------------------------------------------------------------------------


def install() -> None:
    """Have the points set as soon as the modules that they are in are imported."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    place = Path(folder)
    changes: dict[str, Callable[[ModuleType], None]] = {
        "bridge.publishing.lane_publisher": functools.partial(_watch_publisher, place),
        "bridge.engine.lane_task": functools.partial(_watch_lanes, place),
        "bridge.planning.server_clock": functools.partial(_shift_clock, place),
    }
    variant = os.environ.get(VARIANT)
    if variant is not None:
        from tests.chaos import broken

        name, breaking = broken.IN_JOB[variant]
        changes[name] = _both(breaking, changes.get(name))
    sys.meta_path.insert(0, _AfterImport(changes))


def _both(
    first: Callable[[ModuleType], None], second: Callable[[ModuleType], None] | None
) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        first(module)
        if second is not None:
            second(module)

    return change


class _AfterImport(MetaPathFinder):
    """Changes modules just after they were executed."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = dict(changes)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        change = self._changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        loader: Loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Watched:
    """A producer whose steps are points."""

    def __init__(self, producer: Any, progress_topic: str, reach: Callable[[Point], None]) -> None:
        self._producer = producer
        self._progress_topic = progress_topic
        self._reach = reach
        self._produced = 0

    def init(self) -> None:
        self._reach("before init")
        self._producer.init()
        self._reach("after init")

    def begin(self) -> None:
        self._produced = 0
        self._producer.begin()

    def produce(self, topic: str, *record: Any, **place: Any) -> None:
        marker = topic == self._progress_topic
        if marker:
            self._reach("before marker")
        self._producer.produce(topic, *record, **place)
        if marker:
            self._reach("after marker")
            return
        self._produced += 1
        if self._produced == _PRODUCED:
            self._reach("mid-produce")

    def produce_run(
        self,
        topic: str,
        frames: tuple[bytes, bytes],
        records: Iterable[tuple[bytes, bytes, bytes, bytes]],
        position_header: str | None,
    ) -> None:
        left = iter(records)
        for _, key, value, position in itertools.islice(left, max(0, _PRODUCED - self._produced)):
            headers = {} if position_header is None else {position_header: position}
            self.produce(topic, frames[0] + key, frames[1] + value, headers)
        # All at once, as without faults: whoever is killed from outside dies in the very code that is at work then.
        self._producer.produce_run(topic, frames, left, position_header)

    def commit(self) -> None:
        self._reach("before commit")
        self._producer.commit()
        self._reach("after commit")

    def abort(self) -> None:
        self._producer.abort()

    def close(self) -> None:
        self._producer.close()


def watched(cls: type[Any], reach: Callable[[Point], None]) -> None:
    """Set the points of a lane publisher's class."""
    make = cls.__init__

    def init(self: Any, producer: Callable[[], Any], read: Callable[[], bytes | None], **settings: Any) -> None:
        def read_progress() -> bytes | None:
            found = read()
            reach("cursor read")
            return found

        make(self, lambda: Watched(producer(), settings["progress_topic"], reach), read_progress, **settings)

    cls.__init__ = init


def _watch_publisher(folder: Path, module: ModuleType) -> None:
    def reach(point: Point) -> None:
        # The driver opens lanes too; a lane's attempt is what the points are about.
        if _in_task():
            _come_by(folder, point)

    watched(module.LanePublisher, reach)


def _watch_lanes(folder: Path, module: ModuleType) -> None:
    publish_lane = module.publish_lane
    point: Point = "before Spark's commit"

    def watched_lane(publishing: Any, lane: Any, *others: Any, **settings: Any) -> Any:
        report = publish_lane(publishing, lane, *others, **settings)
        if not (folder / point).exists():
            return report
        # Where all lanes of a micro-batch are done, nothing but Spark's own commit is left.
        batch = hashlib.sha256(str(lane.task.batch).encode()).hexdigest()
        done = folder / f"{lane.task.keyspace}.{lane.task.table} {batch}"
        done.mkdir(exist_ok=True)
        (done / str(lane.task.lane)).touch()
        if len(list(done.iterdir())) == lane.task.batch.layout.lanes:
            _come_by(folder, point)
        return report

    module.publish_lane = watched_lane


def shifted(cls: type[Any], folder: Path) -> None:
    """Have a `ServerTime` class take this machine's clock to be off by what the folder says."""
    make = cls.__init__

    def init(self: Any, ask: Callable[[], int], own_us: Callable[[], int], clock_s: Callable[[], float]) -> None:
        def off_us() -> int:
            try:
                by_us = int((folder / "clock").read_text(encoding="ascii"))
            except FileNotFoundError:
                return int(own_us())
            (folder / _CLOCK_ASKED).touch()
            return int(own_us()) + by_us

        make(self, ask, off_us, clock_s)

    cls.__init__ = init


def _shift_clock(folder: Path, module: ModuleType) -> None:
    shifted(module.ServerTime, folder)


def _in_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _come_by(folder: Path, point: Point) -> None:
    armed, taken = folder / point, _taken(folder, point)
    try:
        armed.rename(taken)
    except FileNotFoundError:
        return
    manner = taken.read_text(encoding="ascii")
    if manner == "exception":
        raise FaultError(f"fault point: {point}")
    if manner == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    # When their parent dies, the kernel sends stopped groups of processes a SIGHUP and wakes them: PySpark's workers,
    # of which we may be one, die of that, and the daemon that is woken would end them.
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    # Stopped first, so that none of them sees another die.
    signal_all(folder, signal.SIGSTOP)
    signal_all(folder, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
