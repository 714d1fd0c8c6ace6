"""`python -m spark.jvm.class_archive`: makes an archive of the JVM's classes, with which a job starts in less time.

Loading and checking Spark's classes takes much of a start. This program runs a small query as the job does, and
archives the classes that the JVM has loaded for it (class data sharing). An archive fits one JVM and one set of jars,
so it is made on their machine: by the image's build, or once in a virtual environment. Another JVM ignores it.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.config.document import SparkSettings
from bridge.errors import BridgeError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMillis
from bridge.monitoring.reports import LaneReport
from spark.jvm.launcher import ARCHIVE
from spark.jvm.session import StartingSession
from spark.source import rows
from spark.source.report_metric import observe_reports

_NAME: Final = "rehearsal"
_LANES: Final = 2
_MICRO_BATCHES: Final = 3
_WITHIN_S: Final = 600
"""Limit for the micro-batches, and for the JVM's end, when it writes the archive. A busy machine takes minutes."""


class Rehearsal(DataSource):
    """The source of a query that does nothing, with the calls of the job's source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return _NAME

    def schema(self) -> StructType:
        """Return the columns of the job's source."""
        return rows.REPORT_TYPE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader."""
        return _Reader()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"at": min(start["at"] + 1, _MICRO_BATCHES)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(lane) for lane in range(_LANES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield rows.report_batch(LaneReport(_NAME, 0, Cursor.at_start_of(UnixMillis(0)), []))


def make(archive: Path) -> None:
    """Make the archive; replace an older one.

    Raises:
        StartupError: Spark's JVM does not start or end, or the query makes no progress.
        PySparkException: Spark fails.
        OSError: the folder can't be written.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_name(f"{archive.name}.new")
    # Hundreds of classes can't be archived, and each gives a warning.
    options = [f"-XX:ArchiveClassesAtExit={new}", "-Xlog:cds=error", "-Xlog:cds+dynamic=error"]
    with tempfile.TemporaryDirectory() as folder:
        settings = SparkSettings(
            master=f"local[{_LANES}]",
            properties={"spark.local.dir": folder, "spark.driver.extraJavaOptions": shlex.join(options)},
        )
        archive.unlink(missing_ok=True)
        starting = StartingSession(_NAME, settings)
        session = starting.result()
        session.dataSource.register(Rehearsal)
        lanes = observe_reports(session.readStream.format(_NAME).load())
        writer = lanes.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.outputMode("append").trigger(processingTime="0 seconds").start()
        deadline = time.monotonic() + _WITHIN_S
        while (progress := query.lastProgress) is None or progress["batchId"] < _MICRO_BATCHES - 1:
            if time.monotonic() > deadline:
                raise StartupError(f"{_MICRO_BATCHES} micro-batches were not done in {_WITHIN_S} s")
            query.awaitTermination(1)
        query.stop()
        session.stop()
        try:
            starting.wait(_WITHIN_S)
        except subprocess.TimeoutExpired as late:
            raise StartupError(f"Spark's JVM did not write the archive and end within {_WITHIN_S} s") from late
    new.replace(archive)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m spark.jvm.class_archive", description="Archive the classes of Spark's JVM."
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing on success")
    arguments = parser.parse_args(argv)
    try:
        make(ARCHIVE)
    except (BridgeError, OSError, PySparkException) as error:
        sys.stderr.write(f"{ARCHIVE}: no archive could be made: {error}\n")
        return 1
    if not arguments.quiet:
        sys.stdout.write(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 2**20:.0f} MiB\n")
    return 0


if __name__ == "__main__":
    # By the module's own name, because Spark's workers must be able to import its classes.
    from spark.jvm import class_archive

    sys.exit(class_archive.main())
