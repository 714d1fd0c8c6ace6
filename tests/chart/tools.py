"""Helm and its like, built once through the Go module proxy and kept in `.local-stack/tools`.

A cold build of Helm takes some five minutes of CPU time, so only `make chart` builds; other runs use what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOLS_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_TOOLS"
BUILD_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_BUILD"
"""Set by `make chart`: what the chart's tests need may be built, which takes minutes."""
_PROGRAMS: Final = Path(__file__).parent / "programs"
_BUILD_WITHIN_S: Final = 3000

HELM: Final = "helm.sh/helm/v4/cmd/helm@v4.3.1"
KUBECONFORM: Final = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"


class ToolMissingError(Exception):
    """A tool is not here and can't be had, or is not to be built now; the message says why."""


def may_build() -> bool:
    """Whether what is missing may be built."""
    return BUILD_VARIABLE in os.environ


def tools_folder() -> Path:
    """Where tools are kept between runs."""
    named = os.environ.get(TOOLS_VARIABLE)
    return Path(named) if named else _REPOSITORY / ".local-stack" / "tools"


def tool(module: str) -> Path:
    """The program of a Go module's command at a version, built if it is not there yet.

    Raises:
        ToolMissingError: there is no Go here.
        RuntimeError: Go can't build it; with what Go says.
    """
    path, _, version = module.partition("@")
    name = Path(path).name
    program = tools_folder() / f"{name}-{version}" / name
    if not program.exists():
        # Built aside and moved: what is interrupted must not look finished.
        fresh = tools_folder() / f"building-{os.getpid()}"
        go("install", module, GOBIN=str(fresh))
        program.parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(program)
        shutil.rmtree(fresh, ignore_errors=True)
    return program


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A program that needs a module of our own (`tests/chart/programs`), because its module replaces others.

    Attributes:
        name: of the folder and the program.
        package: what is built there.
        flags: for the build.
    """

    name: str
    package: str
    flags: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it is kept; another source, or other flags, is another place."""
        sources = sorted((_PROGRAMS / self.name).iterdir())
        made_of = [*(source.read_bytes() for source in sources), *(flag.encode() for flag in self.flags)]
        digest = hashlib.sha256(b"".join(made_of)).hexdigest()[:12]
        return tools_folder() / f"{self.name}-{digest}" / self.name

    def build(self) -> Path:
        """Its path; built if it is not there yet.

        Raises:
            ToolMissingError: there is no Go here.
            RuntimeError: Go can't build it; with what Go says.
        """
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_suffix(".new")
            go("build", "-o", str(fresh), *self.flags, self.package, folder=_PROGRAMS / self.name)
            fresh.replace(self.path)
        return self.path


# Without service discovery of every cloud, which is most of it.
PROMTOOL: Final = OwnProgram(
    "promtool", "github.com/prometheus/prometheus/cmd/promtool", ("-tags", "remove_all_sd", "-ldflags", "-s -w")
)


def module_folder(module: str) -> Path:
    """The content of a Go module at a version, in Go's own cache.

    Raises:
        ToolMissingError: there is no Go here.
        RuntimeError: Go can't fetch it; with what Go says.
    """
    return Path(json.loads(go("mod", "download", "-json", module))["Dir"])


def go(*words: str, folder: Path | None = None, **environment: str) -> str:
    """What a command of Go prints.

    Raises:
        ToolMissingError: there is no Go here.
        RuntimeError: it fails; with what Go says.
    """
    if not may_build():
        raise ToolMissingError("a tool of the chart's tests is not built yet; `make chart` builds it and runs them")
    program = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if program is None:
        raise ToolMissingError(f"no Go here, which is needed for: go {' '.join(words)}")
    ended = subprocess.run(
        [program, *words],
        cwd=folder,
        env=os.environ | {"GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_WITHIN_S,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"go {' '.join(words)}:\n{ended.stderr[-2000:]}{ended.stdout[-2000:]}")
    return ended.stdout
