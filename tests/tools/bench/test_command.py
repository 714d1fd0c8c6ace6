"""What the benchmark's commands refuse, before they touch anything."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

import bench.__main__ as whole
from bench import idle, local_stack
from bench.errors import BenchError
from bench.path import __main__ as path
from bench.simulation import __main__ as simulation
from sandbox.stack.stack import LocalStack

_Main = Callable[[list[str]], int]


@pytest.mark.parametrize(
    ("main", "option", "value"),
    [
        (whole.main, "--rounds", "0"),
        (whole.main, "--lanes", "0"),
        (whole.main, "--changes", "-5"),
        (whole.main, "--seconds", "-1"),
        (whole.main, "--rate", "0"),
        (whole.main, "--rate", "nan"),
        (whole.main, "--confidence", "-1"),
        (whole.main, "--vnodes", "0"),
        (whole.main, "--shards", "0"),
        (whole.main, "--drain-timeout", "inf"),
        (whole.main, "--tables", "broad"),
        (whole.main, "--tables-count", "1,0"),
        (whole.main, "--settle", "-1"),
        (idle.main, "--streams", "3"),
        (idle.main, "--interval", "0"),
        (idle.main, "--settle", "-1"),
        (path.main, "--rounds", "0"),
        (path.main, "--tables", "broad"),
        (simulation.main, "--minutes", "0"),
    ],
)
def test_what_an_option_cannot_be_is_refused_at_once(
    main: _Main, option: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With status 2 and the option's name; no server is started for it."""

    def not_here(*_: object, **__: object) -> None:
        pytest.fail("a stack was started")

    monkeypatch.setattr(LocalStack, "up", not_here)
    with pytest.raises(SystemExit) as ended:
        main([option, value])
    assert ended.value.code == 2
    assert f"argument {option}" in capsys.readouterr().err


def test_a_second_benchmark_is_kept_out_and_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first one still starts its servers."""
    monkeypatch.setattr(local_stack, "_DEFAULT_FOLDER", tmp_path)
    data = tmp_path / "data" / "kafka"
    data.mkdir(parents=True)
    with (tmp_path / ".bench-lock").open("w", encoding="ascii") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(BenchError, match="another benchmark runs in"), local_stack.a_stack(None):
            pytest.fail("it was let in")
        assert data.is_dir()


def test_the_folder_is_free_again_after_a_run_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the data that an earlier run left there is removed before the next one's servers start."""
    monkeypatch.setattr(local_stack, "_DEFAULT_FOLDER", tmp_path)
    left = tmp_path / "data" / "kafka"

    def fails(*_: object, **__: object) -> None:
        assert not left.exists()
        message = "no Java"
        raise BenchError(message)

    monkeypatch.setattr(LocalStack, "up", fails)
    for _ in range(2):
        left.mkdir(parents=True)
        with pytest.raises(BenchError, match="no Java"), local_stack.a_stack(None):
            pytest.fail("there is no stack")
    with (tmp_path / ".bench-lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
