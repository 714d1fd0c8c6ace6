"""The command `validate`."""

from __future__ import annotations

import pytest

from bridge.cli.preflight import checks
from bridge.errors import StartupError
from tests.unit.bridge.cli.command_line import raising, run_cli


class TestValidate:
    def test_plan(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """For a valid file, the command prints what the job would do."""
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
        """With --online the servers and tables are checked too."""
        asked: list[str] = []
        monkeypatch.setattr(checks, "check_all", lambda config, report: asked.append(config.name))
        assert run_cli("validate", "-c", config, "--online") == 0
        assert asked == ["job"]
        capsys.readouterr()
        monkeypatch.setattr(checks, "check_all", lambda config, report: raising(StartupError("no CDC"))(None))
        assert run_cli("validate", "-c", config, "--online") == 2
        printed = capsys.readouterr()
        assert "error: no CDC" in printed.err
        assert printed.out == f"{config}: no problem found in the file; checking the servers\n"
