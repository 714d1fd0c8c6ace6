"""The properties of a job's Spark: those that the bridge depends on, and those whose effect was measured."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge.config.document import SparkSettings
from bridge.config.process import AUTHENTICATE, ENCRYPT
from bridge.runtime import log_setup
from spark.jvm.launcher import java_options

_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Between the JVM and Python on one machine. With the frozen garbage collector, this halves the time of a small
    # micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # How often an idle query asks for new offsets. The default of 10 ms costs 7 % of a core.
    "spark.sql.streaming.pollingDelay": "100ms",
    # A micro-batch has one row for each lane. Code that is generated for it takes a tenth of a start to compile.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark retries killed tasks; the lanes' progress in Kafka makes that safe.
    "spark.task.maxFailures": "4",
    # A second attempt at a lane would fence the first. `spark.properties` refuses this name; a spark-defaults.conf may
    # have it.
    "spark.speculation": "false",
    # Whoever reaches Spark's ports could read blocks and have code run. Except on a standalone cluster, Spark makes the
    # secret itself, in the driver's memory.
    AUTHENTICATE: "true",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "10s",
    # The checkpoint is only a plan. Checksums would double its files, and each file takes a process (chmod).
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # The checkpoint may be deleted under a running query; the next plans then go to a new folder.
    "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled": "false",
    # Progress updates carry the lanes' reports to `spark.job.progress_report`, which reads them twice a second.
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
_ENCRYPTED: Final = {
    ENCRYPT: "true",
    # Only AES/GCM with a derived key. Spark's default for old shuffle services is AES/CTR, which a third party can
    # alter, or SASL.
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Properties for executors on other machines. What Spark sends within this machine does not leave it."""
_DAEMON: Final = {"spark.python.daemon.module": "spark.workers.daemon"}
_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
WITHOUT_FORKS: Final = {
    _MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # An instance of the session's own: other users of local files would get it too, and some of them (buffers of the
    # stores s3a and abfs, for one) cast it to the default class.
    "fs.file.impl.disable.cache": "true",
}
"""Settings of the session's queries when the checkpoint is among this machine's files. By default Hadoop forks `chmod`
and `readlink` for each file, and a micro-batch writes two files: more than half of the time of a small one."""

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
"""Variables whose folders may hold another default store of Hadoop's."""
_LOGGING_VARIABLES: Final = ("SPARK_CONF_DIR", "SPARK_HOME")
_LOCAL: Final = re.compile(r"^local(?:\[(?P<threads>\*|\d+)\])?$")
_LOCAL_TRIES: Final = 4


def master_of(settings: SparkSettings) -> str:
    """Return Spark's master; a plain local one gets retries of tasks, which `local[N]` alone never does."""
    match = _LOCAL.match(settings.master)
    if match is None:
        return settings.master
    return f"local[{match['threads'] or 1},{_LOCAL_TRIES}]"


def application_properties(name: str, settings: SparkSettings) -> dict[str, str]:
    """Return the properties of a Spark application.

    Args:
        name: the job's.
        settings: of Spark; their own properties override the defaults.
    """
    given = {key: _property_text(value) for key, value in settings.properties.items()}
    properties = dict(_DEFAULTS)
    options = _logging_options()
    if not options:
        # With a file of ours the JVM has this level from it. Spark announces each other way on standard error.
        properties["spark.log.level"] = "ERROR"
    if settings.fast_start:
        options = [*java_options(given.get("spark.driver.extraJavaOptions", "")), *options]
        properties |= _DAEMON
    properties["spark.driver.defaultJavaOptions"] = shlex.join(options)
    if settings.master.startswith("local"):
        properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        properties |= _ENCRYPTED
    log_settings = os.environ.get(log_setup.VARIABLE)
    if log_settings is not None:
        properties[f"spark.executorEnv.{log_setup.VARIABLE}"] = log_settings
    properties |= given
    return properties | {"spark.app.name": name, "spark.master": master_of(settings)}


def query_properties(settings: SparkSettings) -> Mapping[str, str]:
    """Return the properties of the session's queries, which must not hold for Spark's other use of file systems."""
    given = settings.properties
    is_given = _MANAGER in given or "spark.hadoop.fs.file.impl" in given
    return WITHOUT_FORKS if _is_checkpoint_local(settings) and not is_given else {}


def _logging_options() -> list[str]:
    """Leave stack traces out of the JVM's log, except at level debug and where the user configures its logging."""
    if os.environ.get(log_setup.VARIABLE, "").startswith("debug") or any(map(os.environ.get, _LOGGING_VARIABLES)):
        return []
    return [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"]


def _is_checkpoint_local(settings: SparkSettings) -> bool:
    """Return whether the checkpoint is surely among this machine's files; a bare path may be in Hadoop's store."""
    if settings.checkpoint.startswith("file:"):
        return True
    elsewhere = "spark.hadoop.fs.defaultFS" in settings.properties or any(map(os.environ.get, HADOOP_VARIABLES))
    return _SCHEME.match(settings.checkpoint) is None and not elsewhere


def _property_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
