"""The objects of a release: which there are, what they may do, and what each switch changes."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.adapters.kubernetes import POD_VERBS
from tests.chart.rendering import FULL, NAME, NAMESPACE, Chart, Rendered

LOCAL_OBJECTS = [
    f"ConfigMap {NAME}",
    f"NetworkPolicy {NAME}-driver",
    f"PersistentVolumeClaim {NAME}-checkpoint",
    f"Pod {NAME}-test",
    f"PodDisruptionBudget {NAME}",
    f"Service {NAME}",
    f"Service {NAME}-driver",
    f"ServiceAccount {NAME}",
    f"StatefulSet {NAME}",
]
FURTHER_OBJECTS = [
    f"ConfigMap {NAME}-dashboard",
    f"NetworkPolicy {NAME}-executor",
    f"NetworkPolicy {NAME}-test",
    f"PodDisruptionBudget {NAME}-executor",
    f"PrometheusRule {NAME}",
    f"Role {NAME}",
    f"RoleBinding {NAME}",
    f"ServiceAccount {NAME}-executor",
    f"ServiceMonitor {NAME}",
]


def pods(rendered: Rendered) -> dict[str, dict[str, Any]]:
    """The specs of all pods of a release with executors."""
    test: dict[str, Any] = rendered.find("Pod", f"{NAME}-test")["spec"]
    return {"driver": rendered.driver, "test": test, "executor": rendered.executor["spec"]}


def test_objects_of_a_small_release(local: Rendered) -> None:
    """Without executors there are no rights, no executor's objects, and nothing of an operator's."""
    assert local.kinds() == LOCAL_OBJECTS


def test_objects_of_a_full_release(full: Rendered) -> None:
    """Everything that can be switched on."""
    assert full.kinds() == sorted(LOCAL_OBJECTS + FURTHER_OBJECTS)


def test_every_object_is_of_the_release(full: Rendered) -> None:
    """Each object lies in the release's namespace and has the common labels and annotations."""
    for one in full.manifests:
        metadata = one["metadata"]
        assert metadata["namespace"] == NAMESPACE, metadata["name"]
        labels = metadata["labels"]
        assert labels["team"] == "data", metadata["name"]
        assert labels["app.kubernetes.io/instance"] == "shop"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert metadata["annotations"]["owner"] == "data@example.com", metadata["name"]


@pytest.mark.parametrize("pod", ["driver", "test", "executor"])
def test_pods_are_restricted(full: Rendered, pod: str) -> None:
    """Each pod keeps to the restricted Pod Security Standard, and its root file system is read-only."""
    spec = pods(full)[pod]
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == 10001
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        tmp = "spark-local-dir-1" if pod == "executor" else "tmp"
        assert {"name": tmp, "mountPath": "/tmp"} in container["volumeMounts"]
        assert {"name": tmp, "emptyDir": {"sizeLimit": "2Gi"}} in spec["volumes"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all("hostPath" not in volume for volume in spec["volumes"])


def test_there_is_one_driver_and_no_value_for_more(full: Rendered, chart: Chart) -> None:
    """One replica of a StatefulSet; suspended, none."""
    spec = full.find("StatefulSet")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (1, "Parallel")
    suspended = chart.render(values={"driver": {"suspended": True}})
    assert suspended.find("StatefulSet")["spec"]["replicas"] == 0


def test_driver_is_started_by_the_images_entry(local: Rendered) -> None:
    """No command of the chart's own: Python is the first process, and gets the SIGTERM."""
    assert "command" not in local.container
    assert local.container["args"] == ["run", "-c", "/etc/scylla-cdc-bridge/config/bridge.yaml", "--log-level", "info"]
    assert local.driver["terminationGracePeriodSeconds"] == 60
    assert local.container["image"] == "scylla-cdc-bridge:0.1.0"


def test_probes(full: Rendered) -> None:
    """Live by /healthz, ready by /readyz; a start may take the configured patience and more."""
    container = full.container
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "monitoring"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "monitoring"}
    startup = container["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] == 120 + 240
    assert {"name": "monitoring", "containerPort": 9404} in container["ports"]
    assert full.config["monitoring"]["listen"] == "0.0.0.0:9404"


def test_rights_are_for_pods_of_the_namespace_alone(full: Rendered) -> None:
    """One Role, no ClusterRole: the driver's account manages pods, the executors' has no rights and no token."""
    assert full.find("Role")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": list(POD_VERBS),
        }
    ]
    binding = full.find("RoleBinding")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    accounts = {name: pod["serviceAccountName"] for name, pod in pods(full).items()}
    assert accounts == {"driver": NAME, "test": NAME, "executor": f"{NAME}-executor"}
    tokens = {name: pod["automountServiceAccountToken"] for name, pod in pods(full).items()}
    assert tokens == {"driver": True, "test": True, "executor": False}


