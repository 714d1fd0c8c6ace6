"""A fault counts only when something met it: the run's own steps, without a stack, a job or a clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import fault_points, run
from tests.chaos.fault_points import FaultError, Point
from tests.chaos.plan import Fault
from tests.chaos.run import Leg, Run
from tests.chaos.writing import TABLES

POINT: Point = "mid-produce"


class Job:
    """A job that does what it is told, at once."""

    def __init__(
        self, _stack: Any, folder: Path, name: str, _tables: Any, settings: dict[str, Any], _environment: Any
    ) -> None:
        self.folder, self.settings, self.log = folder, settings, folder / f"{name}.log"
        self.process: Any = None
        self.waited: list[float] = []
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        self.process = SimpleNamespace(poll=lambda: None, wait=self.waited.append, returncode=None)
        self.log.write_text("lanes, from\n" * len(TABLES))

    def workers(self) -> list[Any]:
        return []

    def log_tail(self, _lines: int) -> str:
        return self.log.read_text()


class World:
    """A run whose clock stands still but while it sleeps; `meanwhile` is what others do then."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, isolated: bool = False) -> None:
        self.now_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.commands: list[str] = []
        self.said: list[str] = []
        self.published = 0
        monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep))
        monkeypatch.setattr(run, "BridgeJob", Job)
        monkeypatch.setattr(run, "Topics", lambda *_: SimpleNamespace(reached=self._reached))
        monkeypatch.setattr(run, "Writing", lambda *_, **__: SimpleNamespace(error=None))
        monkeypatch.setattr(run, "_do", self._do)
        monkeypatch.setattr(run, "subprocess", SimpleNamespace(run=self._do, TimeoutExpired=TimeoutExpired))
        stack: Any = SimpleNamespace(kafka="", registry="", cql="")
        self.run = Run(stack, folder, [Leg(1, 1.0)], say=self.said.append, isolated=isolated)
        self.job.start()

    @property
    def job(self) -> Any:
        return self.run._job

    @property
    def faults(self) -> Path:
        folder = self.job.folder / "faults"
        assert isinstance(folder, Path)
        return folder

    def met(self, kind: str, number: int = 1) -> list[str]:
        """The kinds that count after such a fault."""
        self.run._suffer(Fault(kind, 1.0, POINT, number))
        return [fault.kind for fault, _ in self.run._outcome.faults]

    def come_by(self) -> None:
        """What a process does at the point, but for what then becomes of it."""
        if (self.faults / POINT).exists():
            (self.faults / POINT).rename(self.faults / f"{POINT} fired")

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def _do(self, *command: Any, **_: object) -> Any:
        (words,) = command if isinstance(command[0], list) else (command,)
        self.commands.append(" ".join(words))
        return SimpleNamespace(returncode=0)

    def _reached(self, _: object) -> int:
        self.published += 1
        return self.published


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "run", monkeypatch)


def test_point_fires_anew_each_time_it_is_armed(tmp_path: Path) -> None:
    """Armed again, it has not fired, whether it is disarmed or not, until somebody comes by again."""
    for _ in range(2):
        fault_points.arm(tmp_path, POINT, "exception")
        assert not fault_points.fired(tmp_path, POINT)
        fault_points.disarm(tmp_path)
        assert not fault_points.fired(tmp_path, POINT)
        fault_points.arm(tmp_path, POINT, "exception")
        with pytest.raises(FaultError):
            fault_points._come_by(tmp_path, POINT)
        assert fault_points.fired(tmp_path, POINT)
        fault_points._come_by(tmp_path, POINT)


@pytest.mark.parametrize("kind", ["err at a point", "stop a worker", "die at a point", "zombie job"])
def test_point_that_nobody_comes_by_is_not_met(world: World, kind: str) -> None:
    """Nobody, then somebody, and then nobody comes by: that is one fault, and nothing else is done to the job."""
    assert world.met(kind) == []
    assert (world.run._made, world.job.waited) == (1, [])
    world.meanwhile = world.come_by
    assert world.met(kind) == [kind]
    made, waited = world.run._made, list(world.job.waited)
    world.meanwhile = lambda: None
    assert world.met(kind) == [kind]
    assert (world.run._made, world.job.waited) == (made, waited)
    assert not (world.faults / POINT).exists()


CHECKPOINT_OF_ITS_OWN = 3
"""As a second job's number: that one has another checkpoint, and stays."""


def test_checkpoint_that_is_deleted_is_in_use(world: World) -> None:
    """Where the other of two jobs stays, it loses its own checkpoint, not the one that nobody uses any more."""
    first = Path(world.job.settings["spark"]["checkpoint"])
    assert world.met("second job", CHECKPOINT_OF_ITS_OWN) == ["second job"]
    now = Path(world.job.settings["spark"]["checkpoint"])
    assert now != first
    for checkpoint in (first, now):
        (checkpoint / "offsets").mkdir(parents=True)
    world.met("checkpoint deleted")
    assert ((first / "offsets").exists(), (now / "offsets").exists()) == (True, False)


def test_disk_that_fails_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a disk, of which each checkpoint has one to itself; none stays mounted."""
    world = World(tmp_path / "run", monkeypatch, isolated=True)
    first = world.job.settings["spark"]["checkpoint"]
    world.met("second job", CHECKPOINT_OF_ITS_OWN)
    now = world.job.settings["spark"]["checkpoint"]
    mounted = [command.rpartition(" ")[2] for command in world.commands if "tmpfs" in command]
    assert mounted == [first, now]
    world.met("read-only checkpoint")
    remounted = [command.rpartition(" ")[2] for command in world.commands if "remount" in command]
    assert remounted == [now, now]
    world.run._clean_up()
    assert world.commands[-2:] == [f"umount -l {first}", f"umount -l {now}"]
