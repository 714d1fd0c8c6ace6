"""A table's checkpoint: where Spark keeps its plan, and beside that which log table it was made of.

Through Hadoop, because it may lie in any file system that Spark knows. Kafka has the truth of what was published, so
that a checkpoint may be lost; with it goes the evidence that a log is another one than that which was read before.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from pyspark.sql import SparkSession

_COMMITS: Final = "commits"
_LOG_ID: Final = "scylla-cdc-log-id"


class Checkpoint:
    """The folder of one table."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        """Look at nothing yet."""
        self._session = session
        self.folder = folder

    @property
    def has_commits(self) -> bool:
        """Whether Spark has noted that a micro-batch was done."""
        path = self._path(_COMMITS)
        files = self._files(path)
        return bool(files.exists(path)) and len(files.listStatus(path)) > 0

    def log_id(self) -> UUID | None:
        """The id of the log table that the job read when it was started last; None when that is not known."""
        path = self._path(_LOG_ID)
        files = self._files(path)
        if not files.exists(path):
            return None
        file = files.open(path)
        try:
            # A file that was being written when its job was killed is as good as none.
            text = bytes(file.readAllBytes())
            return UUID(text.decode("ascii")) if len(text) == len(str(UUID(int=0))) else None
        finally:
            file.close()

    def keep_log_id(self, log_id: UUID) -> None:
        """Note it for the next start."""
        path = self._path(_LOG_ID)
        overwrite = True
        file = self._files(path).create(path, overwrite)
        try:
            file.write(bytearray(str(log_id).encode("ascii")))
        finally:
            file.close()

    def _path(self, name: str) -> Any:
        jvm: Any = self._session._jvm  # noqa: SLF001  # PySpark has no public way to Hadoop's file systems
        return jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._session._jsc.hadoopConfiguration())  # noqa: SLF001
