"""One run: the servers, the writer, the job under kills and changes of streams, and the comparisons."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from sandbox.stack.stack import LocalStack
from tests.chaos.stops import Stops
from tests.integration.support.running import BridgeJob
from tests.live.compare import Finding, compare_copy, compare_order, compare_positions, rows_of
from tests.live.keyspaces import Keyspaces
from tests.live.log import read_log
from tests.live.server import Server, now_us
from tests.live.statements import SHORT_TTL_S, Statements
from tests.live.tables import Table
from tests.live.topics import Topics
from tests.live.writing import Writing, paced

_NAME: Final = "live"
_CATCHES_UP_S: Final = 300.0
_MOST_STARTS: Final = 5
_TTL_SLACK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do.

    Attributes:
        seed: decides the statements, and when the job is killed and a table altered.
        statements: how many statements at most.
        minutes: how long to write at most.
        rate_per_s: statements in a second; 0 for as many as possible.
        shapes: the tables' shapes.
        keyspaces: `vnodes` and `tablets`; None for those that the server has.
        replicas: replication factor of the keyspaces.
        kills: how often the job is killed.
        alters: how often a table or type is altered.
        log_switches: how often a table's log is disabled and enabled again.
        switch: a shell command that makes the cluster change its streams; None for none.
        switch_every_s: time between the starts of two of these commands.
        confidence_ms: the bridge's confidence window.
        lanes: lanes of each table.
        keep: whether the keyspaces stay.
    """

    seed: int
    statements: int
    minutes: float
    rate_per_s: float
    shapes: Sequence[str]
    keyspaces: Sequence[str] | None
    replicas: int
    kills: int
    alters: int
    log_switches: int
    switch: str | None
    switch_every_s: float
    confidence_ms: int
    lanes: int
    keep: bool


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        tables: a finding for each table, with the statements that wrote it.
        problems: other faults, a line for each.
        total: further counts.
    """

    tables: list[tuple[Table, int, Finding]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    total: dict[str, Any] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether every table was compared and no fault was found."""
        compared = bool(self.tables) and all(finding.changes and finding.records for _, _, finding in self.tables)
        return compared and not self.problems and not any(finding.faults for _, _, finding in self.tables)


