"""Starts the JVM of Spark's driver in the background.

`DirectJvm` builds the JVM's command line itself. PySpark would run two shell scripts, a Python process and another JVM
for that, and wait for them. Those scripts also set SPARK_HOME, and Spark then puts zip files of PySpark before the
installed package on the path of its Python processes; each of them compiles PySpark again, for most of a second of CPU
time. Another distribution of Spark (SPARK_HOME) is started by its scripts. `ScriptedJvm` leaves the start to PySpark.
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
from typing import Any, Final, Protocol

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, java_gateway
from pyspark.errors import PySparkRuntimeError

from bridge.errors import StartupError
from bridge.runtime import java

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_SHELL: Final = "pyspark-shell"
_SERIAL_COLLECTOR: Final = "-XX:+UseSerialGC"
"""The threads of another collector would compete with the work for few cores."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""The second compiler, with the counters that it needs in the first one's code, took a quarter of a start's CPU time,
for code that runs some hundred times a second: Python's processes do the work for each change. And 20 times a second
the JVM would write its own statistics to a file in /tmp, for `jstat` and `jps`: 4 % of an idle job's CPU."""
ARCHIVE: Final = Path(sys.prefix, "share", "scylla-cdc-bridge", "spark.jsa")
"""The archive of the JVM's classes, if one was made (`spark.jvm.class_archive`)."""
START_TIMEOUT_S: Final = 300.0
"""How long the JVM may take to start."""
_CHECK_EVERY_S: Final = 0.02
_CLEAN_UP_S: Final = 5.0
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
"""The JVM options of `org.apache.spark.launcher.JavaModuleOptions`, without the vector instructions, which only Spark's
linear algebra uses."""


def spark_folder() -> Path:
    """Return the folder of the installed PySpark, which holds Spark's jars.

    Raises:
        StartupError: it is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise StartupError("the Python module pyspark is missing")
    return Path(found.origin).parent


def find_java() -> str:
    """Return the path of the JVM: the one in JAVA_HOME, else on the PATH.

    Raises:
        StartupError: there is none.
    """
    try:
        return java.find_command()
    except StartupError as error:
        raise StartupError(f"Spark's JVM does not start. {error}") from error


def class_path(jars: Path) -> list[str]:
    """Return Spark's jars, sorted: a class archive needs the same order everywhere, and folders have their own."""
    return sorted(str(jar) for jar in jars.glob("*.jar"))


def java_options(given: str, archive: Path = ARCHIVE) -> list[str]:
    """Return the driver's JVM options, which precede those of the configuration.

    Args:
        given: the configuration's own options.
        archive: the archive of classes; it need not exist.
    """
    # A JVM ignores an archive of another JVM or of other jars.
    archived = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    # A JVM refuses two collectors.
    collector = [] if _COLLECTOR.search(given) else [_SERIAL_COLLECTOR]
    return [*collector, *_QUICK, *(archived if archive.is_file() else [])]


def command(properties: Mapping[str, str], environment: Mapping[str, str], *, java: str, jars: Path) -> list[str]:
    """Return the command line of a driver's JVM, as Spark's launcher would build it.

    Args:
        properties: of the Spark application.
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
        *_submit_arguments(properties),
    ]


def _submit_arguments(properties: Mapping[str, str]) -> list[str]:
    return [*(word for pair in properties.items() for word in ("--conf", "=".join(pair))), _SHELL]


class DriverJvm(Protocol):
    """A driver's JVM. It ends when its standard input closes, so it ends with this process."""

    def connect(self) -> JavaGateway:
        """Wait until the JVM is up, and connect to it.

        Raises:
            PySparkRuntimeError: the JVM has ended.
            StartupError: the JVM did not start in time.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Close the JVM's input, and wait for its end.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout_s`.
        """
        ...

    def end(self) -> None:
        """End the JVM now; it may clean up for a moment."""
        ...


