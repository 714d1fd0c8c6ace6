"""The image's root file system, made and entered without an engine, by the steps of `deploy/Dockerfile`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_SOURCE: Final = _HERE.parents[1]
_BUILD_WITHIN_S: Final = 900
FOLDER: Final = "/opt/scylla-cdc-bridge"
PYTHON: Final = f"{FOLDER}/bin/python"
ENTRYPOINT: Final = (PYTHON, "-m", "spark.container")
"""What the Dockerfile's ENTRYPOINT finds on its PATH."""


def why_not_here() -> str | None:
    """None where root file systems can be entered, else what is missing."""
    if shutil.which("unshare") is None or shutil.which("mountpoint") is None:
        return "unshare and mountpoint (util-linux) are not here"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return None if tried.returncode == 0 else f"user namespaces can't be made here ({tried.stderr.strip()})"


@dataclass(frozen=True, slots=True)
class RootFileSystem:
    """A folder with the image's content.

    Attributes:
        root: the folder; some 0.7 GB.
    """

    root: Path

    def build(self) -> None:
        """Make it anew, by the image's steps; pip may use the network and its cache.

        Raises:
            RuntimeError: a step fails.
        """
        shutil.rmtree(self.root, ignore_errors=True)
        steps = ["/src/deploy/image/install.sh", os.path.realpath(sys.executable), "/src", FOLDER]
        command = self._inside("build", steps, dict(os.environ) | {"TMPDIR": "/tmp"}, network=True)  # noqa: S108
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN_S)
        if ended.returncode != 0:
            raise RuntimeError(f"the image's steps fail:\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")

    def run(
        self, words: Sequence[str], *, environment: Mapping[str, str] | None = None, within_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, without a network.

        Args:
            words: the command line.
            environment: variables beside the image's.
            within_s: how long it may take.
        """
        command = self.command(words, environment=environment, network=False)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=within_s)

    def command(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        volumes: Mapping[Path, str] | None = None,
        network: bool,
    ) -> list[str]:
        """What runs a command as Kubernetes would: as user 10001, read-only, with the image's environment.

        Each step replaces its process, so the process that is started is the command itself, and gets its signals.

        Args:
            words: the command line.
            environment: variables beside the image's.
            volumes: folders of this machine, and where the command finds them.
            network: whether it sees this machine's network, or none but a loopback of its own.
        """
        java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
        places = [f"{FOLDER}/bin", *([str(Path(java).parent)] if java else []), "/usr/bin", "/bin"]
        image = {"PATH": ":".join(places), "HOME": "/tmp", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: S108
        return self._inside("run", words, image | dict(environment or {}), network=network, volumes=volumes)

    def _inside(
        self,
        mode: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        network: bool,
        volumes: Mapping[Path, str] | None = None,
    ) -> list[str]:
        apart = ["unshare", "--user", "--map-root-user", "--mount", *([] if network else ["--net"])]
        mounted = "\n".join(f"{folder}={place}" for folder, place in (volumes or {}).items())
        # `env -i` inside: the namespaces' own steps need this machine's PATH.
        cleared = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        return [*apart, str(_HERE / "inside.sh"), mode, str(self.root), str(_SOURCE), mounted, *cleared, *words]
