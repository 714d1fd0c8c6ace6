"""A fault counts only when something met it: the run's own steps, without a stack, a job or a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import broken, fault_points, injection, run
from tests.chaos.__main__ import main
from tests.chaos.fault_points import FaultError, Point
from tests.chaos.outcome import Leg, Outcome
from tests.chaos.plan import KINDS, Fault, plan
from tests.chaos.run import Run
from tests.chaos.witness import Counts
from tests.chaos.writing import TABLES

POINT: Point = "mid-produce"


class Job:
    """A job that obeys at once, but the first `hangs` waits for its end time out."""

    def __init__(
        self, _stack: Any, folder: Path, name: str, _tables: Any, settings: dict[str, Any], _environment: Any
    ) -> None:
        self.folder, self.settings, self.log = folder, settings, folder / f"{name}.log"
        self.process: Any = None
        self.waited: list[float] = []
        self.hangs = 0

    def start(self) -> None:
        self.process = SimpleNamespace(poll=lambda: None, wait=self._wait, returncode=None)
        self.log.write_text("lanes, from\n" * len(TABLES))

    def stop(self) -> int:
        self._wait(60)
        return 0

    def _wait(self, timeout_s: float) -> None:
        self.waited.append(timeout_s)
        if self.hangs:
            self.hangs -= 1
            raise TimeoutExpired("job", timeout_s)

    def jvm(self) -> Any:
        return SimpleNamespace(kill=lambda: None)

    def workers(self) -> list[Any]:
        return []

    def log_tail(self, _lines: int) -> str:
        return self.log.read_text()


class World:
    """A run whose clock advances only while it sleeps; `meanwhile` is what others do then."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, isolated: bool = False) -> None:
        self.now_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.commands: list[str] = []
        self.said: list[str] = []
        self.published = 0
        self.quotas: list[float] = []
        monkeypatch.setattr(run, "BridgeJob", Job)
        monkeypatch.setattr(run, "Topics", lambda *_: SimpleNamespace(reached=self._reached))
        monkeypatch.setattr(run, "Writing", lambda *_, **__: SimpleNamespace(error=None))
        monkeypatch.setattr(injection, "producer_quota", self._limit)
        for module in (run, injection):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep))
            monkeypatch.setattr(module, "run_command", self._do)
            monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=self._do, TimeoutExpired=TimeoutExpired))
        stack: Any = SimpleNamespace(kafka="", registry="", cql="")
        self.run = Run(stack, folder, [Leg(1, 1.0)], say=self.said.append, isolated=isolated)
        self.job.start()

    @property
    def job(self) -> Any:
        return self.run.job

    @property
    def faults(self) -> Path:
        folder = self.job.folder / "faults"
        assert isinstance(folder, Path)
        return folder

    def met(self, kind: str, number: int = 1) -> list[str]:
        """The kinds that count after such a fault."""
        self.run.inject(Fault(kind, 1.0, POINT, number))
        return [fault.kind for fault, _ in self.run.outcome.faults]

    def come_by(self) -> None:
        """What a process does at the point, but for what then becomes of it."""
        if (self.faults / POINT).exists():
            (self.faults / POINT).rename(self.faults / f"{POINT} fired")

    @contextmanager
    def _limit(self, _server: str, bytes_per_s: float) -> Iterator[None]:
        self.quotas.append(bytes_per_s)
        yield
        self.quotas.append(0.0)

    def log(self, words: str) -> None:
        """What the job says in its log."""
        with self.job.log.open("a") as log:
            log.write(f"{words}\n")

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
    """A fault that is armed again has not fired until a process reaches its point again, disarmed or not."""
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
    """A fault counts only if a process reaches its point, and nothing else happens to the job."""
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
    """If the other of two jobs stays, it loses its own checkpoint, not the unused one."""
    first = Path(world.job.settings["spark"]["checkpoint"])
    assert world.met("second job", CHECKPOINT_OF_ITS_OWN) == ["second job"]
    now = Path(world.job.settings["spark"]["checkpoint"])
    assert now != first
    for checkpoint in (first, now):
        (checkpoint / "offsets").mkdir(parents=True)
    world.met("checkpoint deleted")
    assert ((first / "offsets").exists(), (now / "offsets").exists()) == (True, False)


