"""What is told of a checkpoint's folder that can't be used, and what the bridge keeps in one."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from py4j.protocol import Py4JJavaError

from bridge.errors import BridgeError, RetriableError
from bridge.model.times import UnixMicros
from bridge.planning.retention import LogTtl
from spark.job.checkpoint import Checkpoint


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


class KilledError(Exception):
    """The job is killed."""


class Store:
    """A folder's files as Hadoop shows them.

    Attributes:
        files: content by name; None for one of which Hadoop says that its checksum is wrong.
        room: so many bytes can still be written before the job is killed.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes | None] = {}
        self.room = 10**9
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=self._path))
        self.session: Any = SimpleNamespace(
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))),
            _jsparkSession=SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=lambda: None)),
        )

    def _path(self, name: str) -> Any:
        return SimpleNamespace(name=name, getFileSystem=lambda _conf: self)

    def exists(self, path: Any) -> bool:
        return path.name in self.files

    def open(self, path: Any) -> Any:
        content = self.files[path.name]
        if content is None:
            raise JavaError("org.apache.hadoop.fs.ChecksumException: Checksum error: scylla-cdc-ttl at 0 exp: 1 got: 2")
        return SimpleNamespace(readAllBytes=lambda: content, close=lambda: None)

    def create(self, path: Any, overwrite: bool) -> Any:
        assert overwrite

        def write(data: bytearray) -> None:
            self.files[path.name] = bytes(data[: self.room])
            self.room -= len(data)
            if self.room < 0:
                raise KilledError

        self.files[path.name] = b""
        return SimpleNamespace(write=write, close=lambda: None)


SHORT = LogTtl().observe(60, UnixMicros(5))
RAISED = SHORT.observe(86_400, UnixMicros(9))


def test_what_is_kept_outlives_a_kill_at_any_byte() -> None:
    """There are two files, and one is whole at any time; what it says is what was kept last, or before that."""
    whole = Store()
    Checkpoint(whole.session, "c").keep_ttl(SHORT)
    seen = []
    for room in range(300):
        store = Store()
        store.files = dict(whole.files)
        store.room = room
        checkpoint = Checkpoint(store.session, "c")
        with suppress(KilledError):
            checkpoint.keep_ttl(RAISED)
        seen.append(checkpoint.ttl())
    turn = seen.index(RAISED)
    assert 0 < turn < 200
    assert seen == [SHORT] * turn + [RAISED] * (300 - turn)


@pytest.mark.parametrize("torn", [b"", b"\xff", b'{"log":"None","spans":[[5', None])
def test_file_that_is_torn_is_as_good_as_none(torn: bytes | None) -> None:
    """Also where Hadoop's own checksums say so; with both gone nothing is known, and nothing fails."""
    store = Store()
    checkpoint = Checkpoint(store.session, "c")
    checkpoint.keep_ttl(RAISED)
    names = list(store.files)
    for name in names:
        content, store.files[name] = store.files[name], torn
        assert checkpoint.ttl() == RAISED
        store.files[name] = content
    store.files = dict.fromkeys(names, torn)
    assert checkpoint.ttl() == LogTtl()
    checkpoint.keep_log_id(UUID(int=7))
    store.files = {name: torn if "log-id" in name else None for name in store.files}
    assert checkpoint.log_id() is None


def test_files_of_earlier_jobs_are_read() -> None:
    """They kept one, without a checksum; what is kept since counts."""
    store = Store()
    checkpoint = Checkpoint(store.session, "c")
    store.files = {"c/scylla-cdc-ttl": SHORT.to_text().encode(), "c/scylla-cdc-log-id": str(UUID(int=7)).encode()}
    assert (checkpoint.ttl(), checkpoint.log_id()) == (SHORT, UUID(int=7))
    checkpoint.keep_ttl(RAISED)
    checkpoint.keep_log_id(UUID(int=8))
    assert (checkpoint.ttl(), checkpoint.log_id()) == (RAISED, UUID(int=8))
    # They are put back in place, know nothing of the second file, and leave it behind.
    store.files |= {"c/scylla-cdc-ttl": SHORT.to_text().encode(), "c/scylla-cdc-log-id": str(UUID(int=9)).encode()}
    assert (checkpoint.ttl(), checkpoint.log_id()) == (SHORT, UUID(int=9))
