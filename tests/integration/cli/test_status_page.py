"""The status page over HTTP, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import StartupError
from bridge.monitoring.server import Answers, MonitoringServer
from tests.integration.support.browser import BROWSER, SCHEMES, browse, serve, take_picture
from tests.unit.bridge.monitoring import jobs

pytestmark = pytest.mark.integration

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


@needs_browser
def test_page_renews_itself(tmp_path: Path) -> None:
    """What changes in the job changes on the page, without the reader's doing; the browser complains of nothing."""
    server = serve(jobs.running(), jobs.failing())
    try:
        assert "2 of 3 tables in trouble" in browse(server, tmp_path, wait_ms=6_000)
    finally:
        server.close()


@needs_browser
@pytest.mark.parametrize("scheme", SCHEMES)
def test_page_suits_light_and_dark(tmp_path: Path, scheme: str) -> None:
    """The page's corner is light or dark as the reader's setting says. The picture is kept."""
    picture = tmp_path / f"{scheme}.png"
    take_picture(jobs.running(), scheme, picture, tmp_path)
    image = pytest.importorskip("matplotlib.image").imread(picture)
    brightness = float(image[2, 2, :3].mean())
    assert brightness > 0.9 if scheme == "light" else brightness < 0.2
    assert len({tuple(pixel) for pixel in image[::4, ::4, :3].reshape(-1, 3).tolist()}) > 20


def test_address_that_is_taken() -> None:
    """A configured address must be free; the default one may be replaced by another."""
    first = serve(jobs.running())
    try:
        with pytest.raises(StartupError, match=rf"monitoring\.listen {first.address}: Address already in use"):
            MonitoringServer(first.address, Answers(jobs.running), or_free_port=False)
        second = MonitoringServer(first.address, Answers(jobs.running), or_free_port=True)
        assert second.address != first.address
        second.close()
    finally:
        first.close()
