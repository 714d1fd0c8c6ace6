"""The demo as a user runs it, shortened, on the running stack."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sandbox.stack.stack import LocalStack

pytestmark = pytest.mark.integration

PROGRAM = (
    "import argparse, sys; from sandbox.demo import add_parser, run; "
    "parser = argparse.ArgumentParser(); add_parser(parser.add_subparsers()); sys.exit(run(parser.parse_args()))"
)


def command(stack: LocalStack, output: Path) -> list[str]:
    options = ["--folder", str(stack.folder), "--output", str(output), "--seconds", "10", "--rate", "300"]
    return [sys.executable, "-c", PROGRAM, "demo", *options]


def processes_that_name(folder: Path) -> list[psutil.Process]:
    """Processes whose command line holds the folder's name, the bridge with all its children among them."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
    ]


def test_the_demo_finds_every_change_once_and_in_order(local_stack: LocalStack, tmp_path: Path) -> None:
    """It ends with status 0, a summary without faults and a report; the stack goes on, the bridge does not."""
    output = tmp_path / "demo"
    ended = subprocess.run(command(local_stack, output), capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert summary["written"] == summary["arrived"] > summary["recorded_changes"] > 0
    assert [summary[name] for name in ("missing", "doubled", "out_of_order", "wrong", "unexpected")] == [0] * 5
    assert summary["generations_crossed"] == 2
    assert [mark["published_late_s"] > 0 for mark in summary["generations"]] == [False, True]
    assert summary["latency_ms"]["p50"] >= summary["confidence_ms"]
    assert (output / "report.html").read_text(encoding="utf-8").count("<svg") == 3
    assert "0 missing, 0 doubled, 0 out of order" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert all(one.is_up for one in local_stack.status())
    assert processes_that_name(output) == []


def test_a_demo_that_is_interrupted_leaves_nothing_behind(local_stack: LocalStack, tmp_path: Path) -> None:
    """SIGTERM while the bridge is at work ends its processes too; a stack that ran before goes on."""
    output = tmp_path / "demo"
    with subprocess.Popen(command(local_stack, output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as demo:
        log = output / "bridge.log"
        until_s = time.monotonic() + 300
        while not (log.exists() and "lanes, from" in log.read_text(encoding="utf-8", errors="replace")):
            assert demo.poll() is None, demo.stderr.read() if demo.stderr else b""
            assert time.monotonic() < until_s
            time.sleep(0.2)
        assert processes_that_name(output)
        demo.send_signal(signal.SIGTERM)
        _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 128 + signal.SIGTERM
    assert b"Ended by SIGTERM" in errors
    assert processes_that_name(output) == []
    assert not (output / "summary.json").exists()
    assert all(one.is_up for one in local_stack.status())
