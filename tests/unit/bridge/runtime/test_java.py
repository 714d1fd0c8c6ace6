"""Finding a usable Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import StartupError
from bridge.runtime import java


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_major_version_is_read(output: str, major: int | None) -> None:
    """The old and the new numbering."""
    assert java.major_version(output) == major


def _fake_java(home: Path, version: str) -> None:
    home.joinpath("bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    command.chmod(0o755)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is used even if the PATH has another Java."""
    _fake_java(tmp_path / "a", "19.0.1")
    _fake_java(tmp_path / "b", "18.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(tmp_path / "b" / "bin"), prepend=":")
    assert java.find_java() == java.Java(str(tmp_path / "a" / "bin" / "java"), 19)
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java() == java.Java(str(tmp_path / "b" / "bin" / "java"), 18)


def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the version found and the version needed."""
    _fake_java(tmp_path, "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match="is Java 8, but 17 or newer is needed"):
        java.find_java()


def test_missing_java_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none on the PATH, or none in JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartupError, match="No Java found"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match="no bin/java"):
        java.find_java()
