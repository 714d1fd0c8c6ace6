"""A Kubernetes control plane on the loopback: etcd, API server, controllers, scheduler, and a made-up kubelet.

All four are one program (`programs/controlplane`), built by `make chart-e2e` through the Go module proxy.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.go_tools import OwnProgram

KUBERNETES: Final = "1.36.3"
NODE: Final = "node-1"
NEVER_READY: Final = "made-up-kubelet/never-ready"
"""A pod with this label runs and does not become ready."""
_READY_WITHIN_S: Final = 120.0
_ANSWER_WITHIN_S: Final = 30
_WATCH_S: Final = 600
"""As long as a test may take."""
_VERSION: Final = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES.split(".")

CONTROL_PLANE: Final = OwnProgram(
    "controlplane",
    ".",
    (
        # Not optimised, it is compiled in a quarter of the time, and what the tests ask of it is little.
        "-gcflags",
        "all=-N -l",
        "-ldflags",
        f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor={_MAJOR} -X {_VERSION}.gitMinor={_MINOR}",
    ),
    "make chart-e2e",
)
"""Takes eight minutes of CPU time to build from nothing, and some 3 GB in Go's caches.

No registry of packages that we use has these programs ready-made at a release that is still supported.
"""

Json = dict[str, Any]


class ApiError(Exception):
    """What the API server refused, with its status."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running control plane.

    Attributes:
        url: of the API server.
        token: of an administrator.
        authority: PEM file that the server's certificate is checked against.
        kubeconfig: for Helm.
    """

    url: str
    token: str
    authority: Path
    kubeconfig: Path

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        impersonate: str | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """The API server's answer.

        Raises:
            ApiError: it refuses.
        """
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": content_type}
        if impersonate is not None:
            headers["Impersonate-User"] = impersonate
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urlopen(request, timeout=_ANSWER_WITHIN_S, context=self._trust()) as answer:
                found: Json = json.load(answer)
        except HTTPError as error:
            text = error.read().decode()
            raise ApiError(
                error.code, json.loads(text).get("message", text) if text.startswith("{") else text
            ) from None
        return found

    @contextmanager
    def watching(self, path: str, since: str) -> Iterator[Iterator[Json]]:
        """Yield the events of a list's objects after a resource version. Unread events are kept.

        Raises:
            ApiError: the API server ends the watch by an event, as when it no longer has that version.
            TimeoutError: nothing has come for long enough.
        """
        query = f"watch=1&resourceVersion={since}&timeoutSeconds={_WATCH_S}"
        address = f"{self.url}{path}{'&' if '?' in path else '?'}{query}"
        request = Request(address, headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(request, timeout=_ANSWER_WITHIN_S, context=self._trust()) as answer:
            yield map(_event, answer)

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    def pods(self, namespace: str, selector: str = "") -> list[Json]:
        """Pods of a namespace."""
        found: list[Json] = self.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")[
            "items"
        ]
        return found


def _event(line: bytes) -> Json:
    event: Json = json.loads(line)
    if event["type"] == "ERROR":
        raise ApiError(event["object"].get("code", 0), event["object"].get("message", line.decode()))
    return event


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A control plane with its data in a folder, and one node that is ready."""
    ports = dict(zip(("etcd", "peer", "api", "controllers", "scheduler"), _free_ports(5), strict=True))
    token = secrets.token_urlsafe(24)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="ascii")
    _write_key(folder / "accounts.key")
    url = f"https://127.0.0.1:{ports['api']}"
    authority = folder / "certificates" / "apiserver.crt"
    cluster = Cluster(url, token, authority, folder / "kubeconfig")
    with ExitStack() as parts:
        _start(parts, folder, "etcd", _etcd(folder, ports))
        _start(parts, folder, "kube-apiserver", _apiserver(folder, ports))
        wait_until(lambda: cluster.request("GET", "/api/v1/namespaces/default"), folder / "kube-apiserver.log")
        _write_kubeconfig(cluster)
        common = [f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1"]
        controllers = [
            *[*common, f"--secure-port={ports['controllers']}", f"--cert-dir={folder / 'controllers'}"],
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={authority}",
            # It would say that a made-up kubelet is gone.
            "--controllers=*,-node-lifecycle-controller",
        ]
        _start(parts, folder, "kube-controller-manager", controllers)
        scheduler = [*common, f"--secure-port={ports['scheduler']}", f"--cert-dir={folder / 'scheduler'}"]
        _start(parts, folder, "kube-scheduler", scheduler)
        _add_node(cluster)
        kubelet = _Kubelet(cluster)
        kubelet.start()
        parts.callback(kubelet.stop)
        yield cluster


def _etcd(folder: Path, ports: dict[str, int]) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}"
    return [
        *["--name=etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync"],
        *[f"--listen-client-urls={client}", f"--advertise-client-urls={client}"],
        *[f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=etcd={peer}"],
    ]


def _apiserver(folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        *["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={ports['api']}"],
        *[f"--cert-dir={folder / 'certificates'}", "--endpoint-reconciler-type=none"],
        *["--authorization-mode=RBAC", f"--token-auth-file={folder / 'tokens.csv'}"],
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/24",
    ]


def _start(parts: ExitStack, folder: Path, part: str, arguments: list[str]) -> None:
    log = parts.enter_context((folder / f"{part}.log").open("wb"))
    process = subprocess.Popen([CONTROL_PLANE.path, part, *arguments], stdout=log, stderr=log, cwd=folder)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    parts.callback(stop)


def wait_until(look: Callable[[], object], log: Path | None = None) -> None:
    """Wait until the API server answers a request well; when it never does, the error has the end of a log."""
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while True:
        try:
            look()
        except (ApiError, URLError, OSError) as error:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"not ready ({error}):\n{log.read_text()[-3000:] if log else ''}") from error
            time.sleep(0.2)
        else:
            return


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _write_kubeconfig(cluster: Cluster) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": cluster.url, "certificate-authority": str(cluster.authority)}}
        ],
        "users": [{"name": "admin", "user": {"token": cluster.token}}],
    }
    cluster.kubeconfig.write_text(json.dumps(config), encoding="utf-8")


