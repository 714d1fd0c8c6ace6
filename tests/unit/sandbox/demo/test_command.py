from __future__ import annotations

import argparse
import fcntl
import os
import signal
from pathlib import Path

import pytest

from bridge.errors import StartupError
from sandbox.demo import add_parser, command, run
from sandbox.errors import LocalStackError


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *words])


def test_the_defaults() -> None:
    """Without options it runs for 45 s in a folder below the present one."""
    args = parse()
    assert (args.seconds, args.rate, args.output, args.folder, args.keep) == (45, 1000, Path("build/demo"), None, False)


@pytest.mark.parametrize("words", [("--seconds", "5"), ("--seconds", "x"), ("--rate", "0"), ("--rate", "1e9")])
def test_useless_values_are_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and a line that names the option."""
    with pytest.raises(SystemExit) as refused:
        parse(*words)
    assert refused.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_one_demo_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second one in the same folder is refused, and leaves the first one's files alone."""
    former = tmp_path / "summary.json"
    former.touch()
    with (tmp_path / ".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(parse("--output", str(tmp_path))) == 2
    assert "Another demo runs" in capsys.readouterr().err
    assert former.exists()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LocalStackError("no java"), 2),
        (StartupError("no java"), 2),
        (FileNotFoundError(2, "no java", "x"), 2),
        (command.BridgeError("no java"), 1),
    ],
)
def test_failures_have_a_line_and_a_status(
    error: Exception,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2 when it could not start, 1 when it failed on the way; the words go to standard error."""

    def fail(_args: object, _screen: object) -> int:
        raise error

    monkeypatch.setattr(command, "_run_on_stack", fail)
    assert run(parse("--output", str(tmp_path))) == status
    assert "no java" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_unwind_once(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first signal lets everything clean up; later ones do not disturb that; then the handlers are as before."""
    cleaned_up = []

    def work(_args: object, _screen: object) -> int:
        try:
            os.kill(os.getpid(), number)
            raise AssertionError("not reached")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            cleaned_up.append(True)

    former = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(command, "_run_on_stack", work)
    assert run(parse("--output", str(tmp_path))) == 128 + number
    assert cleaned_up == [True]
    assert f"Ended by {number.name}" in capsys.readouterr().err
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == former
