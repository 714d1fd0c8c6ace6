"""A configuration file for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """\
name: job
scylla: {contact_points: "127.0.0.1:9042"}
kafka: {bootstrap_servers: "127.0.0.1:9092"}
registry: {url: "http://127.0.0.1:8081"}
tables: [shop.orders, {name: shop.lines, topic: lines, lanes: 2, start: latest}]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The path of a file with two tables."""
    path = tmp_path / "bridge.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)
