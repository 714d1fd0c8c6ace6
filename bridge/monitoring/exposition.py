"""Metrics as Prometheus reads them: the only module that imports `prometheus_client`."""

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

from bridge.monitoring.counters import Histogram
from bridge.monitoring.metrics import METRICS, Metric
from bridge.monitoring.snapshot import JobView

_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Exposition:
    """Answers scrapes. Thread-safe."""

    def __init__(self, look: Callable[[], JobView]) -> None:
        """Prepare; nothing is asked yet.

        Args:
            look: gives the job as it is.
        """
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_JobCollector(look))
        ProcessCollector(registry=self._registry)

    def answer(self, accept: str) -> tuple[str, bytes]:
        """Content type and body of a scrape.

        Args:
            accept: the request's header, which chooses the format.
        """
        encode, content_type = choose_encoder(accept)
        body: bytes = encode(self._registry)
        return content_type, body


class _JobCollector(Collector):
    def __init__(self, look: Callable[[], JobView]) -> None:
        self._look = look

    def collect(self) -> Iterator[Family]:
        job = self._look()
        for metric in METRICS:
            yield _family(metric, job)


def _family(metric: Metric, job: JobView) -> Family:
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