class ScriptedJvm:
    """The JVM as PySpark starts it by its own scripts: a `DriverJvm` that starts when `connect` is called."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            properties: of the Spark application.
        """
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def connect(self) -> JavaGateway:
        """Start the JVM, and connect to it."""
        launch: Any = java_gateway.launch_gateway
        conf = SparkConf(loadDefaults=False).setAll(list(self._properties.items()))
        gateway: JavaGateway = launch(conf)
        self._process = gateway.proc
        return gateway

    def wait(self, timeout_s: float) -> None:
        """Close the JVM's input, and wait for its end."""
        if self._process is not None:
            _wait_for_end(self._process, timeout_s)

    def end(self) -> None:
        """End the JVM now."""
        if self._process is not None:
            _terminate(self._process)


class DirectJvm:
    """The JVM by a command line of our own: a `DriverJvm` that starts at once."""

    def __init__(
        self, properties: Mapping[str, str], *, folder: Path | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Start the JVM.

        Args:
            properties: of the Spark application.
            folder: where to make the folder for its answer; None for the usual place of temporary files.
            timeout_s: how long the JVM may take to start.

        Raises:
            StartupError: there is no Java or no PySpark, the JVM can't be started, or no temporary file can be made.
        """
        self._timeout_s = timeout_s
        home = os.environ.get("SPARK_HOME")
        if home:
            argv = [str(Path(home, "bin", "spark-submit")), *_submit_arguments(properties)]
        else:
            argv = command(properties, os.environ, java=find_java(), jars=spark_folder() / "jars")
        try:
            self._folder = tempfile.mkdtemp(prefix="scylla-cdc-bridge-", dir=folder)
        except OSError as error:
            raise StartupError(f"no temporary files can be made ({error}); set TMPDIR to a folder for them") from error
        self._answer = Path(self._folder, "gateway")
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                env=_jvm_environment(properties, self._answer),
                # Ctrl-C is the job's to handle; PySpark does the same.
                preexec_fn=_ignore_interrupts,
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise StartupError(f"Spark's JVM can't be started: {argv[0]}: {error.strerror}; see JAVA_HOME") from error

    def connect(self) -> JavaGateway:
        """Wait until the JVM is up, and connect to it."""
        port, secret = self._wait_for_answer()
        launch: Any = java_gateway.launch_gateway
        with _known_gateway(port, secret):
            gateway: JavaGateway = launch()
        gateway.proc = self._process
        return gateway

    def wait(self, timeout_s: float) -> None:
        """Close the JVM's input, and wait for its end."""
        _wait_for_end(self._process, timeout_s)

    def end(self) -> None:
        """End the JVM now."""
        _terminate(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_for_answer(self) -> tuple[int, str]:
        """Return the port and the secret of the JVM's gateway."""
        deadline_s = time.monotonic() + self._timeout_s
        try:
            while not self._answer.is_file():
                if self._process.poll() is not None:
                    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
                if time.monotonic() > deadline_s:
                    raise StartupError(
                        f"Spark's JVM (process {self._process.pid}) has not come up in {self._timeout_s:.0f} s: give "
                        "it more CPU, and see its own messages above"
                    )
                time.sleep(_CHECK_EVERY_S)
            # The port, and the secret behind its length. The JVM writes the file elsewhere and moves it here whole.
            answer = self._answer.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return int.from_bytes(answer[:4], "big"), answer[8:].decode()


def _jvm_environment(properties: Mapping[str, str], answer: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        "SPARK_CONNECT_MODE": "0",
        # Spark's scripts set it, too: its Python processes must agree on the hashes of texts.
        "PYTHONHASHSEED": "0",
    }
    library_path = properties.get("spark.driver.extraLibraryPath")
    if library_path:
        former = os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [library_path, former]))
    return environment


def _wait_for_end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout_s)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(_CLEAN_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _known_gateway(port: int, secret: str) -> Iterator[None]:
    """Have PySpark connect to a JVM that is up; processes that start later must not inherit the variables."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        yield
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
