"""Streams that change under a running job and a steady writer, with `kill -9` in mid-switch: what came of each change.

Two tables are written in real time, one with vnodes and one with tablets. The cluster begins without a generation, gets
one in the tables of old releases, and is upgraded. Its generation changes and the tablets split and merge, published
ahead, late, or together with the next, and now and then with a generation between that nobody writes to; a tenth of the
writes goes through coordinators that hear of a change only seconds after it. A plain consumer notes when each record is
there. In the end the table with tablets is dropped and created again.

The stall of a change is counted from the instant at which anybody could have published it at the earliest (it is
written, and its stream's generation is published) to the instant at which a consumer has it. Its bound is confidence +
leeway + one window, the time that a micro-batch may take. While the job is dead nothing can be published: changes that
wait then are due one window after the table's progress moves again.

Where no streams change a change is due within confidence + one window. By how much the slowest of those came later in
the same run, the machine itself was too slow. Where others work beside, the two micro-batches of a switch, one that
closes and one that opens, may be given twice that; on a machine that does nothing else it is nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import psutil

from bridge.adapters.kafka.records import Record
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.kept_formats import LaneProgress
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.demo.topic_readers import TopicReaders
from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.older_versions import forget_upgrade, publish_old, upgrade
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, TabletSet, mark_tablets, merge, split
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.write_times import system_clock_us
from sandbox.stack.stack import LocalStack
from sandbox.verify.checker import Verdict
from sandbox.writing_session import WritingSession
from tests.integration.reading.switch_records import (
    BOUND_S,
    CONFIDENCE_S,
    KILLS,
    LANES,
    LEAD_S,
    LEEWAY_S,
    SECOND_US,
    VNODES,
    WINDOW_S,
    Kill,
    Outage,
    Plain,
    Stall,
    Switch,
    Written,
)
from tests.integration.support.running import BridgeJob, wait_for

_EVERY_S: Final = 10.0
_AFTER_KILL_S: Final = 30.0
_LATE_S: Final = (-3.0, 3.0, -3.0, _EVERY_S + 1.0, -3.0)
"""How much later than its start a change is published, in turn: ahead, late, together with the next."""
_SETTLED_S: Final = 0.1
_OVERTIME_S: Final = 180
_START_S: Final = 240


class Scenario:
    """See the module. One use."""

    def __init__(self, session: WritingSession, stack: LocalStack, folder: Path, *, switches: int, seed: int) -> None:
        """Make both tables, with a first generation each and a backlog.

        Args:
            session: to the local server.
            stack: it and the others.
            folder: for the job's files.
            switches: of each table.
            seed: of everything random.
        """
        self._random = Random(seed)  # simulated data, wanted to be repeatable
        self._session = session
        self._count = switches
        now_us = system_clock_us()
        first_ms = UnixMillis(now_us // 1000 - 60_000)
        self._cluster = SimulatedCluster(session, seed=seed, vnodes=VNODES)
        self._cluster.reset()
        forget_upgrade(session)
        self._first = self._cluster.add_generation(first_ms, publish=False)
        mark_tablets(session, "switch_tablets")
        self._tablets = SimulatedTablets(session, "switch_tablets", "t", seed=seed)
        self._tablets.drop()
        self._tablets.create(first_ms, 4)
        self._tables = {
            "vnodes": Written(session, "vnodes", self._cluster, seed),
            "tablets": Written(session, "tablets", self._tablets, seed + 1),
        }
        for table in self._tables.values():
            table.backlog(UnixMicros(now_us - 50 * SECOND_US), UnixMicros(now_us - 5 * SECOND_US))
        settings = {
            "reading": {
                "confidence_ms": int(CONFIDENCE_S * 1000),
                "leeway_ms": int(LEEWAY_S * 1000),
                "target_batch_ms": int(WINDOW_S * 1000),
            },
            "spark": {"lanes": LANES, "trigger_interval_ms": 250},
        }
        self.job = BridgeJob(stack, folder, "switches", [f"switch_{name}.t" for name in self._tables], settings)
        self._seen: dict[bytes, int] = {}
        self._entered: dict[str, set[UnixMillis]] = defaultdict(set)
        self._stands: dict[tuple[str, int], LaneProgress] = {}
        self._outages: list[Outage] = []
        self._switches: list[Switch] = []
        self._end_us = 0

    def run(self) -> None:
        """Carry it all out; `stalls` says afterwards what came of each switch, and `verdict` what of all changes."""
        tables = self.job.config.tables
        self._table_of = {
            topic: name
            for name, table in zip(self._tables, tables, strict=True)
            for topic in (self.job.config.topic_of(table), self.job.config.progress_topic_of(table))
        }
        with (
            self.job,
            TopicReaders(self.job.config.kafka, list(self._table_of)) as arrivals,
            ThreadPoolExecutor() as threads,
        ):
            self._arrivals = arrivals
            self._begin()
            begin_us = system_clock_us() + int(LEAD_S * SECOND_US)
            self._switches = sorted([*self._vnode_switches(begin_us), *self._tablet_switches(begin_us)], key=_start)
            end_us = int(max(one.due_us for one in self._switches) + (CONFIDENCE_S + LEEWAY_S) * SECOND_US)
            self._end_us = end_us
            writing = [threads.submit(table.write, end_us) for table in self._tables.values()]
            publishing = threads.submit(self._publish)
            self._kill_and_look_on(end_us)
            publishing.result()
            for one in writing:
                one.result()
            wait_for("everything in Kafka", self._all_arrived, 120)
            self._make_anew()

    def stalls(self, slack_s: float = 0.0) -> list[Stall]:
        """What came of each switch, in order of time; each may take `slack_s` longer."""
        return [self._stall(switch, slack_s) for switch in self._switches]

    def slowest_plain(self) -> Plain:
        """The change that came latest where no streams changed and nothing was killed."""
        plain = (
            Plain(table, change.timestamp_us, self._seen_us(change))
            for table, written in self._tables.items()
            for change in written.changes
            if change.timestamp_us < self._end_us and self._is_plain(table, change)
        )
        return max(plain, key=lambda one: one.took_us)

    def verdict(self) -> Verdict:
        """The topics against what was written; all of it must be published."""
        tables = self._tables.values()
        changes = (change for table in tables for change in table.changes)
        return self.job.verdict((table.schema for table in tables), changes)

    # -- what is to happen ------------------------------------------------------------------------------------------

    def _vnode_switches(self, begin_us: int) -> Iterator[Switch]:
        victims = self._victims("vnodes")
        for number, start_us, publish_us in self._instants(begin_us, phase=0):
            start_ms = UnixMillis(start_us // 1000)
            # Every other time two nodes join at once, and nobody writes to what is in between.
            starts_ms = [start_ms] if number % 2 else [UnixMillis(start_ms - 1), start_ms]
            made = [self._cluster.add_generation(one, publish=False) for one in starts_ms]

            def publish(made: Sequence[Generation] = tuple(made)) -> None:
                for generation in made:
                    self._cluster.publish(generation)

            kind = "a node joins" if number % 2 else "two join"
            yield Switch("vnodes", number, kind, start_us, publish_us, frozenset(), victims.get(number), publish)

    def _tablet_switches(self, begin_us: int) -> Iterator[Switch]:
        victims = self._victims("tablets")
        for number, start_us, publish_us in self._instants(begin_us + int(_EVERY_S / 2 * SECOND_US), phase=1):
            before = self._tablets.sets[-1].streams
            tokens = [stream.token for stream in before]
            # In turn: some split, some merge, all replaced as tablets split, all replaced as they merge.
            partial, splits = (number - 1) % 4 < 2, number % 2 == 1
            place = self._random.randrange(len(tokens) - 1)
            made = self._tablets.resize(
                UnixMillis(start_us // 1000),
                split(tokens, [place]) if splits else merge(tokens, [place]),
                partial=partial,
                publish=False,
            )

            def publish(made: TabletSet = made) -> None:
                self._tablets.publish(made)

            kept = frozenset(stream.raw for stream in before) & {stream.raw for stream in made.streams}
            kind = ("split" if splits else "merge") + (", partial" if kept else ", whole")
            yield Switch("tablets", number, kind, start_us, publish_us, kept, victims.get(number), publish)

    def _instants(self, begin_us: int, *, phase: int) -> Iterator[tuple[int, UnixMicros, UnixMicros]]:
        """Number, start and publication of each switch; published in their order."""
        published_us, at_s = 0, 0.0
        killed = {number for name in self._tables for number in self._victims(name)}
        for number in range(1, self._count + 1):
            start_us = UnixMicros((begin_us + int(at_s * SECOND_US)) // 1000 * 1000)
            at_s += _AFTER_KILL_S if number in killed else _EVERY_S
            late_s = _LATE_S[(number - 1 + phase) % len(_LATE_S)]
            if number == self._count:
                late_s = min(late_s, 3.0)
            published_us = max(published_us, start_us + int(late_s * SECOND_US))
            yield number, start_us, UnixMicros(published_us)

    def _victims(self, table: str) -> dict[int, Kill]:
        """Which of a table's switches are met by which kill; never those of the same number of both tables."""
        first, kills = KILLS[table]
        return {number: kills[place % len(kills)] for place, number in enumerate(range(first, self._count + 1, 6))}

    # -- what happens -----------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        for switch in sorted(self._switches, key=lambda one: one.publish_us):
            time.sleep(max(0, switch.publish_us - system_clock_us()) / SECOND_US)
            switch.publish()

    def _kill_and_look_on(self, end_us: int) -> None:
        to_kill = [(self._kill_at(switch), switch) for switch in self._switches if switch.kill is not None]
        while (now_us := system_clock_us()) < end_us or to_kill:
            assert now_us < end_us + _OVERTIME_S * SECOND_US, f"never came about: the kill of {to_kill[0][1]}"
            self._look()
            assert self.job.process is not None
            assert self.job.process.poll() is None, self.job.log_tail()
            if to_kill and self._is_moment(*to_kill[0]):
                self._kill(to_kill.pop(0)[1])

    def _kill_at(self, switch: Switch) -> int:
        return switch.due_us + int(self._random.random() * (CONFIDENCE_S + LEEWAY_S) * SECOND_US)

    def _is_moment(self, kill_us: int, switch: Switch) -> bool:
        assert switch.kill is not None
        if not all(switch.table in outage.back_us for outage in self._outages):
            return False
        if switch.kill.moment == "closing":
            return UnixMillis(switch.start_us // 1000) in self._entered[switch.table]
        return system_clock_us() >= kill_us

    def _kill(self, switch: Switch) -> None:
        assert switch.kill is not None
        since_us = system_clock_us()
        match switch.kill.victim:
            case "group":
                self.job.kill_group()
                self.job.start()
            case "jvm":
                self.job.jvm().kill()
                assert self.job.process is not None
                assert self.job.process.wait(60) == 1
                self.job.start()
            case "workers":
                doomed = self.job.workers()
                for worker in doomed:
                    with suppress(psutil.NoSuchProcess):
                        worker.kill()
                psutil.wait_procs(doomed, timeout=10)
        # What was committed before may still be on its way to the consumer.
        self._outages.append(Outage(switch, since_us, system_clock_us() + int(_SETTLED_S * SECOND_US)))

    def _begin(self) -> None:
        self.job.start()
        name = self._tables["vnodes"].schema.full_name
        wait_for("the word that there is no generation", lambda: self._says(name, "no CDC generation yet"), _START_S)
        wait_for("the other table's backlog in Kafka", lambda: self._all_arrived("tablets"), _START_S)
        publish_old(self._session, self._first)
        wait_for("the backlog in Kafka", self._all_arrived, _START_S)
        upgrade(self._session, [self._first])

    def _make_anew(self) -> None:
        """Create the table with tablets again, with other streams: it stops until the loss is accepted."""
        dropped = self._tables["tablets"]
        dropped.drop()
        self._tablets.drop()
        name = dropped.schema.full_name
        wait_for("the warning that the table is gone", lambda: self._says(name, "does not exist"))
        dropped.create()
        now_us = system_clock_us()
        self._tablets.create(UnixMillis(now_us // 1000 - int(LEEWAY_S * 1000)), 2)
        dropped.backlog(UnixMicros(now_us - SECOND_US // 2), UnixMicros(now_us))
        wait_for(
            "the error that says what is lost",
            lambda: self._says(f"{name} stops", "created again", "changes written between", "reading.accept_data_loss"),
        )
        assert self.job.stop() == 1
        self.job.settings["reading"]["accept_data_loss"] = True
        self.job.run_once()
        assert self._says(name, "created again", "going on, because reading.accept_data_loss is set")

    def _says(self, *words: str) -> bool:
        lines = self.job.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return any(all(word in line for word in words) for line in lines)

    def _all_arrived(self, *names: str) -> bool:
        self._look()
        return len(self._seen) >= sum(self._tables[name].written for name in names or self._tables)

    def _look(self) -> None:
        for at_us, records in self._arrivals.take(0.05):
            for record in records:
                position = record.headers.get(POSITION_HEADER)
                if position is None:
                    self._progressed(record, at_us)
                else:
                    self._seen.setdefault(position, at_us)

    def _progressed(self, record: Record, at_us: int) -> None:
        assert record.value is not None
        name, progress = self._table_of[record.topic], LaneProgress.from_bytes(record.value)
        self._entered[name].add(progress.cursor.generation_ms)
        # A job that starts says first that the lanes are its own, which moves nothing yet.
        stands = replace(progress, owner="")
        moved = self._stands.get((name, progress.lane)) != stands
        self._stands[name, progress.lane] = stands
        for outage in self._outages:
            if moved and at_us > outage.settled_us:
                outage.back_us.setdefault(name, at_us)

    # -- what came of it --------------------------------------------------------------------------------------------

    def _is_plain(self, table: str, change: ExpectedChange) -> bool:
        """Whether a change waited for no switch, for no job that was dead, and for nothing that was to be caught up."""
        time_us = change.timestamp_us
        switch = self._switch_of(table, time_us)
        if switch is None or time_us < switch.due_us + (CONFIDENCE_S + LEEWAY_S) * SECOND_US:
            return False
        seen_us, after_us = self._seen_us(change), BOUND_S * SECOND_US
        return not any(one.since_us < seen_us and time_us < one.back_us[table] + after_us for one in self._outages)

    def _seen_us(self, change: ExpectedChange) -> int:
        return self._seen[change.stream_id + change.time + change.batch_seq_no.to_bytes(4, "big")]

    def _stall(self, switch: Switch, slack_s: float) -> Stall:
        waits: list[tuple[float, float]] = []
        kept: list[tuple[float, float]] = []
        for change in self._tables[switch.table].changes:
            after_s = (change.timestamp_us - switch.start_us) / SECOND_US
            if self._switch_of(switch.table, change.timestamp_us) is not switch or after_s >= CONFIDENCE_S + LEEWAY_S:
                continue
            seen_us = self._seen_us(change)
            goes_on = change.stream_id in switch.kept
            from_us = change.timestamp_us if goes_on else max(change.timestamp_us, switch.publish_us)
            plain_s = slack_s + (CONFIDENCE_S + WINDOW_S if goes_on else BOUND_S)
            allowed_s = self._allowed_s(switch.table, from_us, plain_s, WINDOW_S + slack_s)
            (kept if goes_on else waits).append(((seen_us - from_us) / SECOND_US, allowed_s))
        stall_s, bound_s = max(waits)
        late = sum(took_s > allowed_s for took_s, allowed_s in (*waits, *kept))
        met = [one for one in self._outages if one.switch is switch]
        back_s = (met[0].back_us[switch.table] - met[0].since_us) / SECOND_US if met else None
        return Stall(switch, len(waits), stall_s, bound_s, max(kept)[0] if kept else None, late, back_s)

    def _allowed_s(self, table: str, from_us: int, allowed_s: float, window_s: float) -> float:
        """A change's bound, or more if the job was dead while it waited."""
        for outage in self._outages:
            back_us = outage.back_us[table]
            if outage.since_us < from_us + allowed_s * SECOND_US and back_us > from_us:
                allowed_s = max(allowed_s, (back_us - from_us) / SECOND_US + window_s)
        return allowed_s

    def _switch_of(self, table: str, time_us: int) -> Switch | None:
        mine = [one for one in self._switches if one.table == table]
        at = bisect_right([one.start_us for one in mine], time_us) - 1
        return mine[at] if at >= 0 else None


def _start(switch: Switch) -> UnixMicros:
    return switch.start_us
