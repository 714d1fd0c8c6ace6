"""Builds the image's root file system by the steps of `deploy/Dockerfile`, and runs commands in it, without an engine.

This machine's C library, Python and Java replace the base image and its packages. The class-data archive is made with
this machine's Java.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tests.go_tools import ToolMissingError
from tests.image.dockerfile import Copy, Stage, UnknownStepError, stages

_HERE: Final = Path(__file__).parent
_SOURCE: Final = _HERE.parents[1]
_BUILD_WITHIN_S: Final = 900
_IMAGE: Final = stages()[-1]
ENTRYPOINT: Final = _IMAGE.arguments("ENTRYPOINT")
"""The command of a container, before its arguments."""


BUILD_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_BUILD"
"""Lets tests build the image; `make chart` sets it."""
ROOT_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_ROOTFS"
"""Names the folder of an image that is built already."""


def image_root(folder: Path) -> RootFileSystem:
    """Return the image's root file system: the one of `ROOT_VARIABLE`, or a new one.

    Args:
        folder: where a new one is built.

    Raises:
        ToolMissingError: this machine cannot enter root file systems, or the image may not be built now.
        RuntimeError: a step of the build failed.
    """
    missing = _why_not_here()
    if missing is not None:
        raise ToolMissingError(missing)
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return RootFileSystem(Path(named))
    if BUILD_VARIABLE not in os.environ:
        raise ToolMissingError("the image is not built here; `make chart` builds it and runs this test")
    built = RootFileSystem(folder / "root")
    built.build()
    return built


def _why_not_here() -> str | None:
    """Return the reason why this machine cannot enter root file systems; None if it can."""
    if shutil.which("unshare") is None or shutil.which("mountpoint") is None:
        return "unshare and mountpoint (util-linux) are missing"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return None if tried.returncode == 0 else f"user namespaces are not allowed ({tried.stderr.strip()})"


@dataclass(frozen=True, slots=True)
class RootFileSystem:
    """A folder with the image's content.

    Attributes:
        root: the folder; about 0.7 GB.
    """

    root: Path

    def build(self, dockerfile: str | None = None) -> None:
        """Build the root file system. pip may use the network and its cache.

        Args:
            dockerfile: text of a Dockerfile; default: `deploy/Dockerfile`.

        Raises:
            RuntimeError: a step failed.
            UnknownStepError: the Dockerfile has an unsupported step.
        """
        made: dict[str, RootFileSystem] = {}
        *before, image = stages(dockerfile)
        for stage in before:
            made[stage.name] = RootFileSystem(self.root.with_name(f"{self.root.name}-{stage.name}"))
            made[stage.name].follow(stage, made)
        self.follow(image, made)
        for one in made.values():
            shutil.rmtree(one.root)

    def follow(self, stage: Stage, made: Mapping[str, RootFileSystem]) -> None:
        """Build the root file system of one stage; `made` has the earlier stages. Raises as `build`."""
        shutil.rmtree(self.root, ignore_errors=True)
        folder = stage.last("WORKDIR")
        self._place(folder).mkdir(parents=True)
        for copy in stage.copies():
            self._copy(copy, made[copy.stage].root if copy.stage else None, folder)
        self._shell(["/bin/true"])
        for command in stage.commands():
            if stage.name:
                self._shell(["/bin/sh", "-c", f"cd {folder} && {command}"])
            else:
                self._stand_in(command)

    def run(
        self, words: Sequence[str], *, environment: Mapping[str, str] | None = None, within_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, without a network.

        Args:
            words: the command line.
            environment: variables in addition to the image's.
            within_s: time limit in seconds.
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
        """Return the command line that runs a command as Kubernetes would: as the image's user, on a read-only image.

        Each program replaces itself with the next one, so the started process is the command itself and receives its
        signals.

        Args:
            words: the command line.
            environment: variables in addition to the image's.
            volumes: folders of this machine, with their paths for the command.
            network: whether it uses this machine's network; otherwise it has only its own loopback interface.
        """
        java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
        places = [*([str(Path(java).parent)] if java else []), "/usr/bin", "/bin"]
        image = _IMAGE.environment({"PATH": ":".join(places)})
        return self._inside("run", words, image | dict(environment or {}), network=network, volumes=volumes)

    def _copy(self, copy: Copy, stage: Path | None, folder: str) -> None:
        several = len(copy.sources) > 1 or copy.target.endswith("/")
        target = self._place(folder, copy.target)
        for source in copy.sources:
            if stage is None and f"!{source}" not in (_SOURCE / ".dockerignore").read_text("utf-8").splitlines():
                raise UnknownStepError(f"COPY {source}: .dockerignore keeps it from the build")
            origin = (stage or _SOURCE) / source.removeprefix("/")
            place = target / origin.name if several else target
            place.parent.mkdir(parents=True, exist_ok=True)
            if origin.is_dir():
                unwanted = None if stage else shutil.ignore_patterns("__pycache__")
                shutil.copytree(origin, place, symlinks=True, ignore=unwanted)
            else:
                shutil.copy2(origin, place)

    def _shell(self, words: Sequence[str]) -> None:
        # The `python` of the base image.
        python = self._place("/base/python")
        python.parent.mkdir(exist_ok=True)
        python.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        environment = dict(os.environ) | {"TMPDIR": "/tmp", "PATH": f"/base:{os.environ['PATH']}"}
        command = self._inside("build", words, environment, network=True)
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN_S)
        if ended.returncode != 0:
            raise RuntimeError(f"a step of the image failed:\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")

    def _stand_in(self, command: str) -> None:
        """Run a command of the image stage. Packages are not installed, because this machine's replace them."""
        for words in map(shlex.split, command.split(" && ")):
            match words:
                case ["apt-get", ("update" | "install"), *_] | ["rm", "-rf", "/var/lib/apt/lists/*"]:
                    continue
                case ["useradd", *options, name]:
                    given = dict(itertools.pairwise(options))
                    line = f"{name}:x:{given['--uid']}:{given['--uid']}::{given['--home-dir']}:{given['--shell']}\n"
                    passwd = self._place("/etc/passwd")
                    passwd.parent.mkdir(parents=True, exist_ok=True)
                    passwd.write_text(line, encoding="utf-8")
                case ["install", "-d", *_, folder]:
                    self._place(folder).mkdir(parents=True, exist_ok=True)
                case [_, "-m", "spark.jvm.class_archive"]:
                    self._shell(words)
                case _:
                    raise UnknownStepError(f"RUN {shlex.join(words)}")

    def _place(self, *path: str) -> Path:
        """Return the path on this machine of a path in the image."""
        return self.root / PurePosixPath(*path).relative_to("/")

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
        # `env -i` runs inside of the namespaces, because creating them needs this machine's PATH.
        cleared = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        image = [_IMAGE.last("USER"), _IMAGE.last("WORKDIR")]
        return [*apart, str(_HERE / "inside.sh"), mode, str(self.root), *image, mounted, *cleared, *words]
