"""The documents for users: links, metrics and settings that they name exist, and the README stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.config.reference.catalog import catalog_of
from bridge.monitoring.metrics import METRICS, PREFIX
from deploy.chart.documents import leaves
from deploy.chart.values import ChartValues

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "scylla-cdc-bridge" / "README.md"
README = ROOT / "README.md"
PAGES = [README, CHART, ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(r'(?:src|srcset)="([^"]+)"')


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file or folder that exists, and a heading of it."""
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in (*LINK.findall(prose), *PICTURE.findall(prose)) if "://" not in link]
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def test_readme_is_short() -> None:
    """Reference material belongs into docs/."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 160


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_metrics_exist(page: Path) -> None:
    """Each metric that a page names is one that a job exposes."""
    named = set(re.findall(rf"`({PREFIX}\w+)`", page.read_text(encoding="utf-8")))
    assert named <= {metric.name for metric in METRICS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_settings_exist(page: Path) -> None:
    """Each setting that a page names is one of the configuration file, or a value of the chart."""
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    sections = "|".join(name for name in catalog_of().sections if name.isalpha())
    named = set(re.findall(rf"`(?:config\.)?((?:{sections})(?:\.[a-z_]+)+)`", prose))
    values = {path for path, *_ in leaves(ChartValues())}
    assert {one for one in named if not catalog_of().knows(one)} <= values