class Run:
    """Runs a plan once.

    Args:
        stack: Kafka and the registry.
        server: the server to write and read.
        contact_points: its addresses for the bridge.
        folder: for the job's files.
        plan: what to do.
        say: receives lines on the progress.
    """

    def __init__(
        self,
        stack: LocalStack,
        server: Server,
        contact_points: list[str],
        folder: Path,
        plan: Plan,
        say: Callable[[str], None],
    ) -> None:
        self._server, self._folder, self._plan, self._say = server, folder, plan, say
        self._stack, self._contact_points = stack, contact_points
        self._keyspaces = Keyspaces(server, say)
        self._outcome = Outcome()
        self._topics = Topics(stack.kafka, stack.registry)
        self._random = Random(f"{plan.seed}/run")
        self._kills = self._starts = self._switches = 0
        self._switching: subprocess.Popen[bytes] | None = None
        self._next_switch_s = 0.0

    def carry_out(self) -> Outcome:
        """Write, publish, wait and compare. The keyspaces are removed whatever happens."""
        began_s = time.monotonic()
        plan = self._plan
        try:
            prefix = f"{_NAME}_{plan.seed}_{int(time.time())}"
            self._keyspaces.create(prefix, plan.keyspaces, plan.shapes, plan.replicas)
            with self._job() as self._bridge:
                self._stops = Stops(table.full_name for table in self._keyspaces.tables)
                self._start()
                writing = self._write()
                self._compare(writing)
            self._outcome.total |= {
                "kills": self._kills,
                "switches": self._switches,
                "stream_changes": max((len(one.generations) - 1 for _, _, one in self._outcome.tables), default=0),
                "seconds": round(time.monotonic() - began_s),
            }
            return self._outcome
        finally:
            self._await_switch()
            if not plan.keep:
                self._keyspaces.drop()

    # -- the job ------------------------------------------------------------------------------------------------------

    def _job(self) -> BridgeJob:
        tables = [{"name": one.full_name, "shape": one.record_shape} for one in self._keyspaces.tables]
        settings: dict[str, Any] = {
            "scylla": {"contact_points": self._contact_points},
            "reading": {"confidence_ms": self._plan.confidence_ms},
            "spark": {"lanes": self._plan.lanes, "checkpoint": str(self._folder / "checkpoint")},
        }
        return BridgeJob(self._stack, self._folder, _NAME, tables, settings)

    def _start(self) -> None:
        self._starts += 1
        self._bridge.start()

    def _watch(self) -> None:
        """Start a job again that has ended, and note tables that have stopped."""
        for line in self._stops.new([self._bridge.log]):
            self._outcome.problems.append(line)
            self._say(line)
        process = self._bridge.process
        if process is not None and process.poll() is not None:
            self._outcome.problems.append(f"the job ended with status {process.returncode}")
            self._say(self._bridge.log_tail())
            if self._starts > _MOST_STARTS + self._plan.kills:
                raise AssertionError("the job ends again and again")
            self._start()

    def _kill(self) -> None:
        self._kills += 1
        self._say(f"kill {self._kills}")
        self._bridge.kill_group()
        self._start()

    # -- changes of streams -------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        """Start the command if it is due and does not run."""
        if self._plan.switch is None or time.monotonic() < self._next_switch_s:
            return
        if self._switching is not None:
            if self._switching.poll() is None:
                return
            self._check_switch()
        self._say(f"switch: {self._plan.switch}")
        self._switches += 1
        with (self._folder / "switch.log").open("ab") as log:
            self._switching = subprocess.Popen(self._plan.switch, shell=True, stdout=log, stderr=subprocess.STDOUT)
        self._next_switch_s = time.monotonic() + self._plan.switch_every_s

    def _check_switch(self) -> None:
        assert self._switching is not None
        if self._switching.returncode != 0:
            self._outcome.problems.append(f"the command to switch ended with status {self._switching.returncode}")

    def _await_switch(self) -> None:
        if self._switching is not None:
            self._switching.wait(900)
            self._check_switch()
            self._switching = None

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self) -> Writing:
        plan, tables = self._plan, self._keyspaces.tables
        statements = Statements(
            tables, plan.seed, real_lists=self._server.is_real, transactions=self._keyspaces.transactions
        )
        writing = Writing(self._server, tables, Random(f"{plan.seed}/alters"), plan.confidence_ms * 1000, self._say)
        due = self._due(writing)
        began_s = time.monotonic()
        self._next_switch_s = began_s + plan.switch_every_s / 2
        for number in paced(plan.statements, plan.rate_per_s):
            for action in due.pop(number, ()):
                action()
            # Not before: it must know the columns that are there now.
            writing.run(statements.next())
            self._switch()
            if number % 50 == 0:
                self._watch()
            if time.monotonic() - began_s > plan.minutes * 60:
                self._say(f"{plan.minutes} minutes are over after {number + 1} statements")
                break
        self._await_switch()
        self._outcome.total |= {
            "statements": sum(writing.kinds.values()),
            "kinds": dict(writing.kinds),
            "refused": dict(writing.refused),
            "unconfirmed": writing.unconfirmed,
            "alters": writing.alters,
            "writing_seconds": round(time.monotonic() - began_s, 1),
        }
        self._outcome.problems += writing.unexpected_refusals
        return writing

    def _due(self, writing: Writing) -> dict[int, list[Callable[[], None]]]:
        """What else happens, by the number of the statement before which it does."""
        plan = self._plan
        due: dict[int, list[Callable[[], None]]] = {}
        actions = [
            (plan.kills, self._kill),
            (plan.alters, writing.alter),
            (plan.log_switches, writing.switch_log),
        ]
        for count, action in actions:
            part = plan.statements / (count + 1)
            for which in range(count):
                number = int(part * (which + 0.5 + self._random.random()))
                due.setdefault(number, []).append(action)
        return due

    # -- comparing ----------------------------------------------------------------------------------------------------

    def _compare(self, writing: Writing) -> None:
        quiet_s = time.monotonic() + SHORT_TTL_S + _TTL_SLACK_S + self._plan.confidence_ms / 1000
        logs = {one.full_name: read_log(self._server, one) for one in self._keyspaces.tables}
        self._await_records({name: len(changes) for name, (_, changes) in logs.items()})
        # A duplicate, or a row that appears late, comes after all others.
        while time.monotonic() < quiet_s:
            self._watch()
            time.sleep(0.5)
        status = self._bridge.stop()
        if status != 0:
            self._outcome.problems.append(f"the job did not stop cleanly: status {status}")
        for table in self._keyspaces.tables:
            finding = Finding(table.full_name)
            finding.log_rows, changes = read_log(self._server, table)
            records = list(self._topics.records(self._topic(table)))
            compare_positions(finding, table, changes, records, writing.unsettled[table.full_name])
            compare_order(finding, records)
            if table.shows_values:
                read_us = now_us()
                base = rows_of(table, self._server.rows(f"SELECT * FROM {table.full_name}"))
                compare_copy(finding, table, records, base, read_us)
            self._outcome.tables.append((table, writing.statements[table.full_name], finding))

    def _topic(self, table: Table) -> str:
        return f"{_NAME}.{table.full_name}"

    def _await_records(self, changes: dict[str, int]) -> None:
        """Wait until the topics have as many records as the logs have changes, as long as more arrive."""
        last_s, last = time.monotonic(), -1
        while time.monotonic() - last_s < _CATCHES_UP_S:
            self._watch()
            found = {name: self._bridge.arrived(f"{_NAME}.{name}") for name in changes}
            if all(found[name] >= wanted for name, wanted in changes.items()):
                return
            if sum(found.values()) > last:
                last, last_s = sum(found.values()), time.monotonic()
                self._say(f"{last} of {sum(changes.values())} changes have arrived")
            time.sleep(1)
        self._say("not everything has arrived: comparing what is there")
