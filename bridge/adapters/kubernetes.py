"""What the pod's account may do in Kubernetes, asked of the API server; needed where Spark's executors are pods."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from bridge.errors import RetriableError, StartupError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its account's `token`, and in `ca.crt` who may have signed the API server's certificate."""

POD_VERBS: Final = ("create", "get", "list", "watch", "delete", "deletecollection")
"""What Spark's driver does with the pods of its executors."""

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TIMEOUT_S: Final = 10.0


def missing_pod_verbs(address: str, namespace: str, account: Path = ACCOUNT) -> tuple[str, ...]:
    """Which of `POD_VERBS` the account lacks in a namespace.

    Args:
        address: the API server's, as `https://host:port`.
        namespace: where the executors' pods are to be.
        account: folder of the account's token.

    Raises:
        RetriableError: the API server does not answer, or is busy.
        StartupError: it refuses the account, or the account's files can't be read.
    """
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise StartupError(f"the service account's files in {account} can't be read: {error.strerror}") from error
    # Never by way of a proxy that is meant for the world outside.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def allowed(verb: str) -> bool:
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
            words = f"Kubernetes at {address}: it answers {error.code} {error.reason}"
            if error.code == 429 or error.code >= 500:
                raise RetriableError(words) from error
            raise StartupError(f"{words}, asked what the pod's service account may do") from error
        except (URLError, OSError) as error:
            raise RetriableError(f"Kubernetes at {address}: {getattr(error, 'reason', error)}") from error
        return bool(found["status"]["allowed"])

    return tuple(verb for verb in POD_VERBS if not allowed(verb))
