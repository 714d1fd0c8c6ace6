"""The chart's own values: one model for each concern; each field has its description and default.

The value `config` is the configuration file, which `bridge.config` defines. `values.yaml`, `values.schema.json` and the
README's table are generated from both.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bridge.config.refused_names import RefusedNames

OWN_LABELS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)
"""Labels by which selectors find the chart's objects."""

Labels = Annotated[
    dict[str, str], RefusedNames(dict.fromkeys(OWN_LABELS, "the chart sets it, and finds its objects by it"))
]
KubernetesObject = dict[str, Any]
"""Part of a Kubernetes object, passed on unchanged; the API server validates its fields."""

_Port = Annotated[int, Field(ge=1024, le=65535)]
_NAME: Final = r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$"
_MEMORY: Final = r"^[1-9][0-9]*[mgt]$"
_QUANTITY: Final = r"^([1-9][0-9]*m?|[0-9]+\.[0-9]+)?$"
_PLACE: Final = r"^(([a-z][a-z0-9+.-]*:)?/.*)?$"
_SIZE: Final = r"^[1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"

RESTRICTED_POD: Final[KubernetesObject] = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "fsGroup": 10001,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER: Final[KubernetesObject] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class _Values(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class NamedObject(_Values):
    """A reference to an object in the release's namespace."""

    name: str = Field(min_length=1, description="Name of the object.")


class Image(_Values):
    """The image of driver, executors and test (`deploy/Dockerfile`)."""

    repository: str = Field("scylla-cdc-bridge", min_length=1, description="Registry and name of the image.")
    tag: str = Field("", description="Tag; empty for the chart's appVersion.")
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$", description="Digest; replaces the tag.")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="When to pull the image."
    )


class Scheduling(_Values):
    """Placement, labels, environment and volumes of pods."""

    pod_labels: Labels = Field(default_factory=dict, description="Additional labels of the pods.")
    pod_annotations: dict[str, str] = Field(default_factory=dict, description="Additional annotations of the pods.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that a node must have.")
    affinity: KubernetesObject = Field(default_factory=dict, description="Affinity of the pods.")
    tolerations: list[KubernetesObject] = Field(default_factory=list, description="Tolerations of the pods.")
    topology_spread_constraints: list[KubernetesObject] = Field(
        default_factory=list, description="Topology spread constraints, with their label selectors."
    )
    priority_class_name: str = Field("", description="Priority class of the pods.")
    extra_env: list[KubernetesObject] = Field(
        default_factory=list,
        description="Additional environment variables, as in a container's `env`. Give secrets by `valueFrom` only.",
    )
    extra_volumes: list[KubernetesObject] = Field(
        default_factory=list,
        description="Additional volumes. Their names must differ from those of the chart's volumes.",
    )
    extra_volume_mounts: list[KubernetesObject] = Field(
        default_factory=list, description="Additional mounts. Their paths must differ from those of the chart's mounts."
    )


class Probe(_Values):
    """Timing of a probe."""

    period_seconds: int = Field(10, ge=1, description="Seconds between two probes.")
    timeout_seconds: int = Field(5, ge=1, description="Seconds that an answer may take.")
    failure_threshold: int = Field(3, ge=1, description="Consecutive failures that count as a failure.")


class Driver(Scheduling):
    """The driver's pod. It plans and supervises, and with mode `local` does all the work."""

    suspended: bool = Field(
        False,
        description="Run no driver. The next driver continues where the last one stopped. No alert fires meanwhile, "
        "and unread changes expire with the log's TTL.",
    )
    cores: int = Field(
        2, ge=1, description="With mode `local`, the number of concurrent tasks, and the default of `lanes`."
    )
    memory: str = Field(
        "1g",
        pattern=_MEMORY,
        description="Heap of the JVM. It needs a tenth more, at least 384 MiB. Python's processes need memory too.",
    )
    resources: KubernetesObject = Field(
        default_factory=lambda: {"requests": {"cpu": "1", "memory": "3Gi"}, "limits": {"memory": "3Gi"}},
        description="Resource requests and limits of the container.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")
    termination_grace_period_seconds: int = Field(
        60, ge=30, description="Seconds to finish the publication in flight and to stop. A stop takes about 20."
    )
    startup_seconds: int = Field(
        240, ge=60, description="Seconds that a start may take in addition to `config.startup.patience_s`."
    )
    liveness: Probe = Field(Probe(period_seconds=20), description="Probes /healthz.")
    readiness: Probe = Field(Probe(), description="Probes /readyz.")


class Executors(Scheduling):
    """The pods that do the work with mode `kubernetes`. The driver creates them."""

    instances: int = Field(2, ge=1, description="Number of executors.")
    cores: int = Field(2, ge=1, description="Concurrent tasks of each executor.")
    memory: str = Field("1g", pattern=_MEMORY, description="Heap of each executor's JVM.")
    memory_overhead: str = Field(
        "2g",
        pattern=_MEMORY,
        description="Memory of each executor beside its heap, mostly for Python's processes. At least a tenth of the "
        "heap and 384m.",
    )
    cpu_request: str = Field("", pattern=_QUANTITY, description="CPU request of each executor; empty for its `cores`.")
    cpu_limit: str = Field("", pattern=_QUANTITY, description="CPU limit of each executor; empty for none.")
    termination_grace_period_seconds: int = Field(30, ge=0, description="Grace period in seconds.")
    driver_port: _Port = Field(7078, description="Port on which the driver listens for executors.")
    block_manager_port: _Port = Field(7079, description="Port of the block managers of driver and executors.")


class ServiceAccount(_Values):
    """A service account of the pods."""

    create: bool = Field(True, description="Create the account.")
    name: str = Field(
        "",
        pattern=_NAME,
        max_length=63,
        description="Name of the account; empty for a name derived from the release. Required for the driver if "
        "`create` is false.",
    )
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Annotations, for example for workload identity."
    )


class ServiceAccounts(_Values):
    """Service accounts of the pods. Only the driver's account has rights, and only with mode `kubernetes`."""

    driver: ServiceAccount = Field(ServiceAccount(), description="Account of the driver and the test.")
    executors: ServiceAccount = Field(ServiceAccount(), description="Account of the executors. It has no rights.")


class Rbac(_Values):
    """The driver's rights."""

    create: bool = Field(True, description="With mode `kubernetes`, allow the driver to manage pods in its namespace.")


class Persistence(_Values):
    """The PersistentVolumeClaim of the checkpoint."""

    enabled: bool = Field(
        True, description="Keep the checkpoint on a volume. Otherwise a restart reads up to one window again."
    )
    existing_claim: str = Field("", description="Name of an existing claim to use.")
    size: str = Field("1Gi", pattern=_SIZE, description="Size of the claim.")
    storage_class_name: str = Field("", description="Storage class; empty for the cluster's default.")
    access_modes: list[str] = Field(["ReadWriteOnce"], min_length=1, description="Access modes of the claim.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class Checkpoint(_Values):
    """Spark's plan. Its loss loses and duplicates no change."""

    path: str = Field(
        "",
        pattern=_PLACE,
        description="A Hadoop-compatible path such as s3a://bucket/folder instead of a volume. Add its jars yourself.",
    )
    persistence: Persistence = Persistence()


class Temporary(_Values):
    """The only folder that pods can write, /tmp: Spark's spilled data, sockets."""

    size_limit: str = Field("2Gi", pattern=_SIZE, description="Size limit of /tmp.")
    medium: Literal["", "Memory"] = Field("", description="`Memory` for a tmpfs, which counts as memory of the pod.")


class Security(_Values):
    """Security contexts; the defaults are those of the restricted Pod Security Standard.

    Null removes a field of a context, but not a whole context.
    """

    pod: KubernetesObject = Field(
        default_factory=lambda: dict(RESTRICTED_POD),
        description="Security context of the pods. The image knows only user 10001.",
    )
    container: KubernetesObject = Field(
        default_factory=lambda: dict(RESTRICTED_CONTAINER), description="Security context of the containers."
    )


class Service(_Values):
    """The Service for metrics and the status page."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Type of the Service.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class ServiceMonitor(_Values):
    """The ServiceMonitor of the Prometheus operator."""

    enabled: bool = Field(False, description="Create a ServiceMonitor.")
    interval: str = Field("30s", pattern=r"^[1-9][0-9]*(ms|s|m)$", description="Time between scrapes.")
    scrape_timeout: str = Field("10s", pattern=r"^[1-9][0-9]*(ms|s|m)$", description="Time that a scrape may take.")
    labels: Labels = Field(default_factory=dict, description="Labels by which Prometheus selects the object.")
    relabelings: list[KubernetesObject] = Field(default_factory=list, description="Relabelings of the target.")
    metric_relabelings: list[KubernetesObject] = Field(default_factory=list, description="Relabelings of samples.")


class Alerts(_Values):
    """Thresholds of the alerts."""

    lag_seconds: int = Field(300, ge=1, description="Lag of a table in seconds that raises an alert.")
    ttl_left_seconds: int = Field(
        21600,
        ge=1,
        description="Seconds until unread changes expire that raise an alert, or a quarter of the log's TTL if less.",
    )
    for_: str = Field(
        "10m",
        alias="for",
        pattern=r"^[1-9][0-9]*(s|m|h)$",
        description="How long a condition that can recover by itself must last.",
    )


class PrometheusRule(_Values):
    """The PrometheusRule of the Prometheus operator, with alerts."""

    enabled: bool = Field(False, description="Create a PrometheusRule.")
    labels: Labels = Field(default_factory=dict, description="Labels by which Prometheus selects the object.")
    alert_labels: dict[str, str] = Field(default_factory=dict, description="Additional labels of each alert.")
    alerts: Alerts = Alerts()


class Dashboard(_Values):
    """The Grafana dashboard, in a ConfigMap for Grafana's sidecar."""

    enabled: bool = Field(False, description="Create the ConfigMap.")
    labels: Labels = Field(
        default_factory=lambda: {"grafana_dashboard": "1"},
        description="Labels by which the sidecar finds the ConfigMap.",
    )
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Annotations, for example the dashboard's folder."
    )


