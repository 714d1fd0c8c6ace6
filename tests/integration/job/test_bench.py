"""The benchmark's command, as a whole and small: what it prints is what its README says that it does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.processes.bridge_run import ROOT, environment
from sandbox.stack.stack import LocalStack

_CHANGES = 4_000
_WITHIN_S = 300


@pytest.fixture(scope="module")
def printed(local_stack: LocalStack) -> str:
    """What it writes to standard output."""
    options = ["--tables", "collections", "--changes", str(_CHANGES), "--lanes", "2", "--stages"]
    options += ["--rate", "200", "--seconds", "3", "--confidence", "500", "--folder", str(local_stack.folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "bench", *options],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=_WITHIN_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


@pytest.fixture(scope="module")
def line(printed: str) -> dict[str, Any]:
    """The table's JSON line."""
    found: dict[str, Any] = json.loads(printed.splitlines()[0])
    return found


def test_every_figure_of_the_readme_is_there(line: dict[str, Any]) -> None:
    """By the name that the README gives it; it says of some that longer drains alone have them."""
    text = ROOT.joinpath("bench", "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    in_words = re.findall(r"`((?:latency|recovery|ratio|cpu_ratio|changes_per_s)_\w+)`", text)
    longer = {"pss_mib_over_time", "pss_mib_growth_per_million"}
    assert len(listed) > 10
    assert {*listed, *in_words} - longer <= line.keys()


def test_the_ratios_are_those_of_the_figures_beside_them(line: dict[str, Any]) -> None:
    """To four digits, as they are printed."""
    stages = line["stages"]
    assert stages.keys() == {"read", "encode", "produce"}
    slowest = min(stages, key=lambda stage: float(stages[stage]["per_s"]))
    assert line["slowest_stage"] == slowest
    assert line["ratio_to_slowest_stage"] == pytest.approx(line["changes_per_s"] / stages[slowest]["per_s"], rel=0.01)
    for ratio, figure in (
        ("cpu_ratio_to_read", "cpu_s_per_million"),
        ("cpu_ratio_to_read_streaming", "cpu_s_per_million_streaming"),
    ):
        assert line[ratio] == pytest.approx(line[figure] / stages["read"]["cpu_s_per_million"], rel=0.01)


def test_latency_is_above_the_confidence_window(line: dict[str, Any]) -> None:
    """Nothing can come before it is over, and the killed job came back."""
    assert line["confidence_ms"] == 500
    assert 500 < line["latency_ms"]["p50"] <= line["latency_ms"]["p99"]
    assert line["latency_changes"] > 0
    assert line["recovery_s"] > 0


def test_nothing_of_it_stays_on_the_stack(printed: str, local_stack: LocalStack) -> None:
    """A stack that ran before the benchmark keeps running; the benchmark's processes end."""
    assert "collections" in printed.splitlines()[3]
    assert all(component.is_up for component in local_stack.status())
    here = str(local_stack.folder / "bench").encode()
    left = [pid for pid in Path("/proc").glob("[0-9]*") if here in _command(pid)]
    assert not left


def _command(pid: Path) -> bytes:
    try:
        return pid.joinpath("cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
