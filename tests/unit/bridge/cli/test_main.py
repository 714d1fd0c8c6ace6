"""The command line: its usage, its errors and their exit statuses."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from bridge.cli import parser
from bridge.cli import status as status_command
from bridge.errors import ConfigError, DataLossError, RetriableError, StartupError
from schemas.errors import RegistryError
from tests.unit.bridge.cli.command_line import raising, run_cli


class TestUsage:
    @pytest.mark.parametrize(
        "words",
        [
            [],
            ["fly"],
            ["run"],
            ["consume", "-c", "x", "--max", "0"],
            ["consume", "-c", "x", "--max", "many"],
            ["status", "-c", "x", "--log-level", "loud"],
        ],
    )
    def test_bad_command_line(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """A bad command line is refused with status 2."""
        assert run_cli(*words) == 2
        assert "error: " in capsys.readouterr().err

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The help lists every command."""
        assert run_cli("--help") == 0
        text = capsys.readouterr().out
        for name in ("run", "validate", "status", "consume", "example", "local", "demo"):
            assert f"    {name} " in text

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The version is the installed distribution's."""
        assert run_cli("--version") == 0
        assert capsys.readouterr().out.startswith("scylla-cdc-bridge ")

    def test_example(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The printed example is a valid configuration."""
        assert run_cli("example") == 0
        (tmp_path / "new.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
        assert run_cli("validate", "-c", str(tmp_path / "new.yaml")) == 0


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (ConfigError(["bridge.yaml:1: a", "bridge.yaml:2: b"]), 2),
            (StartupError("Kafka at a:1 is not reachable\ntable a.b: no CDC"), 2),
            (RetriableError("Kafka at a:1 went away"), 1),
            (DataLossError("gone"), 1),
            (RegistryError("unknown", retriable=False), 1),
            (KeyboardInterrupt(), 130),
        ],
    )
    def test_status(
        self, error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A refusal ends with status 2, a failure with 1; each line of the message is marked as an error."""
        monkeypatch.setattr(status_command, "run", raising(error))
        assert run_cli("status", "-c", "x") == status
        lines = capsys.readouterr().err.splitlines()
        assert lines == [f"scylla-cdc-bridge: error: {line}" for line in str(error).splitlines()]

    def test_unexpected(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """An unexpected error has its type in the message, and a traceback only at level debug."""
        monkeypatch.setattr(status_command, "run", raising(ZeroDivisionError("by zero")))
        assert run_cli("status", "-c", "x") == 1
        text = capsys.readouterr().err
        assert text.startswith("scylla-cdc-bridge: error: ZeroDivisionError: by zero (please report this")
        assert "Traceback" not in text
        assert run_cli("status", "-c", "x", "--log-level", "debug") == 1
        assert "Traceback" in capsys.readouterr().err

    def test_closed_pipe(self, tmp_path: Path) -> None:
        """A reader that closes the pipe, as `head` does, is no failure."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        saved = os.dup(1)
        try:
            os.dup2(write_end, 1)
            os.close(write_end)
            code = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-m", "bridge.cli.main", "example"])
        finally:
            os.dup2(saved, 1)
            os.close(saved)
        assert code == 0

    def test_full_disk_behind_standard_output(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The message says that standard output can't be written."""
        monkeypatch.setattr(parser, "_print_example", raising(OSError(errno.ENOSPC, "No space left on device")))
        assert run_cli("example") == 1
        assert capsys.readouterr().err == (
            "scylla-cdc-bridge: error: standard output can't be written: No space left on device\n"
        )

    def test_folder_that_is_gone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """If the working folder is gone, the message names the file that can't be read."""
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert run_cli("validate", "-c", "x.yaml") == 2
        assert capsys.readouterr().err == "scylla-cdc-bridge: error: x.yaml: can't be read: No such file or directory\n"

    def test_terminal_without_letters(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """With LC_ALL=C, characters of names that the terminal can't show are escaped."""
        text = Path(config).read_text(encoding="utf-8").replace("shop.orders", 'shop.Auf"träge', 1)
        Path(config).write_text(text, encoding="utf-8")
        shown = io.BytesIO()
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(shown, "ascii", "backslashreplace", write_through=True))
        assert run_cli("validate", "-c", config) == 2
        assert rb"""tables[0].name: 'shop.Auf"tr\xe4ge' is not keyspace.table (""" in shown.getvalue()

    def test_no_streams(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With standard output and error closed, there is only the exit status."""
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, None)
        assert run_cli("example") == 0
        assert run_cli("validate", "-c", str(tmp_path / "nothing.yaml")) == 2


class TestOtherDistributions:
    def test_local(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The sandbox adds the command `local` with its own arguments."""
        assert run_cli("local", "status", "--folder", str(tmp_path)) == 2
        assert "No local stack runs in" in capsys.readouterr().err
