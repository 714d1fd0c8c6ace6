"""What is told of a checkpoint's folder that can't be used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from bridge.errors import BridgeError, RetriableError
from spark.checkpoint import Checkpoint


class JavaError(Py4JJavaError):
    """One without a JVM to ask what it says."""

    def __init__(self, words: str) -> None:
        Exception.__init__(self)
        self.java_exception = SimpleNamespace(toString=lambda: words)


@pytest.mark.parametrize(
    ("folder", "words", "kind"),
    [
        ("file:/x", "java.io.FileNotFoundException: /x (Read-only file system)", RetriableError),
        ("s4://b/x", 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s4"', BridgeError),
    ],
)
def test_folder_that_can_not_be_used_is_told(folder: str, words: str, kind: type[BridgeError]) -> None:
    """A store that is away is waited for; a path that is none stops the table. Both name the setting."""

    def path(_name: str) -> Any:
        raise JavaError(words)

    filesystem = SimpleNamespace(Path=path)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=filesystem))))
    session: Any = SimpleNamespace(_jvm=jvm)
    with pytest.raises(BridgeError) as caught:
        Checkpoint(session, folder).log_id()
    assert str(caught.value) == f"checkpoint {folder} can't be read; see spark.checkpoint ({words})"
    assert type(caught.value) is kind
