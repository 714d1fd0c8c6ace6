"""Checks the cluster that Spark's executors run on."""

from __future__ import annotations

import socket
from functools import partial
from typing import Final

from bridge.adapters import kubernetes
from bridge.adapters.connect import Report
from bridge.config.document import BridgeConfig
from bridge.errors import RetriableError, StartupError
from bridge.runtime.retry import retry_until_reachable

KUBERNETES: Final = "k8s://"
STANDALONE: Final = "spark://"
_MASTER_TIMEOUT_S: Final = 5.0


def check_master(config: BridgeConfig, report: Report, patience_s: float) -> None:
    """Check that a master of the standalone cluster answers.

    Spark itself would give up after a minute, without naming the address.

    Raises:
        StartupError: no master answers in time, or an address has no port.
    """
    addresses = config.spark.master.removeprefix(STANDALONE)

    def find_answering() -> str:
        problems = []
        for address in addresses.split(","):
            host, _, port = address.rpartition(":")
            if not port.isdigit():
                raise StartupError(f"spark.master: {address!r} has no port, as in spark://{address}:7077")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _MASTER_TIMEOUT_S).close()
            except OSError as error:
                problems.append(f"{address}: {error}")
            else:
                return address
        raise RetriableError("; ".join(problems))

    answering = retry_until_reachable(
        "spark.master", config.spark.master, find_answering, patience_s=patience_s, report=report
    )
    report(f"Spark's master at {answering} answers")


def check_pod_rights(config: BridgeConfig, report: Report, patience_s: float) -> None:
    """Check that this pod may create the executors' pods; without the rights, Spark would wait for them forever.

    Raises:
        StartupError: rights are missing, or Kubernetes does not answer in time.
    """
    server = config.spark.master.removeprefix(KUBERNETES)
    address = server if "://" in server else f"https://{server}"
    namespace = str(config.spark.properties.get("spark.kubernetes.namespace", "default"))
    ask = partial(kubernetes.missing_pod_verbs, address, namespace)
    missing = retry_until_reachable(
        "Kubernetes", address, ask, patience_s=patience_s, report=report, setting="spark.master"
    )
    if missing:
        raise StartupError(
            f"Kubernetes at {address}: the pod's service account may not {', '.join(missing)} pods in the namespace "
            f"{namespace}, which executors need; bind a Role with these verbs to it (the chart does with rbac.create)"
        )
    report(f"Kubernetes at {address} allows executors in the namespace {namespace}")