class Monitoring(_Values):
    """Metrics, probes and status page."""

    port: _Port = Field(9404, description="Port of the driver's pod and of the Service.")
    service: Service = Service()
    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboard: Dashboard = Dashboard()


class Egress(_Values):
    """What the pods can reach."""

    restricted: bool = Field(
        False,
        description="Allow only DNS, the ports that `config` and `checkpoint.path` name, the API server if needed, and "
        "`extra`.",
    )
    api_server_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        [443, 6443], description="Ports of the API server."
    )
    extra: list[KubernetesObject] = Field(
        default_factory=list,
        description="Additional egress rules, for example for Kafka's advertised ports if they differ from `config`.",
    )


class NetworkPolicy(_Values):
    """Allowed connections."""

    enabled: bool = Field(True, description="Allow only the monitoring port, and driver and executors to each other.")
    monitoring_from: list[KubernetesObject] = Field(
        default_factory=list,
        description="Peers that can reach the monitoring port, such as Prometheus; none if empty. Probes and "
        "port-forward need no rule.",
    )
    monitoring_from_all: bool = Field(
        False, description="Let every peer reach the monitoring port, whatever `monitoringFrom` says."
    )
    egress: Egress = Egress()


class DisruptionBudget(_Values):
    """PodDisruptionBudgets, which node drains respect."""

    enabled: bool = Field(
        True, description="Create budgets for the driver and, with mode `kubernetes`, for the executors."
    )
    driver_max_unavailable: Literal[0, 1] = Field(
        1, description="1 allows a drain to restart the driver. With 0 you have to do it by hand."
    )


class Test(_Values):
    """`helm test`: checks servers, rights and tables with the release's configuration."""

    active_deadline_seconds: int = Field(
        180, ge=10, description="Seconds that the test may take; at least `config.startup.patience_s` and 120."
    )


class ChartValues(_Values):
    """The values of the chart, except `config`."""

    name_override: str = Field(
        "", pattern=_NAME, max_length=30, description="Replaces the chart's name in the objects' names."
    )
    fullname_override: str = Field("", pattern=_NAME, max_length=40, description="Replaces the objects' whole name.")
    common_labels: Labels = Field(default_factory=dict, description="Labels of every object.")
    common_annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of every object.")
    mode: Literal["local", "kubernetes"] = Field(
        "local",
        description="Where the work runs: in the driver's pod, or in executor pods that the driver creates.",
    )
    image: Image = Image()
    image_pull_secrets: list[NamedObject] = Field(default_factory=list, description="Secrets for pulling the image.")
    driver: Driver = Driver()
    executors: Executors = Executors()
    checkpoint: Checkpoint = Checkpoint()
    temporary: Temporary = Temporary()
    service_accounts: ServiceAccounts = ServiceAccounts()
    rbac: Rbac = Rbac()
    security: Security = Security()
    monitoring: Monitoring = Monitoring()
    network_policy: NetworkPolicy = NetworkPolicy()
    disruption_budget: DisruptionBudget = DisruptionBudget()
    test: Test = Test()