def test_disk_that_fails_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkpoint is on a disk of its own. The fault hits the disk in use, and none stays mounted."""
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


def test_run_shows_something_only_with_all_its_faults() -> None:
    """A run is clean only if each planned fault hit something; the closing line names those that did not."""
    worker, zombie = (Fault(kind, 1.0, POINT, 1) for kind in ("kill a worker", "zombie job"))
    right = Counts(written=10)
    assert not Outcome(1, counts=right).clean
    met = Outcome(1, planned=2, faults=[(worker, 2.0), (zombie, 2.0)], counts=right)
    assert met.clean
    assert "2 of 2 faults met, " in str(met)
    missed = Outcome(1, planned=4, faults=[(worker, 2.0)], unmet=[zombie, worker, zombie], counts=right)
    assert not missed.clean
    assert "1 of 4 faults met (not met: zombie job 2, kill a worker 1), " in str(missed)
    with pytest.raises(ValueError, match="no such fault: kill the bus"):
        Leg(1, 1.0, ("kill the bus", "kill the job"))


def test_fault_that_nothing_met_is_tried_again(world: World) -> None:
    """A process that is too late for the first try hits the second. The run reports a fault that nothing hits."""
    world.meanwhile = lambda: world.come_by() if world.now_s > 60 else None
    assert world.met("err at a point") == ["err at a point"]
    assert (world.run.outcome.unmet, world.said.count("    nothing met it")) == ([], 1)
    world.meanwhile = lambda: None
    world.met("stop a worker")
    assert [fault.kind for fault in world.run.outcome.unmet] == ["stop a worker"]


@pytest.mark.parametrize(
    ("option", "value", "there_are"),
    [("--kinds", "kill the job,kill the bus", KINDS), ("--variant", "progress apar", tuple(broken.IN_JOB))],
)
def test_what_is_mistyped_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    value: str,
    there_are: tuple[str, ...],
) -> None:
    """A run with unknown faults or an unknown variant does not begin, and the error lists the known ones."""
    monkeypatch.setattr("tests.chaos.__main__._isolate", lambda: pytest.fail("it began"))
    with pytest.raises(SystemExit) as ended:
        main(["--seed", "1", option, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err.rpartition("error: ")[2]
    assert value.rpartition(",")[2] in said
    assert [one for one in there_are if one not in said] == []


def test_faults_that_cannot_be_done_here_are_told_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose faults all need namespaces does not begin on a machine without them."""
    monkeypatch.delenv("SCYLLA_CDC_BRIDGE_TEST_ISOLATED", raising=False)
    monkeypatch.setattr("tests.chaos.__main__._isolate", lambda: None)
    monkeypatch.setattr("tests.chaos.__main__.LocalStack.up", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(SystemExit) as ended:
        main(["--seed", "1", "--kinds", "full disk"])
    assert ended.value.code == 2
    assert "none of these can be done here" in capsys.readouterr().err


def test_clock_counts_only_while_it_is_off(world: World) -> None:
    """A clock that is right again before a process reads it was not a fault."""
    off: list[int] = []
    looks: Callable[[int], bool] = (0).__eq__

    def look() -> None:
        off.append(int((world.faults / "clock").read_text()))
        if looks(off[-1]):
            (world.faults / fault_points._CLOCK_ASKED).touch()

    world.meanwhile = look
    assert world.met("clock jump", 5) == []
    look()
    assert off[-1] == 0
    looks = bool
    assert world.met("clock jump", 5) == ["clock jump"]
    assert {-10_000_000, 10_000_000} < set(off)


def test_hung_task_counts_when_it_hangs_and_must_be_noticed(world: World) -> None:
    """Nobody comes by: no fault. Who comes by and is not noticed is a problem of the run; else it goes on at once."""
    assert world.met("hung task") == []
    world.meanwhile = world.come_by
    assert world.met("hung task") == ["hung task"]
    (problem,) = world.run.outcome.problems
    assert problem == "hung task (mid-produce, 1): not noticed in 200 s"
    began_s = world.now_s

    def notice() -> None:
        world.come_by()
        if fault_points.fired(world.faults, POINT):
            world.log(f"ks.t: its query has shown no progress for 24 s, while it waits; {run._HUNG}")

    world.meanwhile = notice
    assert world.met("hung task") == ["hung task", "hung task"]
    assert world.run.outcome.problems == [problem]
    assert world.now_s - began_s < 10


def test_throttling_counts_when_the_job_says_so(world: World) -> None:
    """A quota under which the job writes nothing is no fault. It is lifted each time."""
    assert world.met("throttled broker") == []
    assert set(world.quotas[::2]) == {injection._QUOTA_BYTES_PER_S}
    assert set(world.quotas[1::2]) == {0.0}
    world.meanwhile = lambda: world.log("ks.t.0: Kafka's broker 1 throttles it for 3.4 s because of a quota")
    assert world.met("throttled broker") == ["throttled broker"]


def test_slow_node_counts_when_an_answer_was_late(world: World) -> None:
    """Nobody asks: no fault. The node is quick again afterwards."""
    node = world.run.node
    assert world.met("slow CQL node") == []
    assert node._delay_s == 0.0

    def ask() -> None:
        node.delayed += node._delay_s > 0

    world.meanwhile = ask
    assert world.met("slow CQL node", 300) == ["slow CQL node"]
    assert node._delay_s == 0.0


def test_lagging_node_counts_when_an_answer_was_older(world: World) -> None:
    """While the streams do not change, the older view is the present one: no fault. The node lags no longer then."""
    node = world.run.node
    assert world.met("lagging node") == []
    assert not node._lags

    def answer() -> None:
        node.outdated += node._lags

    world.meanwhile = answer
    assert world.met("lagging node") == ["lagging node"]
    assert not node._lags


def test_every_kind_is_planned_and_can_be_injected(world: World) -> None:
    """A plan of as many faults as there are kinds has each of them, and the injector knows each."""
    assert {fault.kind for fault in plan(1, 0, least=len(KINDS))} == set(KINDS)
    assert world.run._injector.kinds == set(KINDS)


def test_look_at_the_former_clock_is_none_at_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reads the clock just before it changes has not seen the new time."""
    replace = Path.replace

    def looked_before(new: Path, target: Path) -> Path:
        (tmp_path / fault_points._CLOCK_ASKED).touch()
        return replace(new, target)

    monkeypatch.setattr(Path, "replace", looked_before)
    fault_points.set_clock(tmp_path, 1)
    assert not fault_points.clock_asked(tmp_path)


def test_job_that_outlives_its_jvm_is_a_problem(world: World) -> None:
    """A job that does not end is reported and killed, and the run continues."""
    world.job.hangs = 1
    assert world.met("kill the JVM") == ["kill the JVM"]
    assert world.run.outcome.problems == ["the job goes on 60 s after its JVM has died"]
    assert len(world.job.waited) == 2


def test_job_that_does_not_stop_is_a_problem(world: World) -> None:
    """A job that does not stop at the end of a run is a problem; the run still checks what was published."""
    world.job.hangs = 1
    world.run._stop_job()
    assert world.run.outcome.problems == ["the job did not stop within 60 s"]


def test_network_is_set_right_whatever_happens(world: World) -> None:
    """Or all that follows would be slow."""
    world.meanwhile = lambda: pytest.fail("enough of it")
    with pytest.raises(pytest.fail.Exception):
        world.met("slow network")
    assert [command.split()[2] for command in world.commands] == ["add", "del"]


def test_disk_that_is_emptied_meanwhile(world: World) -> None:
    """What fills the disk may be gone before its time; where it never was, the disk was not full."""
    filler = Path(world.job.settings["spark"]["checkpoint"]) / "filler"
    filler.symlink_to("/dev/full")
    world.meanwhile = lambda: filler.unlink(missing_ok=True)
    assert world.met("full disk") == ["full disk"]
    filler.parent.rmdir()
    assert world.met("full disk") == ["full disk"]
