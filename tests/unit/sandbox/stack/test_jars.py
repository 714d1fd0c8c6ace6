"""The lock file decides which jars may be used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bridge.runtime.java import Java
from sandbox.errors import LocalStackError
from sandbox.stack import jars

_CONTENT = b"a jar"
_DIGEST = hashlib.sha256(_CONTENT).hexdigest()


def test_the_lock_is_read_without_comments() -> None:
    """Lines are in the form of sha256sum."""
    assert jars.read_lock(f"# why\n\n{_DIGEST}  kafka/a.jar\n") == {"kafka/a.jar": _DIGEST}


@pytest.mark.parametrize(
    "line", ["nonsense", f"{_DIGEST} kafka/one-space.jar", f"{_DIGEST}  no-folder.jar", "12  a/b.jar"]
)
def test_a_bad_line_is_refused(line: str) -> None:
    """A line that can't be understood isn't passed over."""
    with pytest.raises(LocalStackError, match=r"jars\.lock has a line"):
        jars.read_lock(line)


def test_every_wrong_file_is_named(tmp_path: Path) -> None:
    """All differing files are named, and nothing else."""
    lock = {"kafka/good.jar": _DIGEST, "kafka/bad.jar": _DIGEST, "cql/bad.jar": _DIGEST}
    for name in lock:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_CONTENT if "good" in name else b"another")
    with pytest.raises(LocalStackError, match=r"Not the files .*: kafka/bad\.jar, cql/bad\.jar\. Nothing was started"):
        jars.verify(tmp_path, lock)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A file that Ivy did not bring is an error of its own."""
    with pytest.raises(LocalStackError, match=r"Missing in .*kafka/a\.jar"):
        jars.verify(tmp_path, {"kafka/a.jar": _DIGEST})


def test_the_package_lock_has_all_three_servers() -> None:
    """The committed lock file is whole, and its versions are those of the module."""
    lock = jars.read_lock(Path(jars.__file__).with_name("jars.lock").read_text(encoding="ascii"))
    for name in (
        f"cql/cassandra-all-{jars.CASSANDRA_VERSION}.jar",
        f"kafka/kafka_2.13-{jars.KAFKA_VERSION}.jar",
        f"kafka/log4j-slf4j-impl-{jars.KAFKA_LOGGING_VERSION}.jar",
        f"registry/apicurio-registry-app-{jars.REGISTRY_VERSION}-all.tar.gz",
    ):
        assert name in lock


def test_class_paths_hold_only_locked_jars(tmp_path: Path) -> None:
    """Other files in the folder are on no class path; the extension comes before Cassandra."""
    folder = jars.Jars(tmp_path, Java("java", 17), lock={"cql/a-1.jar": _DIGEST, "kafka/b-2.jar": _DIGEST})
    tmp_path.joinpath("kafka").mkdir()
    tmp_path.joinpath("kafka", "stray.jar").touch()
    assert folder.class_path("kafka") == str(tmp_path / "kafka" / "b-2.jar")
    extension, cassandra = folder.class_path("cql").split(":")
    assert Path(extension).name.startswith("extension-")
    assert cassandra == str(tmp_path / "cql" / "a-1.jar")
    assert folder.jar("cql", "a-") == tmp_path / "cql" / "a-1.jar"
    with pytest.raises(LocalStackError, match=r"no c-\* for cql"):
        folder.jar("cql", "c-")


def test_the_jars_folder_can_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variable wins over the stack's own folder."""
    monkeypatch.delenv(jars.JARS_VARIABLE, raising=False)
    assert jars.jars_folder(tmp_path) == tmp_path / "jars"
    monkeypatch.setenv(jars.JARS_VARIABLE, str(tmp_path / "shared"))
    assert jars.jars_folder(tmp_path / "elsewhere") == tmp_path / "shared"


@pytest.mark.parametrize(("failures", "works"), [(0, True), (2, True), (3, False)])
def test_a_download_that_fails_is_tried_again_a_few_times(tmp_path: Path, failures: int, works: bool) -> None:
    """A failed download is tried three times in all; then the error has Ivy's output."""
    runs, java = tmp_path / "runs", tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho run >> {runs}\necho NOT FOUND\n[ $(wc -l < {runs}) -gt {failures} ]\n", "ascii")
    java.chmod(0o755)
    said: list[str] = []
    if works:
        jars.resolve(tmp_path / "jars", Java(str(java), 17), said.append)
    else:
        with pytest.raises(LocalStackError, match="NOT FOUND"):
            jars.resolve(tmp_path / "jars", Java(str(java), 17), said.append)
    assert len(runs.read_text("ascii").splitlines()) == min(failures + 1, 3)
    assert len([line for line in said if "trying again" in line]) == min(failures, 2)
