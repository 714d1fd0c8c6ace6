"""The command `validate`."""

from __future__ import annotations

import pytest

from bridge.cli import preflight
from bridge.errors import StartupError
from tests.unit.bridge.cli.command_line import raising, run_cli


class TestValidate:
    def test_plan(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A good file is followed by what the job would do with it."""
        assert run_cli("validate", "-c", config) == 0
        text = capsys.readouterr().out
        assert "no problem found" in text
        for part in (
            "topic           shop.orders",
            "job.progress.shop.lines",
            "lanes           2",
            "start           latest",
            "shape           delta, by partition key",
            "headers         cdc.position",
            "dead letters    none: ",
            "retried writes  published (reading.deduplicate",
        ):
            assert part in text

    def test_online(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """With --online the servers and tables are looked at too."""
        asked: list[str] = []
        monkeypatch.setattr(preflight, "check", lambda config, report: asked.append(config.name))
        assert run_cli("validate", "-c", config, "--online") == 0
        assert asked == ["job"]
        capsys.readouterr()
        monkeypatch.setattr(preflight, "check", lambda config, report: raising(StartupError("no CDC"))(None))
        assert run_cli("validate", "-c", config, "--online") == 2
        told = capsys.readouterr()
        assert "error: no CDC" in told.err
        # "No problem found" would be wrong by the next line.
        assert told.out == f"{config}: no problem found in the file; checking the servers\n"
