"""What the chart's tests share."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.chart.rendering import FULL, LOCAL, Chart, Rendered
from tests.chart.tools import HELM, ToolMissingError, tool


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """A test without its tool is skipped, with the reason."""
    yield from _skipped_without_tools()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Likewise, if it finds that out by itself."""
    yield from _skipped_without_tools()


def _skipped_without_tools() -> Generator[None]:
    try:
        yield
    except ToolMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart, with Helm; without it its tests are skipped."""
    try:
        return Chart(tool(HELM), tmp_path_factory.mktemp("values"))
    except ToolMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def local(chart: Chart) -> Rendered:
    """The least that can be installed."""
    return chart.render(LOCAL)


@pytest.fixture(scope="session")
def full(chart: Chart) -> Rendered:
    """Everything that can be switched on, with executors in pods of their own."""
    return chart.render(FULL)
