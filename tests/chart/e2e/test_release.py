"""A release's life against a real API server: what is admitted, what the pods may do, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.adapters.kubernetes import POD_VERBS, missing_pod_verbs
from bridge.errors import StartupError
from deploy.chart.documents import CHART
from tests.chart.e2e.control_plane import ApiError, Cluster
from tests.chart.e2e.one_driver import DRIVER, never_two_drivers
from tests.chart.rendering import FULL, LOCAL, NAME, Chart

Refusal = Callable[..., int | None]
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("helm_environment")]

PLURALS = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PrometheusRule": "apis/monitoring.coreos.com/v1/namespaces/{}/prometheusrules",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "ServiceMonitor": "apis/monitoring.coreos.com/v1/namespaces/{}/servicemonitors",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
}


def helm(chart: Chart, namespace: str, *words: str) -> str:
    """Helm's output for a namespace."""
    return chart.run(*words, "--namespace", namespace)


@pytest.mark.parametrize("values", [LOCAL, FULL], ids=lambda path: path.stem)
def test_every_manifest_passes_server_side_validation(
    chart: Chart, cluster: Cluster, namespace: str, values: Path
) -> None:
    """The API server accepts each object unchanged, with strict validation of its fields."""
    for one in chart.render(values).manifests:
        one["metadata"]["namespace"] = namespace
        if one["kind"] == "Pod":
            one["spec"]["serviceAccountName"] = "default"
        if one["kind"] == "RoleBinding":
            one["subjects"][0]["namespace"] = namespace
        path = "/" + PLURALS[one["kind"]].format(namespace)
        cluster.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)


@pytest.mark.parametrize("values", [LOCAL, FULL], ids=lambda path: path.stem)
def test_release_lives_and_goes(chart: Chart, cluster: Cluster, namespace: str, values: Path) -> None:
    """Install, test, upgrade, roll back, uninstall: the driver becomes ready each time, and nothing stays behind."""
    waiting = ["--wait", "--timeout", "120s"]
    given = ["--values", str(values)]

    def driver() -> dict[str, Any]:
        (pod,) = cluster.pods(namespace, DRIVER)
        assert pod["metadata"]["name"] == f"{NAME}-0"
        assert {"type": "Ready", "status": "True"}.items() <= next(
            one.items() for one in pod["status"]["conditions"] if one["type"] == "Ready"
        )
        return pod

    helm(chart, namespace, "install", "shop", str(CHART), *given, *waiting)
    first = driver()
    assert "Succeeded" in helm(chart, namespace, "test", "shop", "--timeout", "60s")
    other = ["--set", "config.reading.confidence_ms=20000"]
    with never_two_drivers(cluster, namespace):
        helm(chart, namespace, "upgrade", "shop", str(CHART), *given, *waiting, *other)
    second = driver()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    with never_two_drivers(cluster, namespace):
        helm(chart, namespace, "rollback", "shop", "1", *waiting)
    third = driver()
    assert third["metadata"]["uid"] != second["metadata"]["uid"]
    assert third["metadata"]["annotations"] == first["metadata"]["annotations"]
    helm(chart, namespace, "upgrade", "shop", str(CHART), *given, "--set", "driver.suspended=true", *waiting)
    assert cluster.pods(namespace, DRIVER) == []
    helm(chart, namespace, "uninstall", "shop", *waiting)
    own = {
        kind: [one["metadata"]["name"] for one in cluster.request("GET", "/" + path.format(namespace))["items"]]
        for kind, path in PLURALS.items()
    }
    # The pod of `helm test` stays, for its log; so does what every namespace has.
    assert own == {kind: [] for kind in PLURALS} | {
        "Pod": [f"{NAME}-test"],
        "ConfigMap": ["kube-root-ca.crt"],
        "ServiceAccount": ["default"],
    }


def test_namespace_admits_restricted_pods_only(cluster: Cluster, namespace: str) -> None:
    """The admission that the other tests pass is in force: a pod without our security context is refused."""
    pod = {"metadata": {"name": "careless"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def _check_own_look_at_rights(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """The bridge finds the same rights as the API server."""
    for account, missing in (("", ()), ("-executor", POD_VERBS)):
        folder = tmp_path / f"account{account}"
        folder.mkdir()
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}{account}/token"
        (folder / "token").write_text(cluster.request("POST", path, {"spec": {}})["status"]["token"], encoding="ascii")
        (folder / "ca.crt").write_bytes(cluster.authority.read_bytes())
        assert missing_pod_verbs(cluster.url, namespace, folder) == missing
        assert missing_pod_verbs(cluster.url, "kube-system", folder) == POD_VERBS
    (folder / "token").write_text("nobody", encoding="ascii")
    with pytest.raises(StartupError, match="it answers 401 Unauthorized"):
        missing_pod_verbs(cluster.url, namespace, folder)


def test_rights(chart: Chart, cluster: Cluster, namespace: str, refusal: Refusal, tmp_path: Path) -> None:
    """By impersonated requests: the driver manages pods of its namespace and nothing else, executors nothing at all.

    The bridge's own look at its rights, at its start and in `helm test`, comes to the same.
    """
    helm(chart, namespace, "install", "shop", str(CHART), "--values", str(FULL))
    driver = f"system:serviceaccount:{namespace}:{NAME}"
    executor = f"system:serviceaccount:{namespace}:{NAME}-executor"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = chart.render(FULL).executor["spec"] | {"serviceAccountName": f"{NAME}-executor"}
    spec["containers"][0]["image"] = "image"
    pod = {"metadata": {"name": "one"}, "spec": spec}
    patch = {"metadata": {"labels": {"a": "b"}}}
    merge = "application/merge-patch+json"
    allowed = [
        ("POST", f"{pods}?dryRun=All", pod),
        ("GET", pods, None),
        ("GET", f"{pods}/{NAME}-0", None),
        ("DELETE", f"{pods}?labelSelector=none%3Dnone", None),
    ]
    for method, path, body in allowed:
        assert refusal(method, path, body, impersonate=driver) is None, (method, path)
        assert refusal(method, path, body, impersonate=executor) == 403, (method, path)
    refused = [
        ("GET", f"/api/v1/namespaces/{namespace}/secrets", None),
        ("GET", f"/api/v1/namespaces/{namespace}/configmaps", None),
        ("GET", f"/api/v1/namespaces/{namespace}/services", None),
        ("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", None),
        ("PATCH", f"{pods}/{NAME}-0", patch),
        ("GET", f"{pods}/{NAME}-0/log", None),
        ("POST", f"{pods}/{NAME}-0/exec?command=sh", None),
        ("GET", "/api/v1/namespaces/kube-system/pods", None),
        ("GET", "/api/v1/pods", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets", None),
    ]
    for method, path, body in refused:
        options = {"content_type": merge} if method == "PATCH" else {}
        assert refusal(method, path, body, impersonate=driver, **options) == 403, (method, path)
    _check_own_look_at_rights(cluster, namespace, tmp_path)
    helm(chart, namespace, "uninstall", "shop", "--wait")