def test_without_executors_nobody_has_a_token(local: Rendered) -> None:
    """A driver that asks the API server for nothing gets nothing to ask with."""
    assert local.driver["automountServiceAccountToken"] is False
    assert local.find("Pod", f"{NAME}-test")["spec"]["automountServiceAccountToken"] is False


def test_accounts_of_others(chart: Chart) -> None:
    """Accounts and rights that are there already are used."""
    values = {
        "serviceAccounts": {"driver": {"create": False, "name": "mine"}, "executors": {"create": False}},
        "rbac": {"create": False},
    }
    rendered = chart.render(FULL, values=values)
    assert not [one for one in rendered.kinds() if one.split()[0] in ("ServiceAccount", "Role", "RoleBinding")]
    assert rendered.driver["serviceAccountName"] == "mine"
    assert rendered.executor["spec"]["serviceAccountName"] == "default"


def test_executors_find_the_driver_before_it_is_ready(full: Rendered) -> None:
    """The headless service gives the StatefulSet's pod its name, which executors need for it to become ready."""
    service = full.find("Service", f"{NAME}-driver")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert full.find("StatefulSet")["spec"]["serviceName"] == f"{NAME}-driver"
    properties = full.config["spark"]["properties"]
    ports = {port["name"]: port["containerPort"] for port in full.container["ports"]}
    assert ports["driver"] == properties["spark.driver.port"]
    assert ports["blocks"] == properties["spark.blockManager.port"]


