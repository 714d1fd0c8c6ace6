"""Injects the faults of a chaos run into its job, its servers and its machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psutil

from tests.chaos import fault_points
from tests.chaos.fault_points import Point
from tests.chaos.plan import Fault
from tests.chaos.writing import TABLES
from tests.integration.support.kafka_quota import producer_quota
from tests.integration.support.running import BridgeJob

if TYPE_CHECKING:
    from tests.chaos.run import Run

TRANSACTION_TIMEOUT_MS: Final = 6000
_SECOND_JOB_WITHIN_S: Final = 400.0
_ENDS_WITHIN_S: Final = 60.0
_NOTICES_WITHIN_S: Final = 200.0
_LAGS_WITHIN_S: Final = 60.0
_OUTDATED_ANSWERS: Final = 10
_QUOTA_BYTES_PER_S: Final = 2000.0
_THROTTLED: Final = "because of a quota"


class NotMetError(Exception):
    """The fault hit nothing: no process reached its point, or there was none."""


class FaultInjector:
    """Injects faults into a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._inject: dict[str, Callable[[Fault], None]] = {
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
            "hung task": self._hang_task,
            "throttled broker": self._throttle_broker,
            "slow CQL node": self._slow_node,
            "lagging node": self._lagging_node,
            "full disk": self._full_disk,
            "read-only checkpoint": self._read_only,
            "slow network": self._slow_network,
            "network stall": self._stall,
        }

    @property
    def kinds(self) -> set[str]:
        """The kinds that it can inject."""
        return set(self._inject)

    def inject(self, fault: Fault) -> None:
        """Inject one fault.

        Raises:
            NotMetError: the fault hit nothing.
        """
        self._inject[fault.kind](fault)

    def _kill_jvm(self, _: Fault) -> None:
        # A job that is starting may have no JVM yet.
        try:
            self._run.job.jvm().kill()
        except (ValueError, psutil.NoSuchProcess):
            raise NotMetError from None
        assert self._run.job.process is not None
        try:
            self._run.job.process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            problem = f"the job goes on {_ENDS_WITHIN_S:.0f} s after its JVM has died"
            self._run.say(f"    {problem}\n{self._run.job.log_tail(15)}")
            self._run.outcome.problems.append(problem)
            self._run.kill_job(self._run.job)

    def _kill_worker(self, fault: Fault) -> None:
        doomed = self._run.job.workers()
        try:
            doomed[fault.number % len(doomed)].kill()
        except (ZeroDivisionError, psutil.NoSuchProcess):
            raise NotMetError from None

    def _kill_job(self, _: Fault) -> None:
        self._run.kill_job(self._run.job)

    def _arm(self, point: Point, manner: fault_points.Manner) -> None:
        fault_points.arm(self._run.fault_folder(self._run.job), point, manner)
        if point in fault_points.OPENING:
            for worker in self._run.job.workers():
                with suppress(psutil.NoSuchProcess):
                    worker.kill()

    def _at_point(self, fault: Fault, manner: fault_points.Manner) -> bool:
        faults = self._run.fault_folder(self._run.job)
        point = fault.point
        self._arm(point, manner)
        until_s = time.monotonic() + 40
        while time.monotonic() < until_s and not fault_points.fired(faults, point):
            if manner != "kill":
                self._run.restart_ended_job()
            time.sleep(0.05)
        # Either a process has taken the file or `disarm` deletes it. Only after that is the result certain.
        fault_points.disarm(faults)
        return fault_points.fired(faults, point)

    def _die_at_point(self, fault: Fault) -> None:
        if not self._at_point(fault, "kill"):
            raise NotMetError
        assert self._run.job.process is not None
        with suppress(subprocess.TimeoutExpired):
            self._run.job.process.wait(5)
        self._run.kill_job(self._run.job)

    def _err_at_point(self, fault: Fault) -> None:
        if not self._at_point(fault, "exception"):
            raise NotMetError

    def _stop_worker(self, fault: Fault) -> None:
        """Stop a worker inside the protocol until its transaction has timed out, then continue it."""
        if not self._at_point(fault, "stop"):
            raise NotMetError
        time.sleep(_beyond_transaction(fault))
        fault_points.signal_all(self._run.fault_folder(self._run.job), signal.SIGCONT)

    def _hang_task(self, fault: Fault) -> None:
        """Stop a worker inside the protocol, for good: the job must notice it, and start its table again."""
        before = self._run.hung_queries()
        if not self._at_point(fault, "stop"):
            raise NotMetError
        until_s = time.monotonic() + _NOTICES_WITHIN_S
        while self._run.hung_queries() == before:
            if time.monotonic() > until_s:
                self._run.outcome.problems.append(f"{fault}: not noticed in {_NOTICES_WITHIN_S:.0f} s")
                break
            self._run.restart_ended_job()
            time.sleep(0.2)

    def _stop_job(self, fault: Fault) -> None:
        faults = self._run.fault_folder(self._run.job)
        if not fault_points.signal_all(faults, signal.SIGSTOP):
            raise NotMetError
        time.sleep(_beyond_transaction(fault))
        fault_points.signal_all(faults, signal.SIGCONT)

    def _other_job(self, fault: Fault) -> BridgeJob:
        other = self._run.new_job()
        if fault.number % 3 == 0:
            other.settings["spark"]["checkpoint"] = str(self._run.new_checkpoint(other.folder))
        if fault.number % 5 == 0:
            other.settings["spark"]["lanes"] = 1 + self._run.lanes % 4
            self._run.say(f"    the other one with {other.settings['spark']['lanes']} lanes")
        other.start()
        until_s = time.monotonic() + _SECOND_JOB_WITHIN_S
        while other.log.read_text(errors="replace").count("lanes, from") < len(TABLES):
            if time.monotonic() > until_s or other.process is None or other.process.poll() is not None:
                self._run.outcome.problems.append(f"a second job did not come up:\n{other.log_tail(10)}")
                break
            time.sleep(0.2)
        return other

    def _zombie_job(self, fault: Fault) -> None:
        """Stop a job, start another one that takes over, and continue the first one."""
        if not self._at_point(fault, "stop"):
            raise NotMetError
        zombie, faults = self._run.job, self._run.fault_folder(self._run.job)
        fault_points.signal_all(faults, signal.SIGSTOP)
        self._run.job = self._other_job(fault)
        # The other job has opened every lane, so the transactions of the stopped one are settled and not counted here.
        self._run.await_progress("another job's start", self._run.reached())
        fault_points.signal_all(faults, signal.SIGCONT)
        self._run_both(zombie, self._run.job, fault)

    def _second_job(self, fault: Fault) -> None:
        """Start the job a second time."""
        self._run_both(self._run.job, self._other_job(fault), fault)

    def _run_both(self, older: BridgeJob, newer: BridgeJob, fault: Fault) -> None:
        """Run both jobs for a while, then kill one of them."""
        time.sleep(12 + fault.number % 5)
        goes, stays = (older, newer) if fault.number % 2 else (newer, older)
        self._run.kill_job(goes)
        self._run.job, self._run.lanes = stays, stays.settings["spark"]["lanes"]

    def _kill_broker(self, fault: Fault) -> None:
        self._run.stack.kill("kafka")
        time.sleep(1 + fault.number % 5)
        self._run.stack.start("kafka")

    def _kill_cql(self, fault: Fault) -> None:
        with self._run.writing.hold():
            # The server syncs its commit log every second.
            time.sleep(2)
            self._run.stack.kill("cql")
            time.sleep(fault.number % 3)
            self._run.stack.start("cql")
            self._run.writing.await_server()

    def _kill_registry(self, fault: Fault) -> None:
        self._run.stack.kill("registry")
        # A worker that starts while the registry is down must find the schema ids elsewhere.
        with suppress(NotMetError):
            self._kill_worker(fault)
        time.sleep(3 + fault.number % 5)
        self._run.stack.start("registry")

    def _delete_checkpoint(self, fault: Fault) -> None:
        """Delete the checkpoint, between two runs or under the running job."""
        if fault.number % 2:
            self._run.kill_job(self._run.job)
        for entry in self._run.checkpoint.iterdir():
            shutil.rmtree(entry, ignore_errors=True)  # the running job may write at the same time

    def _other_lanes(self, fault: Fault) -> None:
        self._run.lanes = 1 + (self._run.lanes + fault.number % 3) % 4
        self._run.say(f"    {self._run.lanes} lanes")
        self._run.kill_job(self._run.job)

    def _clock_jump(self, fault: Fault) -> None:
        """Move the planner's clock back by up to a minute, then forward by as much, then reset it."""
        faults = self._run.fault_folder(self._run.job)
        off_us = (5 + fault.number % 55) * 1_000_000
        met = False
        for by_us in (-off_us, off_us):
            fault_points.set_clock(faults, by_us)
            time.sleep(3)
            met |= fault_points.clock_asked(faults)
        fault_points.set_clock(faults, 0)
        if not met:
            raise NotMetError

    def _throttle_broker(self, fault: Fault) -> None:
        """Limit all producers to a part of what is written, for longer than the broker's average takes to show it."""
        told = self._run.logged(_THROTTLED)
        with producer_quota(self._run.stack.kafka, _QUOTA_BYTES_PER_S):
            until_s = time.monotonic() + 20 + fault.number % 10
            while time.monotonic() < until_s:
                self._run.restart_ended_job()
                time.sleep(0.2)
        if self._run.logged(_THROTTLED) == told:
            raise NotMetError

    def _slow_node(self, fault: Fault) -> None:
        node = self._run.node
        before = node.delayed
        node.delay((200 + fault.number % 800) / 1000)
        try:
            time.sleep(8 + fault.number % 8)
        finally:
            node.delay(0.0)
        if node.delayed == before:
            raise NotMetError

    def _lagging_node(self, _: Fault) -> None:
        """Answer questions about the tablets' streams with an older view, now and then, across one of their changes."""
        node = self._run.node
        before = node.outdated
        node.lag(True)
        try:
            until_s = time.monotonic() + _LAGS_WITHIN_S
            while time.monotonic() < until_s and node.outdated < before + _OUTDATED_ANSWERS:
                self._run.restart_ended_job()
                time.sleep(0.2)
        finally:
            node.lag(False)
        if node.outdated == before:
            raise NotMetError

    def _full_disk(self, fault: Fault) -> None:
        filler = self._run.checkpoint / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as full:
            while True:
                full.write(bytes(4096))
        if not filler.exists():
            raise NotMetError
        time.sleep(4 + fault.number % 5)
        # The job may have replaced its checkpoint meanwhile.
        filler.unlink(missing_ok=True)

    def _read_only(self, fault: Fault) -> None:
        mount = str(self._run.checkpoint)
        for _ in range(100):
            # The mount is busy while a file is being written.
            if subprocess.run(["mount", "-o", "remount,ro", mount], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise NotMetError
        time.sleep(4 + fault.number % 5)
        run_command("mount", "-o", "remount,rw", mount)

    def _slow_network(self, fault: Fault) -> None:
        # A bucket of few tokens delays packets up to the latency, and drops those that would wait longer.
        self._throttle("2mbit", "150ms", 6 + fault.number % 6)

    def _stall(self, fault: Fault) -> None:
        with self._run.writing.hold():
            self._throttle("8kbit", "400ms", 4 + fault.number % 8)

    def _throttle(self, rate: str, latency: str, seconds: float) -> None:
        run_command("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "128k", "latency", latency)
        try:
            time.sleep(seconds)
        finally:
            run_command("tc", "qdisc", "del", "dev", "lo", "root")


def _beyond_transaction(fault: Fault) -> float:
    # The broker checks for timed-out transactions every 10 s.
    return TRANSACTION_TIMEOUT_MS / 1000 + 3 + fault.number % 10


def run_command(*command: str) -> None:
    """Run a command that must succeed within 20 s."""
    subprocess.run(command, check=True, timeout=20)
