"""The control plane that the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.e2e.control_plane import CONTROL_PLANE, ApiError, Cluster, running, wait_until
from tests.chart.kubernetes_schemas import OPERATOR
from tests.go_tools import module_folder


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running control plane; its program is built by `make chart-e2e` alone, which takes minutes."""
    CONTROL_PLANE.get()
    with running(tmp_path_factory.mktemp("cluster")) as started:
        for plural in ("servicemonitors", "prometheusrules"):
            path = f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
            definition = yaml.safe_load((module_folder(OPERATOR) / path).read_text(encoding="utf-8"))
            started.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        priority = {"metadata": {"name": "important"}, "value": 1000}
        started.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
        yield started


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that enforces the restricted Pod Security Standard, with a volume for the checkpoint."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    # A controller makes it, and without it no pod is admitted.
    wait_until(lambda: cluster.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": name, "name": "shop-scylla-cdc-bridge-checkpoint"},
        },
    }
    cluster.request("POST", "/api/v1/persistentvolumes", volume)
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")
    cluster.request("DELETE", f"/api/v1/persistentvolumes/{name}")


@pytest.fixture
def refusal(cluster: Cluster) -> Callable[..., int | None]:
    """The status with which a request is refused, or None when it is allowed."""

    def ask(method: str, path: str, body: object = None, **options: str) -> int | None:
        try:
            cluster.request(method, path, body, **options)
        except ApiError as error:
            return error.status
        return None

    return ask


@pytest.fixture
def helm_environment(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm that talks to this cluster, with files of its own."""
    for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