def _selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_selectors_find_their_pods_and_no_others(full: Rendered) -> None:
    """Services, budgets and policies of driver and executors select the pods of each, not the test's."""
    driver = full.find("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    executor = full.executor["metadata"]["labels"]
    test = full.find("Pod", f"{NAME}-test")["metadata"]["labels"]
    for kind, name, wanted in [
        ("StatefulSet", NAME, driver),
        ("PodDisruptionBudget", NAME, driver),
        ("PodDisruptionBudget", f"{NAME}-executor", executor),
    ]:
        selector = full.find(kind, name)["spec"]["selector"]["matchLabels"]
        assert [labels for labels in (driver, executor, test) if _selects(selector, labels)] == [wanted]
    for name, wanted in [(f"{NAME}-driver", driver), (f"{NAME}-executor", executor), (f"{NAME}-test", test)]:
        selector = full.find("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]
        assert [labels for labels in (driver, executor, test) if _selects(selector, labels)] == [wanted]
    for name in (NAME, f"{NAME}-driver"):
        assert _selects(full.find("Service", name)["spec"]["selector"], driver)
    monitor = full.find("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    services = [one for one in full.manifests if one["kind"] == "Service"]
    assert [one["metadata"]["name"] for one in services if _selects(monitor, one["metadata"]["labels"])] == [NAME]


def test_network_policies(full: Rendered, local: Rendered) -> None:
    """The monitoring port for those that are named, Spark's ports for each other; egress where it is restricted."""
    policy = local.find("NetworkPolicy", f"{NAME}-driver")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert not policy["ingress"]
    policy = full.find("NetworkPolicy", f"{NAME}-driver")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    (executors,) = policy["ingress"][1]["from"]
    assert executors["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "executor"
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 9042, 9093, 443, 6443, 7079, 9094}
    executor = full.find("NetworkPolicy", f"{NAME}-executor")["spec"]
    assert 6443 not in {port["port"] for rule in executor["egress"] for port in rule["ports"]}
    tested = full.find("NetworkPolicy", f"{NAME}-test")["spec"]
    assert {port["port"] for rule in tested["egress"] for port in rule["ports"]} == {53, 9042, 9093, 443, 6443, 9094}


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ({}, []),
        ({"monitoringFrom": []}, []),
        ({"monitoringFrom": [{"podSelector": {}}]}, [{"from": [{"podSelector": {}}]}]),
        ({"monitoringFromAll": True}, [{}]),
        ({"monitoringFromAll": True, "monitoringFrom": [{"podSelector": {}}]}, [{}]),
    ],
)
def test_who_reaches_the_monitoring_port(chart: Chart, given: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    """Those that are named; nobody if none are, and all only if that is said."""
    port = {"ports": [{"port": "monitoring", "protocol": "TCP"}]}
    local = chart.render(values={"networkPolicy": given}).find("NetworkPolicy", f"{NAME}-driver")["spec"]
    assert local["ingress"] == [port | rule for rule in rules]
    distributed = chart.render(values={"networkPolicy": given, "mode": "kubernetes"})
    of_driver = distributed.find("NetworkPolicy", f"{NAME}-driver")["spec"]["ingress"]
    assert of_driver[:-1] == [port | rule for rule in rules]
    assert [one["port"] for one in of_driver[-1]["ports"]] == ["driver", "blocks"]


@pytest.mark.parametrize(
    ("path", "properties", "ports"),
    [
        ("s3a://bucket/checkpoint", {}, {443}),
        ("s3a://bucket/checkpoint", {"spark.hadoop.fs.s3a.endpoint": "http://minio.store:9000"}, {443, 9000}),
        ("s3a://bucket/checkpoint", {"spark.hadoop.fs.s3a.endpoint": "minio.store:9001"}, {443, 9001}),
        ("hdfs://names/checkpoint", {}, {8020, 9866}),
        ("hdfs://names:9820/checkpoint", {}, {8020, 9820, 9866}),
        ("abfss://box@account.dfs.core.windows.net/checkpoint", {}, {443}),
        ("file:///shared", {}, set()),
        ("/shared", {}, set()),
        ("", {"spark.hadoop.fs.s3a.endpoint": "http://minio.store:9000"}, set()),
    ],
)
def test_checkpoints_store_may_be_reached(chart: Chart, path: str, properties: dict[str, str], ports: set[int]) -> None:
    """Restricted egress lets only the driver reach the checkpoint's store."""

    def allowed(given: dict[str, Any], name: str) -> set[int]:
        policy = chart.render(values=given | {"networkPolicy": {"egress": {"restricted": True}}})
        rules = policy.find("NetworkPolicy", name)["spec"]["egress"]
        assert all(rule["ports"] for rule in rules), "a rule without ports allows them all"
        return {port["port"] for rule in rules for port in rule["ports"]}

    given = {"checkpoint": {"path": path}, "config": {"spark": {"properties": properties}}}
    driver, test = f"{NAME}-driver", f"{NAME}-test"
    assert allowed(given, driver) - allowed({}, driver) == ports
    assert allowed(given, test) == allowed({}, test)


def test_given_labels_of_pods_are_stronger_than_those_of_every_object(chart: Chart) -> None:
    """One key, one label."""
    values = {
        "commonLabels": {"tier": "any", "team": "data"},
        "driver": {"podLabels": {"tier": "driver"}},
        "executors": {"podLabels": {"tier": "executor"}},
        "monitoring": {"dashboard": {"enabled": True, "labels": {"team": "looks"}}},
    }
    rendered = chart.render(FULL, values=values)
    metadata = rendered.find("StatefulSet")["spec"]["template"]["metadata"]
    assert (metadata["labels"]["tier"], metadata["labels"]["team"]) == ("driver", "data")
    assert rendered.executor["metadata"]["labels"]["tier"] == "executor"
    assert rendered.find("ConfigMap", f"{NAME}-dashboard")["metadata"]["labels"]["team"] == "looks"


@pytest.mark.parametrize(
    ("given", "patience", "deadline"), [(180, 60, 180), (180, 120, 240), (10, 0, 120), (900, 60, 900)]
)
def test_helm_test_outlasts_the_patience(chart: Chart, given: int, patience: int, deadline: int) -> None:
    """It must come to say what is wrong before it is ended."""
    values = {"test": {"activeDeadlineSeconds": given}, "config": {"startup": {"patience_s": patience}}}
    assert chart.render(values=values).find("Pod", f"{NAME}-test")["spec"]["activeDeadlineSeconds"] == deadline


def test_scheduling_is_passed_on(full: Rendered) -> None:
    """What says where pods run, and what they are marked with, reaches driver and executors."""
    driver, executor = full.driver, full.executor["spec"]
    for spec in (driver, executor):
        assert spec["nodeSelector"] == {"disk": "ssd"}
        assert spec["tolerations"][0]["key"] == "dedicated"
        assert spec["priorityClassName"] == "important"
        assert spec["imagePullSecrets"] == [{"name": "pull"}]
        assert spec["containers"][0]["env"][0]["name"] == "REGISTRY_KEY_PASSWORD"
    assert driver["affinity"]["nodeAffinity"]
    assert driver["topologySpreadConstraints"][0]["maxSkew"] == 1
    assert {"name": "more", "mountPath": "/more"} in driver["containers"][0]["volumeMounts"]
    assert full.executor["metadata"]["labels"]["tier"] == "executor"
    assert full.executor["metadata"]["annotations"]["note"] == "executor"
    metadata = full.find("StatefulSet")["spec"]["template"]["metadata"]
    assert (metadata["labels"]["tier"], metadata["annotations"]["note"]) == ("driver", "driver")


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"networkPolicy": {"enabled": False}}, ["NetworkPolicy"]),
        ({"disruptionBudget": {"enabled": False}}, ["PodDisruptionBudget"]),
        ({"checkpoint": {"persistence": {"enabled": False}}}, ["PersistentVolumeClaim"]),
        ({"checkpoint": {"persistence": {"existingClaim": "mine"}}}, ["PersistentVolumeClaim"]),
        ({"monitoring": {"dashboard": {"enabled": False}}}, [f"ConfigMap {NAME}-dashboard"]),
        ({"monitoring": {"serviceMonitor": {"enabled": False}}}, ["ServiceMonitor"]),
        ({"monitoring": {"prometheusRule": {"enabled": False}}}, ["PrometheusRule"]),
    ],
    ids=str,
)
def test_switches(chart: Chart, full: Rendered, values: dict[str, Any], gone: list[str]) -> None:
    """A switch takes away its own objects and no others."""
    left = chart.render(FULL, values=values).kinds()
    assert left == [one for one in full.kinds() if not one.startswith(tuple(gone))]
    assert left != full.kinds()


