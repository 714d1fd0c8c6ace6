"""The command `run`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import run
from tests.unit.bridge.cli.command_line import run_cli


class TestRun:
    def test_replaces_this_process(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """`run` replaces the process by the job, so that the job gets the signals."""
        called: list[Any] = []
        monkeypatch.setattr(os, "execv", lambda *words: called.append(words))
        with pytest.raises(AssertionError, match="execv came back"):
            run.run(argparse.Namespace(config=config, once=True, log_level="debug"))
        assert called == [
            (sys.executable, [sys.executable, "-m", "spark.job", "-c", config, "--log-level", "debug", "--once"])
        ]

    def test_bad_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A bad file is refused before Spark starts."""
        monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("started"))
        assert run_cli("run", "-c", str(tmp_path / "nothing.yaml")) == 2
        assert "nothing.yaml: can't be read" in capsys.readouterr().err
