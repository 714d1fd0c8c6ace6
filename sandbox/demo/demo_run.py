"""The steps of the demo, from the bridge's start to the verdict."""

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
    """The user's options.

    Attributes:
        seconds: duration of the writes.
        rate_per_s: writes per second to all tables together.
        seed: seed of all random choices.
        output: folder of the results.
    """

    seconds: float
    rate_per_s: float
    seed: int
    output: Path


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The results: the summary, and the observations for the plots."""

    summary: dict[str, Any]
    observations: Observations


def delete_former_results(output: Path) -> None:
    """Delete the files of an earlier demo, except the stack: the results must not mix two runs."""
    output.mkdir(parents=True, exist_ok=True)
    for pattern in ("summary.json", "report.html", "bridge.*", "writer.log", "events.jsonl", "written-*.jsonl"):
        for former in output.glob(pattern):
            former.unlink()
    for folder in ("checkpoint", "spark"):
        shutil.rmtree(output / folder, ignore_errors=True)


def run_demo(stack: LocalStack, settings: DemoSettings, console: ProgressConsole) -> DemoResult:
    """Run the demo on a stack.

    Raises:
        DemoError, RetriableError, BridgeError, RegistryError: a step failed. All processes of the demo are stopped.
    """
    started = datetime.now(UTC)
    output = settings.output
    scenario = prepare_scenario(stack, seed=settings.seed, say=console.say)
    name = f"demo-{started:%Y%m%d-%H%M%S}"
    configuration = output / "bridge.yaml"
    write_configuration(configuration, stack, scenario, name=name, folder=output)
    config = loader.load(configuration)
    topics = {table: topic_of(name, table.keyspace, table.name) for table in scenario.tables}
    events = output / "events.jsonl"
    with ExitStack() as open_things:
        registry = Registry(stack.registry)
        open_things.callback(registry.close)
        bridge = open_things.enter_context(
            ChildProcess("The bridge", "spark.job", ["-c", str(configuration)], log=output / "bridge.log")
        )
        readers = open_things.enter_context(TopicReaders(config.kafka, list(topics.values())))
        live_topics = [topics[table] for table in scenario.simulated]
        live = LiveChecker(scenario, registry, readers, live_topics=live_topics, folder=output, events=events)
        steps = _DemoSteps(live, bridge, console, began_s=time.monotonic())
        backlog_s = steps.await_backlog()
        writer = open_things.enter_context(
            ChildProcess(
                "The writer",
                "sandbox.demo.writer",
                _writer_arguments(config, scenario, settings),
                log=output / "writer.log",
                output=events,
            )
        )
        steps.watch_writing(writer, settings)
        steps.await_rest()
        steps.stop_bridge()
    shutil.rmtree(output / "spark", ignore_errors=True)
    verdict = live.checker.close()
    run = _describe_run(settings, scenario, steps.meter, backlog_s, started)
    arrived = {table: live.checker.arrived(table.keyspace, table.name) for table in scenario.tables}
    return DemoResult(summarize(verdict, live.observations, arrived, scenario.simulated, run), live.observations)


def _describe_run(
    settings: DemoSettings, scenario: Scenario, meter: ProcessMeter, backlog_s: float, started: datetime
) -> Run:
    return Run(
        seed=settings.seed,
        confidence_ms=plan.CONFIDENCE_MS,
        leeway_ms=plan.LEEWAY_MS,
        cores=os.cpu_count() or 1,
        bridge_cpu_s=meter.cpu_s,
        bridge_peak_memory_bytes=meter.peak_memory_bytes,
        recorded_changes=len(scenario.recorded_changes),
        backlog_changes=len(scenario.recorded_changes) + len(scenario.backlog),
        backlog_s=backlog_s,
        versions=_versions(),
        started=f"{started:%Y-%m-%d %H:%M:%S} UTC",
    )


class _DemoSteps:
    """The steps while the bridge runs."""

    def __init__(self, live: LiveChecker, bridge: ChildProcess, console: ProgressConsole, *, began_s: float) -> None:
        self._live = live
        self._bridge = bridge
        self._console = console
        self._began_s = began_s
        self.meter = ProcessMeter(bridge)

    def await_backlog(self) -> float:
        """Wait until the changes of before the bridge's start have arrived; return the seconds since that start."""
        verdict = self._live.checker.verdict
        changes = verdict.written
        with self._console.step("Starting the bridge; it first publishes the changes that exist already") as step:
            while verdict.arrived < changes:
                self._check_all()
                waited_s = time.monotonic() - self._began_s
                if waited_s > _BACKLOG_WITHIN_S:
                    raise DemoError(
                        f"Only {verdict.arrived} of {changes} changes arrived within "
                        f"{_BACKLOG_WITHIN_S:.0f} s.{log_tail(self._bridge.log)}"
                    )
                step.update(f"{waited_s:.0f} s, {verdict.arrived} of {changes} arrived", verdict.arrived / changes)
        took_s = time.monotonic() - self._began_s
        self._console.say(f"  all {changes} changes have arrived, {took_s:.0f} s after the bridge's start")
        return took_s

    def watch_writing(self, writer: ChildProcess, settings: DemoSettings) -> None:
        """Check the changes while the writer runs."""
        seen, until_s = self._live.observations, time.monotonic() + settings.seconds + _WRITER_OVERTIME_S
        title = f"Writing {settings.rate_per_s:.0f} rows per second for {settings.seconds:.0f} s while nodes join"
        with self._console.step(title) as step:
            announced = 0
            while writer.status is None:
                self._check_all()
                if time.monotonic() > until_s:
                    raise DemoError(f"The writer did not end in time.{log_tail(writer.log)}")
                announced = self._announce_generations(announced)
                if seen.begin_us is not None:
                    done_s = max(0.0, seen.seconds_after_begin(time.time_ns() / 1000))
                    step.update(self._progress_text(), min(1.0, done_s / settings.seconds))
        if writer.status != 0:
            writer.require_running()

    def await_rest(self) -> None:
        """Wait until every change has arrived or no record comes for 30 s, then 3 s for surplus records."""
        verdict = self._live.checker.verdict
        with self._console.step("Waiting for the remaining changes") as step:
            while True:
                self._check_all()
                silent_s = self._live.silent_s
                if silent_s > (_SILENCE_S if verdict.missing else _LISTEN_ON_S):
                    return
                step.update(self._progress_text(), verdict.arrived / max(1, verdict.written))

    def stop_bridge(self) -> None:
        """Stop the bridge as in production, and check whether it still publishes anything."""
        self._console.say("Stopping the bridge (SIGTERM)")
        self.meter.sample()
        began_s = time.monotonic()
        self._bridge.stop(_STOP_WITHIN_S)
        self._console.say(f"  it ended with status 0 after {time.monotonic() - began_s:.1f} s")
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            self._live.step()

    def _check_all(self) -> None:
        self._live.step()
        self._bridge.require_running()
        self.meter.sample()

    def _announce_generations(self, announced: int) -> int:
        seen = self._live.observations
        published = [mark for mark in seen.generations.values() if mark.late_s is not None]
        for mark in published[announced:]:
            late_s = mark.late_s or 0.0
            when = f"{late_s:.1f} s after" if late_s > 0 else f"{-late_s:.1f} s before"
            begins_s = seen.seconds_after_begin(mark.start_ms * 1000)
            self._console.say(
                f"  a node joined: the cluster published a new stream generation, {when} its start at {begins_s:.0f} s"
            )
        return len(published)

    def _progress_text(self) -> str:
        verdict, seen = self._live.checker.verdict, self._live.observations
        wrong = verdict.doubled + verdict.out_of_order + verdict.wrong
        text = f"{verdict.written} written, {verdict.arrived} arrived, {wrong} wrong"
        if seen.arrived_us:
            text += f", latency {_recent_latency_s(seen):.1f} s"
        return text


def _recent_latency_s(seen: Observations) -> float:
    at, written = seen.arrived_us[-500:], seen.arrived_written_us[-500:]
    return percentile([end - begin for begin, end in zip(written, at, strict=True)], 50) / 1e6


def _writer_arguments(config: BridgeConfig, scenario: Scenario, settings: DemoSettings) -> list[str]:
    (cql,) = config.scylla.contact_points
    return [
        f"--cql={cql}",
        f"--folder={settings.output}",
        f"--first-generation-ms={scenario.first_generation_ms}",
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
