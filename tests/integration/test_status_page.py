"""The status page over HTTP, in a real browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from shutil import which

import pytest

from bridge.errors import StartupError
from bridge.monitoring.server import Answers, MonitoringServer
from bridge.monitoring.view import JobView
from tests.unit.bridge.monitoring import jobs

pytestmark = pytest.mark.integration

BROWSER = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def serve(*views: JobView) -> MonitoringServer:
    """Shows one view after the other, then the last again and again."""
    coming: Iterator[JobView] = chain(views, repeat(views[-1]))
    return MonitoringServer("127.0.0.1:0", Answers(lambda: next(coming)), or_free_port=False)


def browse(server: MonitoringServer, folder: Path, *arguments: str, wait_ms: int = 500) -> str:
    """What the page has become after a while, as the browser sees it."""
    assert BROWSER is not None
    common = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    wanted = [f"--virtual-time-budget={wait_ms}", *(arguments or ["--dump-dom"]), f"http://{server.address}/"]
    done = subprocess.run(
        [BROWSER, *common, "--window-size=1280,1700", "--hide-scrollbars", "--enable-logging=stderr", *wanted],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@needs_browser
def test_page_renews_itself(tmp_path: Path) -> None:
    """What changes in the job changes on the page, without the reader's doing; the browser complains of nothing."""
    server = serve(jobs.running(), jobs.failing())
    try:
        assert "2 of 3 tables in trouble" in browse(server, tmp_path, wait_ms=6_000)
    finally:
        server.close()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_suits_light_and_dark(tmp_path: Path, scheme: str) -> None:
    """The page's corner is as light or dark as the reader wants it; the picture is kept for whoever wants to look."""
    picture = tmp_path / f"{scheme}.png"
    server = serve(jobs.running())
    try:
        preferred = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
        browse(server, tmp_path, preferred, f"--screenshot={picture}")
    finally:
        server.close()
    image = pytest.importorskip("matplotlib.image").imread(picture)
    brightness = float(image[2, 2, :3].mean())
    assert brightness > 0.9 if scheme == "light" else brightness < 0.2
    assert len({tuple(pixel) for pixel in image[::4, ::4, :3].reshape(-1, 3).tolist()}) > 20


def test_address_that_is_taken() -> None:
    """An address that was asked for must be free; the default gives way."""
    first = serve(jobs.running())
    try:
        with pytest.raises(StartupError, match=rf"monitoring\.listen {first.address}: Address already in use"):
            MonitoringServer(first.address, Answers(jobs.running), or_free_port=False)
        second = MonitoringServer(first.address, Answers(jobs.running), or_free_port=True)
        assert second.address != first.address
        second.close()
    finally:
        first.close()
