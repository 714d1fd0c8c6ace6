"""The demo's course, from the bridge's start to the verdict."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.adapters.registry.client import Registry
from bridge.config.document import BridgeConfig
from bridge.config.file import loader
from sandbox.demo import plan
from sandbox.demo.child_process import ChildProcess, ProcessMeter
from sandbox.demo.console import ProgressConsole
from sandbox.demo.errors import DemoError
from sandbox.demo.live_checker import LiveChecker
from sandbox.demo.report.observations import Observations, percentile
from sandbox.demo.report.summary import Run, summarize
from sandbox.demo.scenario import Scenario, prepare_scenario, topic_of, write_configuration
from sandbox.demo.topic_readers import TopicReaders
from sandbox.stack.jars import CASSANDRA_VERSION, KAFKA_VERSION, REGISTRY_VERSION
from sandbox.stack.processes import log_tail
from sandbox.stack.stack import LocalStack

_BACKLOG_WITHIN_S: Final = 240.0
_SILENCE_S: Final = 30.0
_LISTEN_ON_S: Final = 3.0
_STOP_WITHIN_S: Final = 30.0
_WRITER_OVERTIME_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the user may choose.

    Attributes:
        seconds: how long the writer writes.
        rate_per_s: writes a second, of all tables.
        seed: of everything random.
        output: folder for everything that the demo writes.
    """

    seconds: float
    rate_per_s: float
    seed: int
    output: Path


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What came out: the summary, and what the plots are made from."""

    summary: dict[str, Any]
    observations: Observations


def delete_former_results(output: Path) -> None:
    """Delete what an earlier demo left, but for the stack: results never stem from two runs."""
    output.mkdir(parents=True, exist_ok=True)
    for pattern in ("summary.json", "report.html", "bridge.*", "writer.log", "events.jsonl", "written-*.jsonl"):
        for former in output.glob(pattern):
            former.unlink()
    for folder in ("checkpoint", "spark"):
        shutil.rmtree(output / folder, ignore_errors=True)


def run_demo(stack: LocalStack, settings: DemoSettings, screen: ProgressConsole) -> DemoResult:
    """Do everything that needs the servers.

    Raises:
        DemoError, RetriableError, BridgeError, RegistryError: something failed; nothing that was started runs on.
    """
    started = datetime.now(UTC)
    output = settings.output
    stage = prepare_scenario(stack, seed=settings.seed, say=screen.say)
    name = f"demo-{started:%Y%m%d-%H%M%S}"
    configuration = output / "bridge.yaml"
    write_configuration(configuration, stack, stage, name=name, folder=output)
    config = loader.load(configuration)
    topics = {table: topic_of(name, table.keyspace, table.name) for table in stage.tables}
    events = output / "events.jsonl"
    with ExitStack() as open_things:
        registry = Registry(stack.registry)
        open_things.callback(registry.close)
        bridge = open_things.enter_context(
            ChildProcess("The bridge", "spark.job", ["-c", str(configuration)], log=output / "bridge.log")
        )
        arrivals = open_things.enter_context(TopicReaders(config.kafka, list(topics.values())))
        live_topics = [topics[table] for table in stage.simulated]
        watch = LiveChecker(stage, registry, arrivals, live_topics=live_topics, folder=output, events=events)
        steps = _DemoSteps(watch, bridge, screen, began_s=time.monotonic())
        backlog_s = steps.await_backlog()
        writer = open_things.enter_context(
            ChildProcess(
                "The writer",
                "sandbox.demo.writer",
                _writer_arguments(config, stage, settings),
                log=output / "writer.log",
                output=events,
            )
        )
        steps.watch_writing(writer, settings)
        steps.await_rest()
        steps.stop_bridge()
    shutil.rmtree(output / "spark", ignore_errors=True)
    verdict = watch.checker.close()
    run = Run(
        seed=settings.seed,
        confidence_ms=plan.CONFIDENCE_MS,
        leeway_ms=plan.LEEWAY_MS,
        cores=os.cpu_count() or 1,
        bridge_cpu_s=steps.meter.cpu_s,
        bridge_peak_memory_bytes=steps.meter.peak_memory_bytes,
        recorded_changes=len(stage.recorded_changes),
        backlog_changes=len(stage.recorded_changes) + len(stage.backlog),
        backlog_s=backlog_s,
        versions=_versions(),
        started=f"{started:%Y-%m-%d %H:%M:%S} UTC",
    )
    arrived = {table: watch.checker.arrived(table.keyspace, table.name) for table in stage.tables}
    return DemoResult(summarize(verdict, watch.observations, arrived, stage.simulated, run), watch.observations)


class _DemoSteps:
    """The steps while the bridge runs."""

    def __init__(self, watch: LiveChecker, bridge: ChildProcess, screen: ProgressConsole, *, began_s: float) -> None:
        self._watch = watch
        self._bridge = bridge
        self._screen = screen
        self._began_s = began_s
        self.meter = ProcessMeter(bridge)

    def await_backlog(self) -> float:
        """Wait until what was there before has arrived; says how long that took since the bridge's start."""
        verdict = self._watch.checker.verdict
        changes = verdict.written
        with self._screen.step("Starting the bridge, which first publishes what is there already") as step:
            while verdict.arrived < changes:
                self._look()
                waited_s = time.monotonic() - self._began_s
                if waited_s > _BACKLOG_WITHIN_S:
                    raise DemoError(
                        f"Only {verdict.arrived} of {changes} changes arrived within "
                        f"{_BACKLOG_WITHIN_S:.0f} s.{log_tail(self._bridge.log)}"
                    )
                step.update(f"{waited_s:.0f} s, {verdict.arrived} of {changes} arrived", verdict.arrived / changes)
        took_s = time.monotonic() - self._began_s
        self._screen.say(f"  all {changes} changes have arrived, {took_s:.0f} s after the bridge's start")
        return took_s

    def watch_writing(self, writer: ChildProcess, settings: DemoSettings) -> None:
        """Check while the writer writes."""
        seen, until_s = self._watch.observations, time.monotonic() + settings.seconds + _WRITER_OVERTIME_S
        title = f"Writing {settings.rate_per_s:.0f} times a second for {settings.seconds:.0f} s while nodes join"
        with self._screen.step(title) as step:
            announced = 0
            while writer.status is None:
                self._look()
                if time.monotonic() > until_s:
                    raise DemoError(f"The writer does not come to an end.{log_tail(writer.log)}")
                announced = self._announce(announced)
                if seen.begin_us is not None:
                    done_s = max(0.0, seen.seconds_after_begin(time.time_ns() / 1000))
                    step.update(self._words(), min(1.0, done_s / settings.seconds))
        if writer.status != 0:
            writer.require_running()

    def await_rest(self) -> None:
        """Wait until every change has arrived, or nothing comes any more, and then a little for what must not come."""
        verdict = self._watch.checker.verdict
        with self._screen.step("Waiting for the rest to arrive") as step:
            while True:
                self._look()
                silent_s = self._watch.silent_s
                if silent_s > (_SILENCE_S if verdict.missing else _LISTEN_ON_S):
                    return
                step.update(self._words(), verdict.arrived / max(1, verdict.written))

    def stop_bridge(self) -> None:
        """Let the bridge stop as in production, and see whether it still publishes anything."""
        self._screen.say("Stopping the bridge (SIGTERM)")
        self.meter.look()
        began_s = time.monotonic()
        self._bridge.stop(_STOP_WITHIN_S)
        self._screen.say(f"  it stopped with status 0 after {time.monotonic() - began_s:.1f} s")
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            self._watch.step()

    def _look(self) -> None:
        self._watch.step()
        self._bridge.require_running()
        self.meter.look()

    def _announce(self, announced: int) -> int:
        seen = self._watch.observations
        published = [mark for mark in seen.generations.values() if mark.late_s is not None]
        for mark in published[announced:]:
            late_s = mark.late_s or 0.0
            when = f"{late_s:.1f} s late" if late_s > 0 else f"{-late_s:.1f} s ahead"
            begins_s = seen.seconds_after_begin(mark.start_ms * 1000)
            self._screen.say(f"  a generation that begins at {begins_s:.0f} s is published, {when}")
        return len(published)

    def _words(self) -> str:
        verdict, seen = self._watch.checker.verdict, self._watch.observations
        wrong = verdict.doubled + verdict.out_of_order + verdict.wrong
        words = f"{verdict.written} written, {verdict.arrived} arrived, {wrong} wrong"
        if seen.arrived_us:
            words += f", latency {_recent_latency_s(seen):.1f} s"
        return words


def _recent_latency_s(seen: Observations) -> float:
    at, written = seen.arrived_us[-500:], seen.arrived_written_us[-500:]
    return percentile([end - begin for begin, end in zip(written, at, strict=True)], 50) / 1e6


def _writer_arguments(config: BridgeConfig, stage: Scenario, settings: DemoSettings) -> list[str]:
    (cql,) = config.scylla.contact_points
    return [
        f"--cql={cql}",
        f"--folder={settings.output}",
        f"--first-generation-ms={stage.first_generation_ms}",
        f"--seconds={settings.seconds}",
        f"--rate={settings.rate_per_s}",
        f"--seed={settings.seed}",
    ]


def _versions() -> dict[str, str]:
    packages = ("scylla-cdc-bridge", "pyspark", "confluent-kafka", "scylla-driver", "fastavro")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "(source tree)"
    return versions | {
        "Python": platform.python_version(),
        "Apache Kafka": KAFKA_VERSION,
        "Apache Cassandra (in place of ScyllaDB)": CASSANDRA_VERSION,
        "Apicurio Registry": REGISTRY_VERSION,
    }
