"""The chart's own values: one model for each concern, each field with its meaning and default.

The configuration file's part, `config`, is `bridge.config`'s and is not repeated here. `values.yaml`,
`values.schema.json` and the README's table are generated from both.
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
"""What the chart's objects are found by."""

Labels = Annotated[
    dict[str, str], RefusedNames(dict.fromkeys(OWN_LABELS, "the chart sets it, and finds its objects by it"))
]
KubernetesObject = dict[str, Any]
"""Part of a Kubernetes object, passed on as it is; the API server knows its fields."""

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
    """A reference to an object of the release's namespace."""

    name: str = Field(min_length=1, description="The object's name.")


class Image(_Values):
    """The image of driver, executors and test (`deploy/Dockerfile`)."""

    repository: str = Field("scylla-cdc-bridge", min_length=1, description="Registry and name.")
    tag: str = Field("", description="Tag; empty, the chart's appVersion.")
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$", description="Digest; given, the tag is not used.")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field("IfNotPresent", description="When to pull.")


class Scheduling(_Values):
    """Where pods run, and what they are marked with."""

    pod_labels: Labels = Field(default_factory=dict, description="Further labels of the pods.")
    pod_annotations: dict[str, str] = Field(default_factory=dict, description="Further annotations of the pods.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that a node must have.")
    affinity: KubernetesObject = Field(default_factory=dict, description="Affinity.")
    tolerations: list[KubernetesObject] = Field(default_factory=list, description="Tolerations.")
    topology_spread_constraints: list[KubernetesObject] = Field(
        default_factory=list, description="Topology spread constraints, with their label selectors."
    )
    priority_class_name: str = Field("", description="Priority class.")
    extra_env: list[KubernetesObject] = Field(
        default_factory=list,
        description="Further environment variables, as in a container's `env`; secrets by `valueFrom` alone.",
    )
    extra_volumes: list[KubernetesObject] = Field(
        default_factory=list, description="Further volumes, not called as one of the chart's is."
    )
    extra_volume_mounts: list[KubernetesObject] = Field(
        default_factory=list, description="Where volumes are mounted, not where the chart mounts one."
    )


class Probe(_Values):
    """How often a probe asks."""

    period_seconds: int = Field(10, ge=1, description="Pause between two questions, in s.")
    timeout_seconds: int = Field(5, ge=1, description="How long an answer may take, in s.")
    failure_threshold: int = Field(3, ge=1, description="Failures in a row that count.")


class Driver(Scheduling):
    """The one pod that plans, supervises and, with mode `local`, does all the work."""

    suspended: bool = Field(
        False, description="Run no driver (nothing is lost: it goes on where it was). No alert says so."
    )
    cores: int = Field(2, ge=1, description="With mode `local`, tasks that run at once; default of `lanes` too.")
    memory: str = Field(
        "1g",
        pattern=_MEMORY,
        description="Heap of the JVM. A tenth of it, at least 384 MiB, and Python's processes come on top.",
    )
    resources: KubernetesObject = Field(
        default_factory=lambda: {"requests": {"cpu": "1", "memory": "3Gi"}, "limits": {"memory": "3Gi"}},
        description="Requests and limits of the container.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Level of the log.")
    termination_grace_period_seconds: int = Field(
        60, ge=30, description="Time in s to finish the publication in flight and to stop; it needs about 20."
    )
    startup_seconds: int = Field(
        240, ge=60, description="Time in s that a start may take beyond `config.startup.patience_s`."
    )
    liveness: Probe = Field(Probe(period_seconds=20), description="Asks /healthz.")
    readiness: Probe = Field(Probe(), description="Asks /readyz.")


class Executors(Scheduling):
    """The pods that do the work with mode `kubernetes`; the driver asks the API server for them."""

    instances: int = Field(2, ge=1, description="How many.")
    cores: int = Field(2, ge=1, description="Tasks that each runs at once.")
    memory: str = Field("1g", pattern=_MEMORY, description="Heap of each JVM.")
    memory_overhead: str = Field(
        "2g",
        pattern=_MEMORY,
        description="What each has beyond its heap, Python's processes above all; at least a tenth of it and 384m.",
    )
    cpu_request: str = Field("", pattern=_QUANTITY, description="CPU request of each; empty, its `cores`.")
    cpu_limit: str = Field("", pattern=_QUANTITY, description="CPU limit of each; empty, none.")
    termination_grace_period_seconds: int = Field(30, ge=0, description="Grace period in s.")
    driver_port: _Port = Field(7078, description="Port at which the driver listens for executors.")
    block_manager_port: _Port = Field(7079, description="Port of the block managers of driver and executors.")


class ServiceAccount(_Values):
    """Who the pods are."""

    create: bool = Field(True, description="Make one.")
    name: str = Field(
        "",
        pattern=_NAME,
        max_length=63,
        description="Its name; empty, made of the release's. Of a driver's that is not made it has to be given.",
    )
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations, for workload identity.")


class ServiceAccounts(_Values):
    """Accounts of the pods. Only the driver's has rights, and only with mode `kubernetes`."""

    driver: ServiceAccount = Field(ServiceAccount(), description="Of driver and test.")
    executors: ServiceAccount = Field(ServiceAccount(), description="Of the executors; it has no rights at all.")


class Rbac(_Values):
    """The driver's rights."""

    create: bool = Field(True, description="With mode `kubernetes`, let the driver manage pods in its namespace.")


