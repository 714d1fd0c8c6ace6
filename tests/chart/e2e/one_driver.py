"""How many pods of the driver there are at a time: by a watch, which misses none that comes and goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.chart.e2e.control_plane import Cluster, Json

DRIVER: Final = "app.kubernetes.io/component%3Ddriver"
"""Selector of the driver's pods, whatever makes them."""
_MARK: Final = "test/watched-until"


def most_at_once(before: Iterable[Json], events: Iterable[Json]) -> int:
    """The largest number of pods at one time. A terminating pod counts until it is gone.

    Args:
        before: the pods that there are before the first event.
        events: of a watch that began then; read up to the one that shows the mark on a pod.

    Raises:
        AssertionError: the events end before that one.
    """
    there = {_uid(pod) for pod in before}
    most = len(there)
    for event in events:
        pod = event["object"]
        if event["type"] == "DELETED":
            there.discard(_uid(pod))
        elif event["type"] in ("ADDED", "MODIFIED"):
            there.add(_uid(pod))
        most = max(most, len(there))
        if _MARK in pod["metadata"].get("annotations", {}):
            return most
    raise AssertionError(f"the watch has ended too early: it has seen {most} pods at once, and there are {len(there)}")


@contextmanager
def never_two_drivers(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Assert that at no time in the block a namespace has two pods of the driver; in the end it has to have one."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    before = cluster.request("GET", f"{pods}?labelSelector={DRIVER}")
    watch = cluster.watching(f"{pods}?labelSelector={DRIVER}", before["metadata"]["resourceVersion"])
    with watch as events:
        yield
        now = [pod["metadata"]["name"] for pod in cluster.pods(namespace, DRIVER)]
        assert len(now) == 1, f"pods of the driver: {now}"
        path = f"{pods}/{now[0]}"
        # The API server tells what happens to pods in its order: what was before the mark is read before it.
        _annotate(cluster, path, "now")
        try:
            most = most_at_once(before["items"], events)
        finally:
            _annotate(cluster, path, None)
    assert most == 1, f"{most} pods of the driver at one time"
    sets = cluster.request("GET", f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
    assert sets == [], "a ReplicaSet may run two"


def _annotate(cluster: Cluster, path: str, value: str | None) -> None:
    change: dict[str, Any] = {"metadata": {"annotations": {_MARK: value}}}
    cluster.request("PATCH", path, change, content_type="application/merge-patch+json")


def _uid(pod: Json) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid
