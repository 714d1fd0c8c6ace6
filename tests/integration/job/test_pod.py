"""The driver's pod without a cluster: the image's root file system, the rendered file and command, on real servers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from bridge.config.document import ScyllaSettings
from deploy.chart.dashboard import dashboard_text
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.chart.rendering import Chart, Rendered
from tests.go_tools import HELM, PROMTOOL
from tests.image.rootfs import ENTRYPOINT, RootFileSystem, image_root
from tests.integration.support.histories import history
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

SCHEMA = TableSchema(
    "pod",
    "t",
    (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("bigint"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    ),
)


@dataclass
class Pod(BridgeJob):
    """The driver's pod. Its volumes stay when it ends, but not its file system."""

    image: RootFileSystem = field(default_factory=lambda: RootFileSystem(Path()))
    chart: Chart | None = None
    port: int = 0

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start what the kubelet would: the image's entry with the arguments of the rendered pod."""
        config, checkpoint = self.folder / "config", self.folder / "claim"
        for folder in (config, checkpoint):
            folder.mkdir(exist_ok=True)
        rendered = self.rendered()
        # A pod has a network of its own; here it uses this machine's.
        text = rendered.config_text.replace("0.0.0.0:", "127.0.0.1:")
        (config / "bridge.yaml").write_text(text, encoding="utf-8")
        # These two volumes are all that it has beside /tmp.
        mounts = {mount["name"]: mount["mountPath"] for mount in rendered.container["volumeMounts"]}
        assert mounts.keys() == {"config", "tmp", "checkpoint"}
        command = self.image.command(
            [*ENTRYPOINT, *rendered.container["args"], *arguments],
            volumes={config: mounts["config"], checkpoint: mounts["checkpoint"]},
            network=True,
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        return self.process

    def rendered(self, monitoring: Mapping[str, Any] = MappingProxyType({})) -> Rendered:
        """Return the rendered release of this job."""
        assert self.chart is not None
        config = {name: value for name, value in self.mapping().items() if name != "spark"}
        return self.chart.render(values={"config": config, "monitoring": {"port": self.port, **monitoring}})

    def probe(self, which: str) -> int:
        """Return the status that the kubelet gets from a probe; 0 without an answer."""
        path = self.rendered().container[which]["httpGet"]["path"]
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except URLError:
            return 0


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> RootFileSystem:
    """The image's root file system."""
    return image_root(tmp_path_factory.mktemp("image"))


@pytest.fixture
def chart(tmp_path: Path) -> Chart:
    """The chart, with Helm."""
    return Chart(HELM.get(), tmp_path)


@pytest.fixture
def pod(local_stack: LocalStack, image: RootFileSystem, chart: Chart, tmp_path: Path) -> Iterator[Pod]:
    """Yield the pod of a release on the local stack, and stop it afterwards."""
    settings: dict[str, Any] = {"publishing": {"max_transaction_records": 500}, "reading": {"max_window_ms": 60_000}}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with Pod(local_stack, tmp_path, "pod", ["pod.t"], settings, image=image, chart=chart, port=port) as made:
        yield made


def test_second_pod_continues_where_the_first_stopped(local_stack: LocalStack, pod: Pod) -> None:
    """SIGTERM during work ends the first pod within its grace period. The second pod loses and duplicates nothing."""
    session = WritingSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    try:
        written = history(session, SCHEMA, seed=8, changes=6_000, keys=500)
    finally:
        session.close()
    pod.start()
    wait_for("the first pod publishing", lambda: committed(pod) > 500, 600)
    assert pod.process is not None
    assert pod.probe("livenessProbe") == 200
    pod.process.terminate()
    grace_s = pod.rendered().driver["terminationGracePeriodSeconds"]
    assert pod.process.wait(grace_s) == 0, pod.log_tail()
    assert "SIGTERM: stopping" in pod.log.read_text(encoding="utf-8")
    early = committed(pod)
    assert early < len(written)
    pod.start()
    wait_for("the second pod publishing", lambda: committed(pod) > len(written), 600)
    wait_for("every change", lambda: not pod.verdict([SCHEMA], written).missing, 120)
    wait_for("the pod being ready", lambda: pod.probe("readinessProbe") == 200)
    check_scrape(pod)
    assert pod.stop() == 0, pod.log_tail()
    verdict = pod.verdict([SCHEMA], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"


def test_sigterm_stops_a_start_that_waits_for_kafka(local_stack: LocalStack, pod: Pod) -> None:
    """While brokers do not answer at a start, the pod is alive and not ready, and it stops on SIGTERM."""
    session = WritingSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    try:
        history(session, SCHEMA, seed=9, changes=100, keys=10)
    finally:
        session.close()
    dead_after_s = 10
    pod.settings["monitoring"] = {"dead_after_s": dead_after_s}
    broker = local_stack.pid("kafka")
    assert broker is not None
    pod.start()
    assert pod.process is not None
    wait_for("the servers being found", lambda: "Schema registry at" in pod.log.read_text(encoding="utf-8"), 180)
    os.kill(broker, signal.SIGSTOP)
    try:
        wait_for("an answer", lambda: pod.probe("livenessProbe") == 200, 60)
        # Before the first start there is Spark's own, which takes its time.
        wait_for("the start", lambda: re.search(r"query_starts_total{[^}]*} 1", scrape(pod)) is not None, 180)
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1.5 * dead_after_s:
            assert (pod.probe("livenessProbe"), pod.probe("readinessProbe")) == (200, 503)
            time.sleep(1)
        pod.process.terminate()
        grace_s = pod.rendered().driver["terminationGracePeriodSeconds"]
        assert pod.process.wait(grace_s) == 0, pod.log_tail()
    finally:
        os.kill(broker, signal.SIGCONT)


def scrape(pod: Pod) -> str:
    """Return the pod's metrics."""
    with urlopen(f"http://127.0.0.1:{pod.port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def check_scrape(pod: Pod) -> None:
    """Prometheus accepts the metrics, and dashboard and alerts query only existing ones."""
    scraped = scrape(pod)
    judged = subprocess.run(
        [PROMTOOL.get(), "check", "metrics"], input=scraped, text=True, capture_output=True, check=False, timeout=60
    )
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")
    families = set(re.findall(r"^# TYPE (\S+) ", scraped, re.MULTILINE))
    rules = json.dumps(pod.rendered({"prometheusRule": {"enabled": True}}).find("PrometheusRule")["spec"])
    queried = set(re.findall(r"scylla_cdc_bridge_[a-z0-9_]+", dashboard_text() + rules))
    assert len(queried) > 20
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in queried} <= families


def committed(pod: Pod) -> int:
    """Return the number of committed records and markers; 0 without a topic."""
    assert pod.process is not None
    assert pod.process.poll() in (None, 0), pod.log_tail()
    text = pod.log.read_text(encoding="utf-8")
    return pod.committed() if "lanes, from" in text else 0
