"""Asks the Kubernetes API server for the rights of the pod's account, which Spark needs to run executors as pods."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from bridge.errors import RetriableError, StartupError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the account's `token`, and with the authorities of the API server's certificate in `ca.crt`."""

POD_VERBS: Final = ("create", "get", "list", "watch", "delete", "deletecollection")
"""What Spark's driver does with the pods of its executors, as Kubernetes names it."""

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TIMEOUT_S: Final = 10.0


def missing_pod_verbs(address: str, namespace: str, account: Path = ACCOUNT) -> tuple[str, ...]:
    """The `POD_VERBS` that the account lacks in a namespace.

    Args:
        address: the API server's, as `https://host:port`.
        namespace: the namespace of the executors' pods.
        account: the folder with the account's files.

    Raises:
        RetriableError: the API server does not answer, or is busy.
        StartupError: the API server refuses the account, or the account's files can't be read.
    """
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise StartupError(f"the service account's files in {account} can't be read: {error.strerror}") from error
    # No proxy: a configured proxy is for connections out of the cluster.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def is_allowed(verb: str) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "pods"}},
        }
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = Request(address + _REVIEWS, data=json.dumps(review).encode(), headers=headers)  # noqa: S310  # https
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            problem = f"Kubernetes at {address}: it answers {error.code} {error.reason}"
            if error.code == 429 or error.code >= 500:
                raise RetriableError(problem) from error
            raise StartupError(f"{problem} to the question what the pod's service account may do") from error
        except (URLError, OSError) as error:
            raise RetriableError(f"Kubernetes at {address}: {getattr(error, 'reason', error)}") from error
        return bool(found["status"]["allowed"])

    return tuple(verb for verb in POD_VERBS if not is_allowed(verb))
