"""The status page in headless Chromium. `python -m tests.integration.support.browser FOLDER` takes its pictures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Final

from bridge.monitoring.server import Answers, MonitoringServer
from bridge.monitoring.snapshot import JobSnapshot
from tests.unit.bridge.monitoring import jobs

BROWSER: Final = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
STATES: Final = {"running": jobs.running, "stalled": jobs.stalled, "error": jobs.failing}
SCHEMES: Final = ("light", "dark")
_COLOURS: Final = 128
_TALLEST: Final = 3000
_MARGIN: Final = 40


def serve(*views: JobSnapshot) -> MonitoringServer:
    """Shows one view after the other, then the last again and again."""
    coming: Iterator[JobSnapshot] = chain(views, repeat(views[-1]))
    return MonitoringServer("127.0.0.1:0", Answers(lambda: next(coming)), or_free_port=False)


def browse(server: MonitoringServer, folder: Path, *arguments: str, wait_ms: int = 500, height: int = 1700) -> str:
    """What the page has become after a while, as the browser sees it."""
    assert BROWSER is not None
    common = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    wanted = [f"--virtual-time-budget={wait_ms}", *(arguments or ["--dump-dom"]), f"http://{server.address}/"]
    done = subprocess.run(
        [BROWSER, *common, f"--window-size=1280,{height}", "--hide-scrollbars", "--enable-logging=stderr", *wanted],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def take_picture(view: JobSnapshot, scheme: str, picture: Path, folder: Path, height: int = 1700) -> None:
    """The page as a reader with a light or dark screen sees it, as a PNG."""
    server = serve(view)
    try:
        preferred = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
        browse(server, folder, preferred, f"--screenshot={picture}", height=height)
    finally:
        server.close()


def main(folder: Path) -> None:
    """Pictures of a job that runs, one that is stalled and one in error, light and dark."""
    from PIL import Image, ImageChops

    folder.mkdir(parents=True, exist_ok=True)
    for state, view in STATES.items():
        for scheme in SCHEMES:
            picture = folder / f"{state}-{scheme}.png"
            with TemporaryDirectory() as scratch:
                take_picture(view(), scheme, picture, Path(scratch), _TALLEST)
            with Image.open(picture) as taken:
                colours = taken.convert("RGB")
            empty = Image.new("RGB", colours.size, colours.getpixel((0, 0)))
            _, _, _, bottom = ImageChops.difference(colours, empty).getbbox() or (0, 0, 0, _TALLEST)
            page = colours.crop((0, 0, colours.width, min(bottom + _MARGIN, _TALLEST)))
            # Flat colours: a palette makes it a third as large.
            page.quantize(_COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
            print(picture)


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit("no Chromium on this machine: install chromium")
    main(Path(sys.argv[1]))