def test_claims(chart: Chart, full: Rendered) -> None:
    """The checkpoint's volume is the release's claim, one that is there, or none."""

    def source(values: dict[str, Any]) -> dict[str, Any]:
        volumes = chart.render(values={"checkpoint": {"persistence": values}}).driver["volumes"]
        (found,) = [volume for volume in volumes if volume["name"] == "checkpoint"]
        return {key: value for key, value in found.items() if key != "name"}

    assert source({}) == {"persistentVolumeClaim": {"claimName": f"{NAME}-checkpoint"}}
    assert source({"existingClaim": "mine"}) == {"persistentVolumeClaim": {"claimName": "mine"}}
    assert source({"enabled": False}) == {"emptyDir": {"sizeLimit": "1Gi"}}
    claim = full.find("PersistentVolumeClaim", f"{NAME}-checkpoint")["spec"]
    assert claim == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_alerts_are_of_this_release(full: Rendered) -> None:
    """Each alert looks at this release's service alone, and says what to do."""
    (group,) = full.find("PrometheusRule")["spec"]["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) >= 11
    for rule in group["rules"]:
        assert f'namespace="{NAMESPACE}", service="{NAME}"' in rule["expr"]
        assert rule["labels"]["team"] == "data"
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_long_names_stay_within_limits(chart: Chart) -> None:
    """A long release's name is cut, so that names which Kubernetes and Spark make of it are short enough."""
    rendered = chart.render(release="a-release-with-a-name-of-fifty-three-characters-in-it")
    (statefulset,) = [one for one in rendered.manifests if one["kind"] == "StatefulSet"]
    assert len(statefulset["metadata"]["name"]) <= 40
    assert all(len(one["metadata"]["name"]) <= 63 for one in rendered.manifests)


def test_notes(chart: Chart) -> None:
    """What Helm says names the job, how to look at it, and what is unusual."""
    said = chart.notes()
    assert "Only probes and port-forward reach the monitoring port" in said
    assert "the job `shop`" in said
    assert "helm test shop --namespace data" in said
    assert "SUSPENDED" not in said
    assert "once these are there" not in said
    said = chart.notes(FULL, values={"driver": {"suspended": True}, "networkPolicy": {"enabled": False}})
    assert "3 executor pod(s)" in said
    assert "SUSPENDED" in said
    assert "There is no NetworkPolicy" in said
    assert "restricted Pod Security" not in said
    assert "  Secret scylla-reader with password\n" in said
    assert "  ConfigMap company-ca with ca.pem, crl.pem\n" in said
    assert "Only probes and port-forward reach the monitoring port" not in said
    said = chart.notes(values={"security": {"pod": {"runAsUser": None, "runAsNonRoot": None}}})
    assert "not keep to the restricted Pod Security Standard: security.pod.runAsNonRoot." in said
