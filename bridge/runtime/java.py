"""Finds a Java runtime."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import StartupError

OLDEST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java runtime: the path of its `java` command and its major version."""

    command: str
    major: int


def find_java() -> Java:
    """Find Java in JAVA_HOME, else on the PATH.

    Raises:
        StartupError: there is none, it doesn't run, or it is older than 17.
    """
    command = find_command()
    return Java(command, _checked_major(command))


def find_command() -> str:
    """Find the `java` command in JAVA_HOME, else on the PATH; its version is not checked.

    Raises:
        StartupError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        command = str(Path(home, "bin", "java"))
        if not Path(command).is_file():
            message = f"JAVA_HOME is {home}, but there is no bin/java in it. Correct it, or unset it to use the PATH."
            raise StartupError(message)
    else:
        found = shutil.which("java")
        if found is None:
            message = f"No Java found: install a Java {OLDEST_JAVA} runtime, and put it on the PATH or set JAVA_HOME."
            raise StartupError(message)
        command = found
    return command


def _checked_major(command: str) -> int:
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"Cannot run {command}: {error}"
        raise StartupError(message) from error
    output = answer.stderr + answer.stdout
    major = major_version(output)
    if answer.returncode != 0 or major is None:
        message = f"`{command} -version` gave no version, but this:\n{output.strip()}"
        raise StartupError(message)
    if major < OLDEST_JAVA:
        message = f"{command} is Java {major}, but {OLDEST_JAVA} or newer is needed. Set JAVA_HOME to a newer one."
        raise StartupError(message)
    return major


def major_version(output: str) -> int | None:
    """Read the major version from what `java -version` prints ("1.8.0_292" is 8); None if it isn't there."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if match is None:
        return None
    first = int(match.group(1))
    return int(match.group(2) or 0) if first == 1 else first
