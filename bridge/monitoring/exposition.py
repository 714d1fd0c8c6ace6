"""Metrics in the formats that Prometheus reads; the only module that imports `prometheus_client`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector, CollectorRegistry

from bridge.model.counters import Histogram
from bridge.monitoring.metrics import METRICS, Metric
from bridge.monitoring.snapshot import JobSnapshot

_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Exposition:
    """Answers scrapes. Thread-safe.

    Args:
        take_snapshot: returns the present state of the job; called for each scrape.
    """

    def __init__(self, take_snapshot: Callable[[], JobSnapshot]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_JobCollector(take_snapshot))
        ProcessCollector(registry=self._registry)

    def answer(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body for a scrape.

        Args:
            accept: the request's header `Accept`, which selects the format.
        """
        encode, content_type = choose_encoder(accept)
        body: bytes = encode(self._registry)
        return content_type, body


class _JobCollector(Collector):
    def __init__(self, take_snapshot: Callable[[], JobSnapshot]) -> None:
        self._take_snapshot = take_snapshot

    def collect(self) -> Iterator[Family]:
        job = self._take_snapshot()
        for metric in METRICS:
            yield _make_family(metric, job)


def _make_family(metric: Metric, job: JobSnapshot) -> Family:
    if metric.kind == "histogram":
        made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.read(job):
            assert isinstance(value, Histogram)
            ends = [*map(str, value.bounds), "+Inf"]
            made.add_metric(labels, list(zip(ends, accumulate(value.counts), strict=True)), value.total)
        return made
    family: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[metric.kind](
        metric.name, metric.help, labels=metric.labels
    )
    for labels, value in metric.read(job):
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family
