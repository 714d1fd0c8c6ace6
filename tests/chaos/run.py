"""One run: the stack, the writer, the job under faults, and the verdict."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from sandbox.stack.stack import LocalStack
from tests.chaos import fault_points
from tests.chaos.fault_points import Point
from tests.chaos.plan import ISOLATED, KINDS, Fault, plan
from tests.chaos.stops import Stops
from tests.chaos.witness import Counts, Topics, Witness
from tests.chaos.writing import TABLES, Writing
from tests.integration.support.running import BridgeJob

CONFIDENCE_MS: Final = 4000
TRANSACTION_TIMEOUT_MS: Final = 6000
MOST_RECORDS: Final = 7
"""So few that many micro-batches take several transactions of a lane, and whoever comes next goes on from `done`."""
_LATE_AFTER_S: Final = 2.5
_RECOVERS_WITHIN_S: Final = 400.0
_QUIET_S: Final = 120.0
_ENDS_WITHIN_S: Final = 60.0
_DISK_MIB: Final = 16
_EXCUSED_SHARE: Final = 0.05
_TRIES: Final = 3


class _NotMetError(Exception):
    """Nothing met the fault: no process came by its point, or none was there."""


@dataclass(frozen=True, slots=True)
class Leg:
    """What a seed decides: the faults of so many minutes, and what is written meanwhile.

    Attributes:
        seed: decides both.
        minutes: as of `tests.chaos.plan.plan`.
        kinds: the same.
        least: the same.
    """

    seed: int
    minutes: float
    kinds: Collection[str] = KINDS
    least: int = 5

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"no such fault: {', '.join(unknown)}")


@dataclass(slots=True)
class Outcome:
    """What a leg came to.

    Attributes:
        planned: faults that were to be.
        faults: those that something met, each with the seconds from its end to the next published change; None when
            none came.
        unmet: those that nothing met, however often they were tried: there is no kind that may be missed.
        counts: the witness's, of all that was written so far.
        problems: what else was wrong.
    """

    seed: int
    planned: int = 0
    faults: list[tuple[Fault, float | None]] = field(default_factory=list)
    unmet: list[Fault] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    generations: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, though there were changes and every fault that was planned."""
        disturbed = 0 < self.planned == len(self.faults)
        return self.counts.clean and not self.problems and self.counts.written > 0 and disturbed

    def __str__(self) -> str:
        slowest = max((took for _, took in self.faults if took is not None), default=0.0)
        missed = Counter(fault.kind for fault in self.unmet)
        by_kind = f" (not met: {', '.join(f'{kind} {number}' for kind, number in missed.items())})" if missed else ""
        return (
            f"chaos seed={self.seed}: {self.seconds:.0f} s, {len(self.faults)} of {self.planned} faults met{by_kind}, "
            f"{self.generations} generations, {self.counts}, "
            f"{len(self.problems)} other problems; slowest recovery {slowest:.1f} s"
        )


class Run:
    """Carries out one leg, or several with the same job. Not thread-safe.

    Args:
        stack: its servers are killed and started again.
        folder: for the job's files.
        legs: at least one; the first one's seed names the job, and may not have been used on this stack.
        say: gets a line for each step.
        isolated: whether mounts and the network are this process's own.
        rate_per_s: mutations a second.
        variant: a deliberately broken protocol, one of `tests.chaos.broken`.
    """

    def __init__(
        self,
        stack: LocalStack,
        folder: Path,
        legs: Sequence[Leg],
        *,
        say: Callable[[str], None],
        isolated: bool = False,
        rate_per_s: float = 60.0,
        variant: str | None = None,
    ) -> None:
        self._stack, self._folder, self._say, self._isolated = stack, folder, say, isolated
        self._variant = variant
        self._legs = legs
        self._outcome = Outcome(legs[0].seed)
        self._name = f"chaos{legs[0].seed}"
        self._topics = [f"{self._name}.{table}" for table in TABLES]
        self._reader = Topics(stack.kafka, stack.registry)
        self._mounts: list[Path] = []
        self._first_checkpoint = self._new_checkpoint(folder)
        self._lanes = 2
        self._made = 0
        self._fault: Fault | None = None
        self._stops = Stops(TABLES)
        self._writing = Writing(stack.cql, seed=legs[0].seed, rate_per_s=rate_per_s, late_after_s=_LATE_AFTER_S)
        self._job: BridgeJob = self._new_job()

    def carry_out(self) -> list[Outcome]:
        """Write, publish and disturb; at the end of each leg let everything arrive, and look at all of it so far.

        Ends with the first leg that is not clean.
        """
        outcomes = []
        try:
            for leg in self._legs:
                outcomes.append(self._carry_out(leg, last=leg is self._legs[-1]))
                if not outcomes[-1].clean:
                    self._keep_evidence()
                    break
        finally:
            self._writing.end()
            self._clean_up()
        return outcomes

    def _carry_out(self, leg: Leg, *, last: bool) -> Outcome:
        outcome, began_s = Outcome(leg.seed), time.monotonic()
        self._outcome = outcome
        left_out = () if self._isolated else ISOLATED
        faults = plan(leg.seed, leg.minutes, [kind for kind in leg.kinds if kind not in left_out], least=leg.least)
        outcome.planned = len(faults)
        self._say(f"seed {leg.seed}: " + "; ".join(map(str, faults)))
        if self._job.process is None:
            self._writing.start()
            self._job.start()
            self._await_progress("the start", 0)
        else:
            self._writing.take_up(leg.seed)
        for fault in faults:
            self._calm(fault.calm_s)
            self._suffer(fault)
        self._calm(leg.minutes * 60 - (time.monotonic() - began_s))
        with self._writing.pause():
            outcome.generations = self._writing.generations
            self._drain()
            if last:
                self._end()
            self._hear_stops()
            outcome.seconds = time.monotonic() - began_s
            witness = Witness(TABLES, self._writing.lines(), self._writing.late)
            for record in self._reader.read(self._topics):
                witness.see(*record)
        outcome.counts = counts = witness.close()
        if counts.late > _EXCUSED_SHARE * counts.written:
            outcome.problems.append(f"{counts.late} changes were written too slowly for their absence to tell anything")
        return outcome

    def _keep_evidence(self) -> None:
        """Say what is wrong, and keep both sides of it: the next run on this stack makes the tables anew."""
        for line in self._outcome.counts.examples + self._outcome.problems:
            self._say(line)
        (self._folder / "written.jsonl").write_text("\n".join(map(str.strip, self._writing.lines())) + "\n")
        with (self._folder / "arrived.txt").open("w", encoding="utf-8") as arrived:
            for topic, partition, key, value in self._reader.read(self._topics):
                print(topic, partition, key.hex(), value, file=arrived)

    # -- the job ------------------------------------------------------------------------------------------------------

    def _new_job(self) -> BridgeJob:
        self._made += 1
        folder = self._folder / f"job{self._made}"
        folder.mkdir()
        settings: dict[str, Any] = {
            "kafka": {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS},
            "reading": {"confidence_ms": CONFIDENCE_MS, "max_window_ms": 10_000},
            "publishing": {"topic": self._name + ".{keyspace}.{table}", "max_transaction_records": MOST_RECORDS},
            "spark": {"checkpoint": str(self._first_checkpoint), "lanes": self._lanes},
        }
        environment = fault_points.environment(folder / "faults", self._variant)
        return BridgeJob(self._stack, folder, self._name, list(TABLES), settings, environment)

    def _new_checkpoint(self, folder: Path) -> Path:
        """Make a folder for a checkpoint, on a disk of its own where there can be such."""
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True)
        if self._isolated:
            _do("mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(checkpoint))
            self._mounts.append(checkpoint)
        return checkpoint

    @property
    def _checkpoint(self) -> Path:
        """Where the present job has its own: of two jobs the one may have stayed that has another than the first."""
        return Path(self._job.settings["spark"]["checkpoint"])

    def _again(self) -> None:
        """Start the job anew, as its supervisor would."""
        self._job.settings["spark"]["lanes"] = self._lanes
        self._job.start()

    def _kill(self, job: BridgeJob) -> None:
        faults = self._faults(job)
        fault_points.disarm(faults)
        for _ in range(100):
            if not fault_points.signal_all(faults, signal.SIGKILL):
                break
            time.sleep(0.05)
        assert job.process is not None
        job.process.wait(30)

    @staticmethod
    def _faults(job: BridgeJob) -> Path:
        return job.folder / "faults"

    def _calm(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._look_after()
            time.sleep(0.2)

    def _look_after(self) -> None:
        """Start a job that has ended, as Kubernetes would."""
        if self._writing.error is not None:
            raise self._writing.error
        self._hear_stops()
        process = self._job.process
        if process is not None and process.poll() is not None:
            self._say(f"  the job has ended with {process.returncode}; starting it again")
            # What it left of its own kind must not be taken for the new one.
            fault_points.signal_all(self._faults(self._job), signal.SIGKILL)
            self._again()

    def _hear_stops(self) -> None:
        """Count a table that was given up as a problem: its job would be started again, and nobody would know."""
        logs = [self._log(number) for number in range(1, self._made + 1)]
        for said in self._stops.new(logs):
            self._say(f"    {said}")
            self._outcome.problems.append(f"after {self._fault or 'the start'}: {said}")

    def _log(self, number: int) -> Path:
        return self._folder / f"job{number}" / f"{self._name}.log"

    def _reached(self) -> int:
        return self._reader.reached(self._topics)

    def _await_progress(self, what: str, before: int) -> float | None:
        began_s = time.monotonic()
        while time.monotonic() - began_s < _RECOVERS_WITHIN_S:
            self._look_after()
            now = self._reached()
            if now > before >= 0:
                return time.monotonic() - began_s
            # Kafka did not say before.
            before = now if before < 0 else before
            time.sleep(0.3)
        self._outcome.problems.append(f"after {what}: nothing was published for {_RECOVERS_WITHIN_S:.0f} s")
        self._say(self._job.log_tail(15))
        return None

    def _drain(self) -> None:
        """Wait until what was written has been read: until the topics have stood still beyond every window."""
        self._say(f"written: {self._writing.written}; waiting for the rest")
        began_s = last_s = time.monotonic()
        last = self._reached()
        # Beyond any window, and long enough for a job whose start has only just been disturbed.
        quiet_s = CONFIDENCE_MS / 1000 + _QUIET_S
        while time.monotonic() - last_s < quiet_s and time.monotonic() - began_s < 2 * _RECOVERS_WITHIN_S:
            self._look_after()
            now = self._reached()
            if now > last:
                last, last_s = now, time.monotonic()
            elif (
                # What comes a second time may come behind all else.
                time.monotonic() - last_s >= CONFIDENCE_MS / 1000
                and now >= self._writing.written - len(self._writing.late)
            ):
                break
            time.sleep(1.0)

    def _end(self) -> None:
        try:
            status = self._job.stop()
        except subprocess.TimeoutExpired as error:
            self._outcome.problems.append(f"the job did not stop within {error.timeout:.0f} s")
            return
        if status != 0:
            self._outcome.problems.append(f"the job did not stop cleanly: status {status}")

    def _clean_up(self) -> None:
        for number in range(1, self._made + 1):
            fault_points.signal_all(self._folder / f"job{number}" / "faults", signal.SIGKILL)
        for mount in self._mounts:
            subprocess.run(["umount", "-l", str(mount)], check=False)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _suffer(self, fault: Fault) -> None:
        self._say(f"  {fault}")
        self._hear_stops()
        self._fault = fault
        how: Callable[[Fault], None] = {
            "kill the JVM": self._kill_jvm,
            "kill a worker": self._kill_worker,
            "kill the job": self._kill_job,
            "die at a point": self._die_at_point,
            "err at a point": self._err_at_point,
            "stop a worker": self._stop_worker,
            "stop the job": self._stop_job,
            "zombie job": self._zombie_job,
            "second job": self._second_job,
            "kill the broker": self._kill_broker,
            "kill the CQL server": self._kill_cql,
            "kill the registry": self._kill_registry,
            "checkpoint deleted": self._delete_checkpoint,
            "other lanes": self._other_lanes,
            "clock jump": self._clock_jump,
            "full disk": self._full_disk,
            "read-only checkpoint": self._read_only,
            "slow network": self._slow_network,
            "network stall": self._stall,
        }[fault.kind]
        for _ in range(_TRIES):
            try:
                how(fault)
                break
            except _NotMetError:
                # Whoever is to meet it may only just be coming up, after the fault before this one.
                self._say("    nothing met it")
                self._await_progress(f"{fault}, which nothing met,", self._reached())
        else:
            self._outcome.unmet.append(fault)
            return
        self._look_after()
        took_s = self._await_progress(str(fault), self._reached())
        self._outcome.faults.append((fault, took_s))
        self._say(f"    publishing again after {'-' if took_s is None else f'{took_s:.1f} s'}")

    def _kill_jvm(self, _: Fault) -> None:
        # While the job is only just starting there may be none yet.
        try:
            self._job.jvm().kill()
        except (ValueError, psutil.NoSuchProcess):
            raise _NotMetError from None
        assert self._job.process is not None
        try:
            self._job.process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            problem = f"the job goes on {_ENDS_WITHIN_S:.0f} s after its JVM has died"
            self._say(f"    {problem}\n{self._job.log_tail(15)}")
            self._outcome.problems.append(problem)
            self._kill(self._job)

    def _kill_worker(self, fault: Fault) -> None:
        doomed = self._job.workers()
        try:
            doomed[fault.number % len(doomed)].kill()
        except (ZeroDivisionError, psutil.NoSuchProcess):
            raise _NotMetError from None

    def _kill_job(self, _: Fault) -> None:
        self._kill(self._job)

    def _arm(self, point: Point, manner: fault_points.Manner) -> None:
        fault_points.arm(self._faults(self._job), point, manner)
        if point in fault_points.OPENING:
            for worker in self._job.workers():
                with suppress(psutil.NoSuchProcess):
                    worker.kill()

    def _at_point(self, fault: Fault, manner: fault_points.Manner) -> bool:
        faults = self._faults(self._job)
        point = fault.point
        self._arm(point, manner)
        until_s = time.monotonic() + 40
        while time.monotonic() < until_s and not fault_points.fired(faults, point):
            if manner != "kill":
                self._look_after()
            time.sleep(0.05)
        # Whoever comes by takes the file or we do: only now it is certain which.
        fault_points.disarm(faults)
        return fault_points.fired(faults, point)

    def _die_at_point(self, fault: Fault) -> None:
        if not self._at_point(fault, "kill"):
            raise _NotMetError
        assert self._job.process is not None
        with suppress(subprocess.TimeoutExpired):
            self._job.process.wait(5)
        self._kill(self._job)

    def _err_at_point(self, fault: Fault) -> None:
        if not self._at_point(fault, "exception"):
            raise _NotMetError

    def _stop_worker(self, fault: Fault) -> None:
        """A worker stands still inside the protocol until its transaction has timed out, then goes on."""
        if not self._at_point(fault, "stop"):
            raise _NotMetError
        time.sleep(_beyond_transaction(fault))
        fault_points.signal_all(self._faults(self._job), signal.SIGCONT)

    def _stop_job(self, fault: Fault) -> None:
        faults = self._faults(self._job)
        if not fault_points.signal_all(faults, signal.SIGSTOP):
            raise _NotMetError
        time.sleep(_beyond_transaction(fault))
        fault_points.signal_all(faults, signal.SIGCONT)

    def _other_job(self, fault: Fault) -> BridgeJob:
        other = self._new_job()
        if fault.number % 3 == 0:
            other.settings["spark"]["checkpoint"] = str(self._new_checkpoint(other.folder))
        if fault.number % 5 == 0:
            other.settings["spark"]["lanes"] = 1 + self._lanes % 4
            self._say(f"    the other one with {other.settings['spark']['lanes']} lanes")
        other.start()
        until_s = time.monotonic() + _RECOVERS_WITHIN_S
        while other.log.read_text(errors="replace").count("lanes, from") < len(TABLES):
            if time.monotonic() > until_s or other.process is None or other.process.poll() is not None:
                self._outcome.problems.append(f"a second job did not come up:\n{other.log_tail(10)}")
                break
            time.sleep(0.2)
        return other

    def _zombie_job(self, fault: Fault) -> None:
        """A job stands still, another one takes over, and the first one wakes and goes on."""
        if not self._at_point(fault, "stop"):
            raise _NotMetError
        zombie, faults = self._job, self._faults(self._job)
        fault_points.signal_all(faults, signal.SIGSTOP)
        self._job = self._other_job(fault)
        # It has opened every lane, so what the one that stands still had begun is settled, and not counted here.
        self._await_progress("another job's start", self._reached())
        fault_points.signal_all(faults, signal.SIGCONT)
        self._both(zombie, self._job, fault)

    def _second_job(self, fault: Fault) -> None:
        """The job is started twice."""
        self._both(self._job, self._other_job(fault), fault)

    def _both(self, older: BridgeJob, newer: BridgeJob, fault: Fault) -> None:
        """Both run for a while; then one of them is killed."""
        time.sleep(12 + fault.number % 5)
        goes, stays = (older, newer) if fault.number % 2 else (newer, older)
        self._kill(goes)
        self._job, self._lanes = stays, stays.settings["spark"]["lanes"]

    def _kill_broker(self, fault: Fault) -> None:
        self._stack.kill("kafka")
        time.sleep(1 + fault.number % 5)
        self._stack.start("kafka")

    def _kill_cql(self, fault: Fault) -> None:
        with self._writing.hold():
            # The server writes its commit log out once a second.
            time.sleep(2)
            self._stack.kill("cql")
            time.sleep(fault.number % 3)
            self._stack.start("cql")
            self._writing.await_server()

    def _kill_registry(self, fault: Fault) -> None:
        self._stack.kill("registry")
        # A worker that starts now has to find the schemas' ids somewhere else.
        with suppress(_NotMetError):
            self._kill_worker(fault)
        time.sleep(3 + fault.number % 5)
        self._stack.start("registry")

    def _delete_checkpoint(self, fault: Fault) -> None:
        """Between two runs, or under the running job."""
        if fault.number % 2:
            self._kill(self._job)
        for entry in self._checkpoint.iterdir():
            shutil.rmtree(entry, ignore_errors=True)  # the running job may write what was just deleted

    def _other_lanes(self, fault: Fault) -> None:
        self._lanes = 1 + (self._lanes + fault.number % 3) % 4
        self._say(f"    {self._lanes} lanes")
        self._kill(self._job)

    def _clock_jump(self, fault: Fault) -> None:
        """The planner's clock goes back by up to a minute, then forward by as much, then right again."""
        faults = self._faults(self._job)
        off_us = (5 + fault.number % 55) * 1_000_000
        met = False
        for by_us in (-off_us, off_us):
            fault_points.set_clock(faults, by_us)
            time.sleep(3)
            met |= fault_points.clock_asked(faults)
        fault_points.set_clock(faults, 0)
        if not met:
            raise _NotMetError

    def _full_disk(self, fault: Fault) -> None:
        filler = self._checkpoint / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as full:
            while True:
                full.write(bytes(4096))
        if not filler.exists():
            raise _NotMetError
        time.sleep(4 + fault.number % 5)
        # Whatever the job has made of its checkpoint meanwhile.
        filler.unlink(missing_ok=True)

    def _read_only(self, fault: Fault) -> None:
        mount = str(self._checkpoint)
        for _ in range(100):
            # A file that is just being written makes the mount busy.
            if subprocess.run(["mount", "-o", "remount,ro", mount], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise _NotMetError
        time.sleep(4 + fault.number % 5)
        _do("mount", "-o", "remount,rw", mount)

    def _slow_network(self, fault: Fault) -> None:
        # A bucket of few tokens delays packets up to the latency, and drops those that would wait longer.
        self._throttle("2mbit", "150ms", 6 + fault.number % 6)

    def _stall(self, fault: Fault) -> None:
        with self._writing.hold():
            self._throttle("8kbit", "400ms", 4 + fault.number % 8)

    def _throttle(self, rate: str, latency: str, seconds: float) -> None:
        _do("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "128k", "latency", latency)
        try:
            time.sleep(seconds)
        finally:
            _do("tc", "qdisc", "del", "dev", "lo", "root")


def _beyond_transaction(fault: Fault) -> float:
    # The broker looks for transactions that are overdue every 10 s.
    return TRANSACTION_TIMEOUT_MS / 1000 + 3 + fault.number % 10


def _do(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20)