def _add_node(cluster: Cluster) -> None:
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"disk": "ssd", "arch": "amd64"}},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "made up"}],
        },
    }
    made = cluster.request("POST", "/api/v1/nodes", node)
    # Admission taints every new node; whose kubelet is made up has to be told that it is ready.
    made["spec"].pop("taints", None)
    made = cluster.request("PUT", f"/api/v1/nodes/{NODE}", made)
    made["status"] = node["status"]
    cluster.request("PUT", f"/api/v1/nodes/{NODE}/status", made)


class _Kubelet(threading.Thread):
    """Says of every pod on the node that it runs and is ready (or has succeeded), and lets deleted ones go."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="made-up kubelet", daemon=True)
        self._cluster = cluster
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look at the pods until stopped."""
        while not self._stopped.wait(0.2):
            for pod in self._cluster.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={NODE}")["items"]:
                try:
                    self._look_after(pod)
                except ApiError as error:
                    if error.status not in (404, 409):  # it has changed, or is gone
                        raise

    def _look_after(self, pod: Json) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            self._cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
        elif pod["status"].get("phase") == "Pending":
            test = metadata["labels"].get("app.kubernetes.io/component") == "test"
            ready = not test and NEVER_READY not in metadata["labels"]
            status = {
                "phase": "Succeeded" if test else "Running",
                "podIP": "127.0.0.1",
                "podIPs": [{"ip": "127.0.0.1"}],
                "conditions": [
                    {"type": "Initialized", "status": "True"},
                    *({"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")),
                ],
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "image": container["image"],
                        "imageID": "",
                        "ready": ready,
                        "restartCount": 0,
                        "state": {"terminated": {"exitCode": 0}} if test else {"running": {}},
                    }
                    for container in pod["spec"]["containers"]
                ],
            }
            self._cluster.request(
                "PATCH", f"{path}/status", {"status": status}, content_type="application/strategic-merge-patch+json"
            )

    def stop(self) -> None:
        """End, and wait for that."""
        self._stopped.set()
        self.join(10)


if __name__ == "__main__":
    print(CONTROL_PLANE.build())
