"""What years bring: other values, broken releases, another volume. The driver and its objects are changed in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.documents import CHART
from tests.chart.e2e.control_plane import NEVER_READY, Cluster
from tests.chart.e2e.one_driver import never_two_drivers
from tests.chart.rendering import LOCAL, NAME, Chart, HelmError

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("helm_environment")]

CLAIM = f"{NAME}-checkpoint"


class Release:
    """A release in a namespace, and what the API server knows of it."""

    def __init__(self, chart: Chart, cluster: Cluster, namespace: str, scratch: Path) -> None:
        self._chart, self._cluster, self._namespace, self._scratch = chart, cluster, namespace, scratch
        self.apply({}, "install")

    def apply(self, values: dict[str, Any], command: str = "upgrade", *, timeout_s: int = 120) -> None:
        """Install or upgrade with the least that has to be given and these values."""
        file = self._scratch / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        words = [command, "shop", str(CHART), "--values", str(LOCAL), "--values", str(file)]
        self._chart.run(*words, "--namespace", self._namespace, "--wait", f"--timeout={timeout_s}s")

    def get(self, kind: str, name: str = NAME, *, api: str = "api/v1") -> dict[str, Any]:
        """An object of the namespace."""
        return self._cluster.request("GET", f"/{api}/namespaces/{self._namespace}/{kind}/{name}")

    def statefulset(self) -> dict[str, Any]:
        """The driver's."""
        return self.get("statefulsets", api="apis/apps/v1")

    def uids(self) -> tuple[str, str]:
        """What must be the same objects for ever: the StatefulSet and the claim."""
        return self.statefulset()["metadata"]["uid"], self.get("persistentvolumeclaims", CLAIM)["metadata"]["uid"]

    def config(self) -> dict[str, Any]:
        """The configuration file."""
        found: dict[str, Any] = json.loads(self.get("configmaps")["data"]["bridge.yaml"])
        return found

    def driver(self) -> dict[str, Any]:
        """The one pod of the driver, which is ready."""
        (pod,) = self._cluster.pods(self._namespace, "app.kubernetes.io/component%3Ddriver")
        ready = {one["type"]: one["status"] for one in pod["status"]["conditions"]}["Ready"]
        assert (pod["metadata"]["name"], ready) == (f"{NAME}-0", "True")
        return pod


@pytest.fixture
def release(chart: Chart, cluster: Cluster, namespace: str, tmp_path: Path) -> Release:
    """An installed release whose driver is ready."""
    return Release(chart, cluster, namespace, tmp_path)


def test_other_values_change_the_same_objects(release: Release, cluster: Cluster, namespace: str) -> None:
    """No change touches an immutable field: one driver follows the other in the same StatefulSet.

    A watch on the pods sees that the next never comes before the one before is gone.
    """
    uids = release.uids()
    pods = [release.driver()["metadata"]["uid"]]
    tables = ["shop.orders", {"name": "shop.lines", "lanes": 8}]
    for values in (
        {"config": {"spark": {"lanes": 8}}},
        {"config": {"tables": tables}},
        {"config": {"tables": tables[1:]}},
        {"driver": {"cores": 4, "memory": "2g", "resources": {"limits": {"memory": "6Gi"}}}},
        {"mode": "kubernetes", "executors": {"instances": 3}},
        {"mode": "kubernetes", "executors": {"instances": 1, "driverPort": 17078}},
        {"monitoring": {"port": 8080, "service": {"type": "NodePort"}}},
        {"commonLabels": {"team": "data"}, "commonAnnotations": {"owner": "me"}, "image": {"tag": "0.2.0"}},
        {"security": {"pod": {"fsGroup": 20001}}, "temporary": {"medium": "Memory"}},
        {"driver": {"terminationGracePeriodSeconds": 120}, "disruptionBudget": {"driverMaxUnavailable": 0}},
        {},
    ):
        with never_two_drivers(cluster, namespace):
            release.apply(values)
        pods.append(release.driver()["metadata"]["uid"])
        assert release.uids() == uids, values
        assert release.statefulset()["status"]["replicas"] == 1
    assert len(set(pods)) == len(pods)
    assert [table if isinstance(table, str) else table["name"] for table in release.config()["tables"]] == [
        "shop.orders"
    ]


def test_same_values_leave_the_driver_alone(release: Release) -> None:
    """An upgrade that changes nothing, or what the pod does not see, restarts nothing."""
    first = release.driver()["metadata"]["uid"]
    release.apply({})
    release.apply({"monitoring": {"dashboard": {"enabled": True}}, "networkPolicy": {"egress": {"restricted": True}}})
    assert release.driver()["metadata"]["uid"] == first


def test_release_that_never_gets_ready_is_mended_by_the_next(
    release: Release, cluster: Cluster, namespace: str
) -> None:
    """A driver that can't start does not hold up the upgrade that mends it, without anybody's help."""
    with pytest.raises(HelmError, match=r"(?i)not ready|timed? ?out|deadline"):
        release.apply({"driver": {"podLabels": {NEVER_READY: "true"}}}, timeout_s=8)
    with never_two_drivers(cluster, namespace):
        release.apply({"config": {"spark": {"lanes": 4}}})
    assert release.driver()["metadata"]["labels"].get(NEVER_READY) is None
    assert release.config()["spark"]["lanes"] == 4


def test_claim_changes_by_way_of_the_readme(release: Release, cluster: Cluster, namespace: str) -> None:
    """What of a claim can't change is refused, the driver runs on; with the driver suspended, it is created again."""
    driver, uids = release.driver()["metadata"]["uid"], release.uids()
    wanted = {"checkpoint": {"persistence": {"accessModes": ["ReadWriteOncePod"]}}}
    with pytest.raises(HelmError, match=rf"(?s){CLAIM}.*immutable after creation"):
        release.apply(wanted)
    assert (release.driver()["metadata"]["uid"], release.uids()) == (driver, uids)
    release.apply({"driver": {"suspended": True}})
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{CLAIM}")
    volume = cluster.request("GET", f"/api/v1/persistentvolumes/{namespace}")
    claimed = {"claimRef": {"namespace": namespace, "name": CLAIM}}
    spec = volume["spec"] | claimed | {"accessModes": ["ReadWriteOncePod"]}
    other = f"{namespace}-other"
    cluster.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": other}, "spec": spec})
    try:
        release.apply(wanted)
        assert release.driver()["metadata"]["uid"] != driver
        assert release.get("persistentvolumeclaims", CLAIM)["spec"]["volumeName"] == other
    finally:
        cluster.request("DELETE", f"/api/v1/persistentvolumes/{other}")
