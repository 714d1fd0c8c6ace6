"""A table's checkpoint: Spark's plan, and nothing else.

Kafka holds the truth about what was published, so a lost checkpoint costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.errors import BridgeError, RetriableError

_COMMITS: Final = "commits"
_OF_SPARK: Final = ("metadata", "offsets", _COMMITS, "sources", "state")
_HOPELESS: Final = ("UnsupportedFileSystemException", "ClassNotFoundException", "IllegalArgumentException")
"""Java's errors for a bad path, or for a file system whose classes are missing."""


class Checkpoint:
    """The folder of one table's checkpoint. It may lie in any file system that Spark's Hadoop knows.

    Every method raises RetriableError when the folder cannot be read or written, and BridgeError when its path is bad.

    Attributes:
        folder: its path or URL.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        """Prepare; this reads nothing.

        Args:
            session: whose settings say how to reach the file system.
            folder: path or URL.
        """
        self._session = session
        self.folder = folder

    @property
    def has_commits(self) -> bool:
        """Whether Spark has completed a micro-batch under this checkpoint."""
        with self._translated("read"):
            path = self._path(_COMMITS)
            files = self._files(path)
            return bool(files.exists(path)) and len(files.listStatus(path)) > 0

    def begin_anew(self) -> None:
        """Delete everything that Spark keeps in the folder.

        Raises:
            RetriableError: the file system keeps a part, perhaps without a reason.
        """
        with self._translated("written"):
            for name in _OF_SPARK:
                path = self._path(name)
                files, recursively = self._files(path), True
                if files.exists(path) and not files.delete(path, recursively):
                    raise RetriableError(f"checkpoint {self.folder}: {name} can't be deleted; see spark.checkpoint")

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            java = str(error.java_exception.toString())
            message = f"checkpoint {self.folder} can't be {done}; see spark.checkpoint ({java})"
            raise (BridgeError if any(name in java for name in _HOPELESS) else RetriableError)(message) from error

    def _path(self, name: str) -> Any:
        jvm: Any = self._session._jvm  # noqa: SLF001  # PySpark has no public way to Hadoop's file systems
        return jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")

    def _files(self, path: Any) -> Any:
        # With the session's settings, which the query uses too.
        return path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
