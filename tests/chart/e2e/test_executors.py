"""Spark in client mode against a real API server: it asks for executor pods, and what such a pod starts does work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.documents import CHART
from tests.chart.e2e.control_plane import Cluster
from tests.chart.rendering import FULL, NAME, Chart

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("helm_environment")]

DRIVER = """
import json, sys
from bridge.config.document import SparkSettings
from spark.jvm.session import StartingSession
session = StartingSession("shop", SparkSettings.model_validate(json.load(open(sys.argv[1])))).result()
print("asked", flush=True)
total = session.sparkContext.parallelize(range(1000), 4).map(lambda x: x * 2).sum()
print("total", total, flush=True)
large = session.sparkContext.broadcast(bytes(8_000_000))
parts = session.sparkContext.parallelize(range(4), 4).map(lambda x: large.value[:3_000_000] + bytes([x])).collect()
print("large", [(len(part), part[-1]) for part in parts], flush=True)
session.stop()
print("stopped", flush=True)
"""


@contextmanager
def process(words: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running process, ended at the latest with the block."""
    with log.open("wb") as output:
        started = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield started
        finally:
            started.kill()
            started.wait(30)


def wait_for(what: str, look: Any, log: Path, within_s: float = 120.0) -> Any:
    """What `look` gives as soon as it gives something."""
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"{what}:\n{log.read_text()[-4000:]}"
        time.sleep(0.1)
    return found


def test_driver_asks_for_executors_that_work(chart: Chart, cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """With the driver's own rights and the rendered settings, pods of our template appear, and belong to its pod.

    What is in their environment makes an executor that registers (authenticated, encrypted) and runs tasks.
    """
    chart.run(
        "install", "shop", str(CHART), "--values", str(FULL), "--namespace", namespace, "--wait", "--timeout=120s"
    )
    objects = f"/api/v1/namespaces/{namespace}"
    data = cluster.request("GET", f"{objects}/configmaps/{NAME}")["data"]
    (tmp_path / "executor.yaml").write_text(data["executor.yaml"], encoding="utf-8")
    settings = yaml.safe_load(data["bridge.yaml"])["spark"]
    token = cluster.request("POST", f"{objects}/serviceaccounts/{NAME}/token", {"spec": {}})["status"]["token"]
    (tmp_path / "token").write_text(token, encoding="ascii")
    settings["master"] = f"k8s://{cluster.url}"
    # What a pod would have by itself: its address, its token, and the mounted template.
    settings["properties"] |= {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": 0,
        "spark.driver.blockManager.port": 0,
        "spark.blockManager.port": 0,
        "spark.executor.instances": 1,
        "spark.kubernetes.authenticate.oauthTokenFile": str(tmp_path / "token"),
        "spark.kubernetes.authenticate.caCertFile": str(cluster.authority),
        "spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"),
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    log = tmp_path / "driver.log"
    selector = "spark-role%3Dexecutor"
    with process([sys.executable, "-c", DRIVER, str(tmp_path / "settings.json")], log, inherited) as driver:
        (pod,) = wait_for("an executor pod", lambda: cluster.pods(namespace, selector), log)
        check_executor(pod, cluster.request("GET", f"{objects}/pods/{NAME}-0"))
        given = {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
        given |= {"SPARK_EXECUTOR_POD_IP": "127.0.0.1", "SPARK_EXECUTOR_POD_NAME": pod["metadata"]["name"]}
        words = [sys.executable, "-m", "spark.jvm.executor_entrypoint", *pod["spec"]["containers"][0]["args"]]
        # The variable names a folder in the pod's own volumes.
        given |= {"SPARK_LOCAL_DIRS": str(tmp_path / "blocks")}
        with process(words, tmp_path / "executor.log", inherited | given):
            wait_for("a result", lambda: "total 999000" in log.read_text(), log)
            # Longer than a frame, both ways.
            expected = f"large {[(3_000_001, part) for part in range(4)]}"
            wait_for("a large result", lambda: expected in log.read_text(), log)
            assert driver.wait(60) == 0, log.read_text()[-4000:]
    assert "stopped" in log.read_text()
    assert "403" not in log.read_text()
    wait_for("the executors' end", lambda: not cluster.pods(namespace, selector), log)
    chart.run("uninstall", "shop", "--namespace", namespace, "--wait")


def check_executor(pod: dict[str, Any], driver: dict[str, Any]) -> None:
    """The pod is made of the chart's template and of what Spark adds."""
    metadata, spec = pod["metadata"], pod["spec"]
    (container,) = spec["containers"]
    assert metadata["name"].startswith(f"{NAME}-exec-")
    assert metadata["labels"]["app.kubernetes.io/component"] == "executor"
    assert metadata["labels"]["tier"] == "executor"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", f"{NAME}-0", driver["metadata"]["uid"])
    assert spec["serviceAccountName"] == f"{NAME}-executor"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["priorityClassName"] == "important"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["args"] == ["executor"]
    assert container["image"] == driver["spec"]["containers"][0]["image"]
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "3Gi"}
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "3Gi"}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/tmp", "/etc/scylla-cdc-bridge/secrets/scylla-reader"} <= mounts
    assert {one["name"]: one.get("value") for one in container["env"]}["SPARK_LOCAL_DIRS"] == "/tmp"
    # The one of the values' own apart.
    unlimited = [volume["name"] for volume in spec["volumes"] if volume.get("emptyDir") == {}]
    assert unlimited == []