class Persistence(_Values):
    """The claim for the checkpoint."""

    enabled: bool = Field(True, description="Keep it on a volume; otherwise a restart reads up to one window again.")
    existing_claim: str = Field("", description="A claim that is there already.")
    size: str = Field("1Gi", pattern=_SIZE, description="Size.")
    storage_class_name: str = Field("", description="Storage class; empty, the cluster's default.")
    access_modes: list[str] = Field(["ReadWriteOnce"], min_length=1, description="Access modes.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class Checkpoint(_Values):
    """Spark's plan. A lost one loses and doubles nothing."""

    path: str = Field(
        "",
        pattern=_PLACE,
        description="A Hadoop-compatible path such as s3a://bucket/folder instead of a volume (jars are yours).",
    )
    persistence: Persistence = Persistence()


class Temporary(_Values):
    """The one folder that pods can write, /tmp: what Spark spills, sockets."""

    size_limit: str = Field("2Gi", pattern=_SIZE, description="Most it may hold.")
    medium: Literal["", "Memory"] = Field("", description="`Memory` for a tmpfs, which counts as the pod's memory.")


class Security(_Values):
    """Security contexts; the defaults are those of the restricted Pod Security Standard.

    Null takes a field of theirs away, never a whole context.
    """

    pod: KubernetesObject = Field(
        default_factory=lambda: dict(RESTRICTED_POD),
        description="Of the pods; the image knows user 10001 only.",
    )
    container: KubernetesObject = Field(
        default_factory=lambda: dict(RESTRICTED_CONTAINER), description="Of the containers."
    )


class Service(_Values):
    """The service of metrics and status page."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Type.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class ServiceMonitor(_Values):
    """Scraping by the Prometheus operator."""

    enabled: bool = Field(False, description="Make one.")
    interval: str = Field("30s", pattern=r"^[1-9][0-9]*(ms|s|m)$", description="Pause between scrapes.")
    scrape_timeout: str = Field("10s", pattern=r"^[1-9][0-9]*(ms|s|m)$", description="How long one may take.")
    labels: Labels = Field(default_factory=dict, description="Labels by which Prometheus selects it.")
    relabelings: list[KubernetesObject] = Field(default_factory=list, description="Relabelings of the target.")
    metric_relabelings: list[KubernetesObject] = Field(default_factory=list, description="Relabelings of samples.")


class Alerts(_Values):
    """Where alerts begin."""

    lag_seconds: int = Field(300, ge=1, description="Lag of a table that is too much, in s.")
    ttl_left_seconds: int = Field(
        21600,
        ge=1,
        description="Time until changes expire unread that is too short, in s; a quarter of the log's TTL, if that "
        "is less.",
    )
    for_: str = Field(
        "10m",
        alias="for",
        pattern=r"^[1-9][0-9]*(s|m|h)$",
        description="How long something must last that may pass by itself.",
    )


class PrometheusRule(_Values):
    """Alerts by the Prometheus operator."""

    enabled: bool = Field(False, description="Make one.")
    labels: Labels = Field(default_factory=dict, description="Labels by which Prometheus selects it.")
    alert_labels: dict[str, str] = Field(default_factory=dict, description="Further labels of each alert.")
    alerts: Alerts = Alerts()


class Dashboard(_Values):
    """The Grafana dashboard, in a ConfigMap that Grafana's sidecar finds."""

    enabled: bool = Field(False, description="Make it.")
    labels: Labels = Field(
        default_factory=lambda: {"grafana_dashboard": "1"}, description="Labels by which the sidecar finds it."
    )
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations, such as its folder.")


class Monitoring(_Values):
    """Metrics, probes and status page."""

    port: _Port = Field(9404, description="Port of the driver's pod and of the service.")
    service: Service = Service()
    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboard: Dashboard = Dashboard()


class Egress(_Values):
    """What the pods may reach."""

    restricted: bool = Field(
        False,
        description="Only DNS, the ports that `config` names, the API server where needed, those of `checkpoint.path`, "
        "and `extra`.",
    )
    api_server_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        [443, 6443], description="Ports of the API server."
    )
    extra: list[KubernetesObject] = Field(
        default_factory=list,
        description="Further egress rules, as for Kafka's advertised ports if others than configured.",
    )


class NetworkPolicy(_Values):
    """Who may talk to whom."""

    enabled: bool = Field(True, description="Allow only the monitoring port, and executors and driver each other.")
    monitoring_from: list[KubernetesObject] = Field(
        default_factory=list, description="Peers that may reach the monitoring port; empty, all."
    )
    egress: Egress = Egress()


class DisruptionBudget(_Values):
    """How node drains treat the pods."""

    enabled: bool = Field(True, description="Make budgets for the driver and, with mode `kubernetes`, the executors.")
    driver_max_unavailable: Literal[0, 1] = Field(
        1, description="1 lets a drain restart the driver; with 0 someone has to do it by hand."
    )


class Test(_Values):
    """`helm test`: looks at servers, rights and tables with the release's own configuration."""

    active_deadline_seconds: int = Field(
        180, ge=10, description="Time it may take, in s; at least `config.startup.patience_s` and 120."
    )


class ChartValues(_Values):
    """The values of the chart, `config` apart."""

    name_override: str = Field("", pattern=_NAME, max_length=30, description="Instead of the chart's name.")
    fullname_override: str = Field("", pattern=_NAME, max_length=40, description="Instead of the objects' name.")
    common_labels: Labels = Field(default_factory=dict, description="Labels of every object.")
    common_annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of every object.")
    mode: Literal["local", "kubernetes"] = Field(
        "local",
        description="Where the work is done: in the driver's own pod, or in executor pods that it asks for.",
    )
    image: Image = Image()
    image_pull_secrets: list[NamedObject] = Field(default_factory=list, description="Secrets to pull the image with.")
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
