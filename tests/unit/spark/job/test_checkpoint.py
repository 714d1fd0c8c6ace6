"""The errors of a checkpoint's folder, and what a new beginning deletes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from bridge.errors import BridgeError, RetriableError
from spark.job.checkpoint import Checkpoint


class JavaError(Py4JJavaError):
    """An error without a JVM behind it."""

    def __init__(self, words: str) -> None:
        Exception.__init__(self)
        self.java_exception = SimpleNamespace(toString=lambda: words)


def session_with(path: Any) -> Any:
    """A session whose Hadoop makes paths as given."""
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=path))
    return SimpleNamespace(
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))),
        _jsparkSession=SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=lambda: None)),
    )


@pytest.mark.parametrize(
    ("folder", "words", "kind"),
    [
        ("file:/x", "java.io.FileNotFoundException: /x (Read-only file system)", RetriableError),
        ("s4://b/x", 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s4"', BridgeError),
    ],
)
def test_folder_that_can_not_be_used_is_named(folder: str, words: str, kind: type[BridgeError]) -> None:
    """A store that is away is waited for; a bad path stops the table. Both messages name the setting."""

    def path(_name: str) -> Any:
        raise JavaError(words)

    with pytest.raises(BridgeError) as caught:
        _ = Checkpoint(session_with(path), folder).has_commits
    assert str(caught.value) == f"checkpoint {folder} can't be read; see spark.checkpoint ({words})"
    assert type(caught.value) is kind


class Store:
    """A file system as Hadoop shows it; `stuck` cannot be deleted."""

    def __init__(self, *files: str, stuck: str = "") -> None:
        self.files, self._stuck = {f"c/{name}" for name in files}, f"c/{stuck}"
        self.session = session_with(lambda name: SimpleNamespace(name=name, getFileSystem=lambda _conf: self))

    def exists(self, path: Any) -> bool:
        return any(f"{name}/".startswith(f"{path.name}/") for name in self.files)

    def listStatus(self, path: Any) -> list[str]:  # noqa: N802  # Hadoop's name
        return [name for name in self.files if name.startswith(f"{path.name}/")]

    def delete(self, path: Any, recursively: bool) -> bool:
        assert recursively
        if path.name == self._stuck:
            return False
        self.files = {name for name in self.files if not f"{name}/".startswith(f"{path.name}/")}
        return True


def test_new_beginning_deletes_sparks_own_files() -> None:
    """A foreign file in the folder stays."""
    store = Store("metadata", "offsets/0", "commits/0", "sources/0/x", "notes.txt")
    checkpoint = Checkpoint(store.session, "c")
    assert checkpoint.has_commits
    checkpoint.begin_anew()
    assert store.files == {"c/notes.txt"}
    assert not checkpoint.has_commits


def test_file_that_stays_is_named() -> None:
    """Hadoop may refuse to delete without a reason."""
    with pytest.raises(RetriableError, match=r"checkpoint c: offsets can't be deleted; see spark\.checkpoint"):
        Checkpoint(Store("offsets/0", stuck="offsets").session, "c").begin_anew()
