"""Fixtures of the chart's tests."""

from __future__ import annotations

import pytest

from tests.chart.rendering import FULL, LOCAL, Chart, Rendered
from tests.go_tools import HELM


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """Return the chart, with Helm."""
    return Chart(HELM.get(), tmp_path_factory.mktemp("values"))


@pytest.fixture(scope="session")
def local(chart: Chart) -> Rendered:
    """Return the manifests of the smallest valid values."""
    return chart.render(LOCAL)


@pytest.fixture(scope="session")
def full(chart: Chart) -> Rendered:
    """Return the manifests with every option on, and executors in pods of their own."""
    return chart.render(FULL)
