"""One chaos run: the stack, the writer, the job under faults, and the verdict."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sandbox.stack.stack import LocalStack
from tests.chaos import fault_points
from tests.chaos.cql_node import CqlNode
from tests.chaos.injection import TRANSACTION_TIMEOUT_MS, FaultInjector, NotMetError, run_command
from tests.chaos.outcome import Leg, Outcome
from tests.chaos.plan import ISOLATED, Fault, plan
from tests.chaos.stops import Stops
from tests.chaos.witness import Topics, Witness
from tests.chaos.writing import TABLES, Writing
from tests.integration.support.running import BridgeJob

CONFIDENCE_MS: Final = 4000
STALLED_AFTER_S: Final = 8
"""A query hangs after three times as long. What is stopped by other faults wakes sooner."""
_HUNG: Final = "the job stops it and starts it again"
MOST_RECORDS: Final = 7
"""Small, so that many micro-batches take several transactions of a lane, and a next attempt continues from `done`."""
_LATE_AFTER_S: Final = 2.5
_RECOVERS_WITHIN_S: Final = 400.0
_QUIET_S: Final = 120.0
_DISK_MIB: Final = 16
_EXCUSED_SHARE: Final = 0.05
_TRIES: Final = 3


class Run:
    """Runs one leg, or several with the same job. Not thread-safe.

    Args:
        stack: the servers, which are killed and restarted.
        folder: folder for the job's files.
        legs: at least one. The first one's seed names the job and must be new on this stack.
        say: receives a line for each step.
        isolated: whether this process has its own mount and network namespaces.
        rate_per_s: mutations per second.
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
        self.stack, self.folder, self.say, self.isolated = stack, folder, say, isolated
        self._injector = FaultInjector(self)
        self._variant = variant
        self._legs = legs
        self.outcome = Outcome(legs[0].seed)
        self._name = f"chaos{legs[0].seed}"
        self._topics = [f"{self._name}.{table}" for table in TABLES]
        self._reader = Topics(stack.kafka, stack.registry)
        self._mounts: list[Path] = []
        self._first_checkpoint = self.new_checkpoint(folder)
        self.lanes = 2
        self._made = 0
        self._fault: Fault | None = None
        self._stops = Stops(TABLES)
        self.node = CqlNode(stack.cql)
        self.writing = Writing(stack.cql, seed=legs[0].seed, rate_per_s=rate_per_s, late_after_s=_LATE_AFTER_S)
        self.job: BridgeJob = self.new_job()

    def carry_out(self) -> list[Outcome]:
        """Run all legs: write, publish and inject faults; at the end of each leg, wait and check all records so far.

        The run ends with the first leg that is not clean.
        """
        outcomes = []
        try:
            for leg in self._legs:
                outcomes.append(self._carry_out(leg, last=leg is self._legs[-1]))
                if not outcomes[-1].clean:
                    self._keep_evidence()
                    break
        finally:
            self.writing.end()
            self._clean_up()
        return outcomes

    def _carry_out(self, leg: Leg, *, last: bool) -> Outcome:
        outcome, began_s = Outcome(leg.seed), time.monotonic()
        self.outcome = outcome
        left_out = () if self.isolated else ISOLATED
        faults = plan(leg.seed, leg.minutes, [kind for kind in leg.kinds if kind not in left_out], least=leg.least)
        outcome.planned = len(faults)
        self.say(f"seed {leg.seed}: " + "; ".join(map(str, faults)))
        if self.job.process is None:
            self.writing.start()
            self.job.start()
            self.await_progress("the start", 0)
        else:
            self.writing.take_up(leg.seed)
        for fault in faults:
            self._wait_undisturbed(fault.calm_s)
            self.inject(fault)
        self._wait_undisturbed(leg.minutes * 60 - (time.monotonic() - began_s))
        with self.writing.pause():
            outcome.generations = self.writing.generations
            self._drain()
            if last:
                self._stop_job()
            self._collect_stops()
            outcome.seconds = time.monotonic() - began_s
            witness = Witness(TABLES, self.writing.lines(), self.writing.late)
            for record in self._reader.read(self._topics):
                witness.see(*record)
        outcome.counts = counts = witness.close()
        if counts.late > _EXCUSED_SHARE * counts.written:
            outcome.problems.append(f"{counts.late} changes were written too slowly for their absence to tell anything")
        return outcome

    def _keep_evidence(self) -> None:
        """Print the faults, and keep the written changes and the records: the next run recreates the tables."""
        for line in self.outcome.counts.examples + self.outcome.problems:
            self.say(line)
        (self.folder / "written.jsonl").write_text("\n".join(map(str.strip, self.writing.lines())) + "\n")
        with (self.folder / "arrived.txt").open("w", encoding="utf-8") as arrived:
            for topic, partition, key, value in self._reader.read(self._topics):
                print(topic, partition, key.hex(), value, file=arrived)

    # -- the job ------------------------------------------------------------------------------------------------------

    def new_job(self) -> BridgeJob:
        self._made += 1
        folder = self.folder / f"job{self._made}"
        folder.mkdir()
        settings: dict[str, Any] = {
            "scylla": {"contact_points": self.node.address},
            "monitoring": {"stalled_after_s": STALLED_AFTER_S},
            "kafka": {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS},
            "reading": {"confidence_ms": CONFIDENCE_MS, "max_window_ms": 10_000},
            "publishing": {"topic": self._name + ".{keyspace}.{table}", "max_transaction_records": MOST_RECORDS},
            "spark": {"checkpoint": str(self._first_checkpoint), "lanes": self.lanes},
        }
        environment = fault_points.environment(folder / "faults", self._variant)
        return BridgeJob(self.stack, folder, self._name, list(TABLES), settings, environment)

    def new_checkpoint(self, folder: Path) -> Path:
        """Create a folder for a checkpoint, if possible on a disk of its own."""
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True)
        if self.isolated:
            run_command("mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(checkpoint))
            self._mounts.append(checkpoint)
        return checkpoint

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the present job. After a fault with two jobs, it may be another one than the first."""
        return Path(self.job.settings["spark"]["checkpoint"])

    def _restart_job(self) -> None:
        """Restart the job, as Kubernetes would."""
        self.job.settings["spark"]["lanes"] = self.lanes
        self.job.start()

    def kill_job(self, job: BridgeJob) -> None:
        faults = self.fault_folder(job)
        fault_points.disarm(faults)
        for _ in range(100):
            if not fault_points.signal_all(faults, signal.SIGKILL):
                break
            time.sleep(0.05)
        assert job.process is not None
        job.process.wait(30)

    @staticmethod
    def fault_folder(job: BridgeJob) -> Path:
        return job.folder / "faults"

    def _wait_undisturbed(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.restart_ended_job()
            time.sleep(0.2)

    def restart_ended_job(self) -> None:
        """Restart the job if it has ended."""
        if self.writing.error is not None:
            raise self.writing.error
        self._collect_stops()
        process = self.job.process
        if process is not None and process.poll() is not None:
            self.say(f"  the job has ended with {process.returncode}; starting it again")
            # Its remaining processes must not be taken for those of the new job.
            fault_points.signal_all(self.fault_folder(self.job), signal.SIGKILL)
            self._restart_job()

    def _collect_stops(self) -> None:
        """Count a stopped table as a problem. The restarted job would hide it."""
        logs = [self._log(number) for number in range(1, self._made + 1)]
        for said in self._stops.new(logs):
            self.say(f"    {said}")
            self.outcome.problems.append(f"after {self._fault or 'the start'}: {said}")

    def logged(self, words: str) -> int:
        """How often the jobs have logged these words."""
        logs = [self._log(number) for number in range(1, self._made + 1)]
        return sum(log.read_text(encoding="utf-8", errors="replace").count(words) for log in logs if log.exists())

    def hung_queries(self) -> int:
        """How often the jobs have noticed that a query hangs."""
        return self.logged(_HUNG)

    def _log(self, number: int) -> Path:
        return self.folder / f"job{number}" / f"{self._name}.log"

    def reached(self) -> int:
        return self._reader.reached(self._topics)

    def await_progress(self, what: str, before: int) -> float | None:
        began_s = time.monotonic()
        while time.monotonic() - began_s < _RECOVERS_WITHIN_S:
            self.restart_ended_job()
            now = self.reached()
            if now > before >= 0:
                return time.monotonic() - began_s
            # Kafka did not answer before.
            before = now if before < 0 else before
            time.sleep(0.3)
        self.outcome.problems.append(f"after {what}: nothing was published for {_RECOVERS_WITHIN_S:.0f} s")
        self.say(self.job.log_tail(15))
        return None

    def _drain(self) -> None:
        """Wait until all written changes are read: until the topics are unchanged for longer than every window."""
        self.say(f"written: {self.writing.written}; waiting for the rest")
        began_s = last_s = time.monotonic()
        last = self.reached()
        # Longer than any window, and long enough for a job whose start was disturbed last.
        quiet_s = CONFIDENCE_MS / 1000 + _QUIET_S
        while time.monotonic() - last_s < quiet_s and time.monotonic() - began_s < 2 * _RECOVERS_WITHIN_S:
            self.restart_ended_job()
            now = self.reached()
            if now > last:
                last, last_s = now, time.monotonic()
            elif (
                # A duplicate may arrive after all other records.
                time.monotonic() - last_s >= CONFIDENCE_MS / 1000
                and now >= self.writing.written - len(self.writing.late)
            ):
                break
            time.sleep(1.0)

    def _stop_job(self) -> None:
        try:
            status = self.job.stop()
        except subprocess.TimeoutExpired as error:
            self.outcome.problems.append(f"the job did not stop within {error.timeout:.0f} s")
            return
        if status != 0:
            self.outcome.problems.append(f"the job did not stop cleanly: status {status}")

    def _clean_up(self) -> None:
        for number in range(1, self._made + 1):
            fault_points.signal_all(self.folder / f"job{number}" / "faults", signal.SIGKILL)
        self.node.close()
        for mount in self._mounts:
            subprocess.run(["umount", "-l", str(mount)], check=False)

    # -- faults -------------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Inject a fault until it meets something, then wait until the job publishes again."""
        self.say(f"  {fault}")
        self._collect_stops()
        self._fault = fault
        for _ in range(_TRIES):
            try:
                self._injector.inject(fault)
                break
            except NotMetError:
                # The target may still be starting after the previous fault.
                self.say("    nothing met it")
                self.await_progress(f"{fault}, which nothing met,", self.reached())
        else:
            self.outcome.unmet.append(fault)
            return
        self.restart_ended_job()
        took_s = self.await_progress(str(fault), self.reached())
        self.outcome.faults.append((fault, took_s))
        self.say(f"    publishing again after {'-' if took_s is None else f'{took_s:.1f} s'}")
