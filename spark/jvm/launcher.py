"""Spark's JVM, started beside whatever else a job has to do first.

PySpark would start it by two shell scripts, a Python process and another JVM, and wait. The command line that comes of
all that is known here, so the JVM is started at once. One more gain: those scripts set SPARK_HOME, and with that
Spark puts zip files of PySpark before the installed package on its Python processes' path, from which each of them
compiles PySpark anew, most of a second of CPU time. Another distribution (SPARK_HOME) is started by its scripts.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JavaGateway
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError

from bridge.errors import StartupError
from bridge.runtime import java

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_SHELL: Final = "pyspark-shell"
_SMALL_HEAP: Final = "-XX:+UseSerialGC"
"""Another collector's own threads would compete with the work for few cores."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""The second compiler, and the counting for it in what the first one makes, took a quarter of a start's CPU time, for
code that runs some hundred times a second: what is done for each change is done in Python's processes. And 20 times a
second the JVM would write figures of itself to a file in /tmp, for `jstat` and `jps`: at rest 4 % of the job's CPU."""
ARCHIVE: Final = Path(sys.prefix, "share", "scylla-cdc-bridge", "spark.jsa")
"""The archive of the JVM's classes, where one was made (`spark.jvm.class_archive`)."""
_LOOK_EVERY_S: Final = 0.02
_CLEAN_UP_S: Final = 5.0
_COMES_WITHIN_S: Final = 300.0
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""What Spark needs of the JVM's modules: `org.apache.spark.launcher.JavaModuleOptions`, but for the vector
instructions, which only its linear algebra uses."""


def spark_folder() -> Path:
    """Where the installed PySpark is, and with it Spark's jars.

    Raises:
        StartupError: it is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise StartupError("the Python module pyspark is missing")
    return Path(found.origin).parent


def find_java() -> str:
    """Path of the JVM: the one in JAVA_HOME, else on the PATH.

    Raises:
        StartupError: there is none.
    """
    try:
        return java.find_command()
    except StartupError as error:
        raise StartupError(f"Spark's JVM does not start. {error}") from error


def class_path(jars: Path) -> list[str]:
    """Spark's jars by name, because a folder's own order differs from machine to machine and class archives mind it."""
    return sorted(str(jar) for jar in jars.glob("*.jar"))


def java_options(given: str) -> list[str]:
    """What the driver's JVM is told before the options that are given in the configuration."""
    # Made for another JVM or other jars it is of no use, but does no harm either.
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    # Two collectors are one too many for a JVM.
    collector = [] if _COLLECTOR.search(given) else [_SMALL_HEAP]
    return [*collector, *_QUICK, *(archive if ARCHIVE.is_file() else [])]


def command(properties: Mapping[str, str], environment: Mapping[str, str], *, java: str, jars: Path) -> list[str]:
    """The command line of a driver's JVM, as Spark's launcher would make it.

    Args:
        properties: Spark's.
        environment: variables by name.
        java: path of the JVM.
        jars: folder of Spark's jars.
    """
    given = [properties.get("spark.driver.extraClassPath"), environment.get("SPARK_CONF_DIR")]
    hadoop = [environment.get("HADOOP_CONF_DIR"), environment.get("YARN_CONF_DIR")]
    options = [
        environment.get("SPARK_SUBMIT_OPTS", ""),
        properties.get("spark.driver.defaultJavaOptions", ""),
        properties.get("spark.driver.extraJavaOptions", ""),
    ]
    return [
        java,
        "-cp",
        os.pathsep.join(filter(None, [*given, *class_path(jars), *hadoop])),
        f"-Xmx{properties['spark.driver.memory']}",
        *MODULE_OPTIONS,
        *(word for text in options for word in shlex.split(text)),
        _SUBMIT,
        *_arguments(properties),
    ]


def _arguments(properties: Mapping[str, str]) -> list[str]:
    return [*(word for pair in properties.items() for word in ("--conf", "=".join(pair))), _SHELL]


class SparkJvm:
    """A driver's JVM that is coming up. It ends with this process, however that ends, as its standard input does."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            StartupError: there is no Java or no PySpark, it can't be started, or no temporary file can be made.
        """
        home = os.environ.get("SPARK_HOME")
        if home:
            words = [str(Path(home, "bin", "spark-submit")), *_arguments(properties)]
        else:
            words = command(properties, os.environ, java=find_java(), jars=spark_folder() / "jars")
        try:
            self._folder = tempfile.mkdtemp(prefix="scylla-cdc-bridge-")
        except OSError as error:
            raise StartupError(f"no temporary files can be made ({error}); set TMPDIR to a folder for them") from error
        self._answer = Path(self._folder, "gateway")
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
            "SPARK_CONNECT_MODE": "0",
            # As Spark's scripts have it: its Python processes must agree on the hashes of texts.
            "PYTHONHASHSEED": "0",
        }
        library_path = properties.get("spark.driver.extraLibraryPath")
        if library_path:
            former = os.environ.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [library_path, former]))
        # Ctrl-C is the job's to handle; as PySpark does it.
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, env=environment, preexec_fn=_ignore_interrupts
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise StartupError(f"Spark's JVM can't be started: {words[0]}: {error.strerror}; see JAVA_HOME") from error

    def connect(self) -> JavaGateway:
        """Wait until it answers.

        Raises:
            PySparkRuntimeError: it has ended.
            StartupError: it does neither.
        """
        deadline = time.monotonic() + _COMES_WITHIN_S
        try:
            while not self._answer.is_file():
                if self._process.poll() is not None:
                    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
                if time.monotonic() > deadline:
                    raise StartupError(
                        f"Spark's JVM (process {self._process.pid}) has not come up in {_COMES_WITHIN_S:.0f} s: give "
                        "it more CPU, and see what it says above"
                    )
                time.sleep(_LOOK_EVERY_S)
            # A port, and a secret behind its length; written elsewhere and moved here whole.
            answer = self._answer.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        launch: Any = java_gateway.launch_gateway
        with _known_gateway(int.from_bytes(answer[:4], "big"), answer[8:].decode()):
            gateway: JavaGateway = launch()
        gateway.proc = self._process
        return gateway

    def wait(self, timeout_s: float) -> None:
        """Let it end by itself, by the end of its input.

        Raises:
            subprocess.TimeoutExpired: it does not.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout_s)

    def end(self) -> None:
        """End it now: nothing was begun with it. It may clean up after itself for a moment."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(_CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _known_gateway(port: int, secret: str) -> Iterator[None]:
    """Have PySpark connect to a JVM that is there; the variables must not reach processes that are started later."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        yield
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
