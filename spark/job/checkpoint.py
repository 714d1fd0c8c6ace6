"""A table's checkpoint: Spark's plan; beside it which log was read, which TTLs that had, and the change topic's id.

Through Hadoop, because it may lie in any file system that Spark knows. Kafka has the truth of what was published, so
that a checkpoint may be lost; with it goes the evidence that a log or a change topic is another one than before, and
that the log kept changes for a shorter time once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.errors import BridgeError, RetriableError
from bridge.planning.retention import LogTtl
from bridge.publishing.topic_identity import KnownTopic

_COMMITS: Final = "commits"
_LOG_ID: Final = "scylla-cdc-log-id"
_TTL: Final = "scylla-cdc-ttl"
_CHANGE_TOPIC: Final = "scylla-cdc-change-topic"
_SPARKS: Final = ("metadata", "offsets", _COMMITS, "sources", "state")
_SECOND: Final = "-2"
_UNREADABLE: Final = "ChecksumException"
"""What Hadoop says of a file that was being written when its job was killed, where it keeps checksums itself."""
_HOPELESS: Final = ("UnsupportedFileSystemException", "ClassNotFoundException", "IllegalArgumentException")
"""Java's words for a path that is none, or of a file system that nobody has brought."""


class Checkpoint:
    """The folder of one table.

    All of it raises RetriableError when the folder can't be read or written, and BridgeError when it can't be one.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        """Look at nothing yet."""
        self._session = session
        self.folder = folder

    @property
    def has_commits(self) -> bool:
        """Whether Spark has noted that a micro-batch was done."""
        with self._meaning("read"):
            path = self._path(_COMMITS)
            files = self._files(path)
            return bool(files.exists(path)) and len(files.listStatus(path)) > 0

    def log_id(self) -> UUID | None:
        """The id of the log table that the job read when it was started last; None when that is not known."""
        try:
            return UUID(self._kept(_LOG_ID))
        except ValueError:
            # One that was being written when its job was killed is as good as none.
            return None

    def keep_log_id(self, log_id: UUID) -> None:
        """Note it for the next start."""
        self._keep(_LOG_ID, str(log_id))

    def ttl(self) -> LogTtl:
        """Which TTLs the log has had, as far as earlier jobs have seen it."""
        return LogTtl.from_text(self._kept(_TTL))

    def keep_ttl(self, ttl: LogTtl) -> None:
        """Note it for the next start."""
        self._keep(_TTL, ttl.to_text())

    def change_topic(self) -> KnownTopic | None:
        """The topic that the job published to; None when that is not known."""
        return KnownTopic.from_text(self._kept(_CHANGE_TOPIC))

    def keep_change_topic(self, topic: KnownTopic) -> None:
        """Note it for the next start."""
        self._keep(_CHANGE_TOPIC, topic.to_text())

    def _kept(self, name: str) -> str:
        """What was kept there last; empty where nothing was."""
        second, first = self._content(name + _SECOND), self._content(name)
        if _is_whole_of_before(first):
            # An older release kept one file, and no checksum. It leaves the second one as a newer release did before.
            return first
        whole = (text for text, _, crc in (one.rpartition("\n") for one in (second, first)) if crc == _crc(text))
        return next(whole, "")

    def _keep(self, name: str, text: str) -> None:
        """Keep it in two files, one after the other: whenever the job is killed, one of them is whole."""
        for file in (name + _SECOND, name):
            self._write(file, f"{text}\n{_crc(text)}")

    def _content(self, name: str) -> str:
        """Of a file; empty where there is none, or none that can be read."""
        with self._meaning("read"):
            path = self._path(name)
            files = self._files(path)
            if not files.exists(path):
                return ""
            try:
                file = files.open(path)
                try:
                    return bytes(file.readAllBytes()).decode("ascii", "replace")
                finally:
                    file.close()
            except Py4JJavaError as error:
                if _UNREADABLE not in str(error.java_exception.toString()):
                    raise
                return ""

    def _write(self, name: str, content: str) -> None:
        with self._meaning("written"):
            path = self._path(name)
            overwrite = True
            file = self._files(path).create(path, overwrite)
            try:
                file.write(bytearray(content.encode("ascii")))
            finally:
                file.close()

    def begin_anew(self) -> None:
        """Delete all that Spark keeps there. What was published is Kafka's to know.

        Raises:
            RetriableError: also where the file system keeps a part without saying why.
        """
        with self._meaning("written"):
            for name in _SPARKS:
                path = self._path(name)
                files, recursively = self._files(path), True
                if files.exists(path) and not files.delete(path, recursively):
                    raise RetriableError(f"checkpoint {self.folder}: {name} can't be deleted; see spark.checkpoint")

    @contextmanager
    def _meaning(self, done: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            said = str(error.java_exception.toString())
            words = f"checkpoint {self.folder} can't be {done}; see spark.checkpoint ({said})"
            raise (BridgeError if any(name in said for name in _HOPELESS) else RetriableError)(words) from error

    def _path(self, name: str) -> Any:
        jvm: Any = self._session._jvm  # noqa: SLF001  # PySpark has no public way to Hadoop's file systems
        return jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")

    def _files(self, path: Any) -> Any:
        # By the session's settings, as the query itself.
        return path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001


def _is_whole_of_before(text: str) -> bool:
    """Whether a file is one that an older release has kept, an id or JSON in one line, and has written to its end."""
    if "\n" in text:
        return False
    for parsed in (UUID, json.loads):
        try:
            parsed(text)
        except (ValueError, RecursionError):
            continue
        return True
    return False


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
