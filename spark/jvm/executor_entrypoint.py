"""The entrypoint of the image: `python -m spark.jvm.executor_entrypoint` is the first process of a container.

With the argument `executor` it becomes an executor of Spark on Kubernetes; other arguments are a command line of
`scylla-cdc-bridge`. The job or the JVM replaces this process, so that it receives the container's SIGTERM itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bridge.cli import main as command_line
from bridge.cli.parser import PROGRAM
from bridge.errors import StartupError
from spark.jvm.launcher import find_java, spark_folder

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION: Final = "SPARK_JAVA_OPT_"
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Argument of the executor's JVM -> the variable in which Spark's driver gives its value to the pod."""


def executor_command(environment: Mapping[str, str], *, java: str, jars: Path) -> list[str]:
    """Return the command line of an executor, from the environment that Spark's driver gave its pod.

    Args:
        environment: variables by name.
        java: path of the JVM.
        jars: folder of Spark's jars.

    Raises:
        StartupError: a variable is missing, so Spark did not make the pod.
    """
    needed = [*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY"]
    lacking = [name for name in needed if not environment.get(name)]
    if lacking:
        raise StartupError(f"`executor` is for pods that Spark makes: {', '.join(lacking)} not set")
    options = sorted(
        (int(name.removeprefix(_OPTION)), value) for name, value in environment.items() if name.startswith(_OPTION)
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    more = [environment[name] for name in ("SPARK_CONF_DIR", "SPARK_CLASSPATH") if environment.get(name)]
    return [
        java,
        *(option for _, option in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join([*more, f"{jars}/*"]),
        _BACKEND,
        *(word for flag, name in _ARGUMENTS.items() for word in (flag, environment[name])),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Become an executor or run a command; returns the exit status of a command that does not replace this process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] != ["executor"]:
        return command_line.main(arguments)
    try:
        command = executor_command(os.environ, java=find_java(), jars=spark_folder() / "jars")
    except StartupError as error:
        sys.stderr.write(f"{PROGRAM}: error: {error}\n")
        return command_line.EXIT_REFUSED
    os.environ["SPARK_HOME"] = str(spark_folder())
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606  # the image's own JVM
    raise AssertionError("execv came back")


if __name__ == "__main__":
    sys.exit(main())
