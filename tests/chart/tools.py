"""Helm and its like, built once through the Go module proxy and kept in `.local-stack/tools`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOLS_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_TOOLS"
_BUILD_WITHIN_S: Final = 1500

HELM: Final = "helm.sh/helm/v4/cmd/helm@v4.3.1"
KUBECONFORM: Final = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"


class ToolMissingError(Exception):
    """A tool is not here and can't be had; the message says why."""


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
    folder = tools_folder() / f"{Path(path).name}-{version}"
    program = folder / Path(path).name
    if program.exists():
        return program
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise ToolMissingError(f"{program.name} is not here, and no Go to build it with (go install {module})")
    # Built aside and moved: what is interrupted must not look finished.
    fresh = tools_folder() / f"building-{os.getpid()}"
    environment = os.environ | {"GOBIN": str(fresh), "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
    built = subprocess.run(
        [go, "install", module], env=environment, capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN_S
    )
    if built.returncode != 0:
        raise RuntimeError(f"go install {module}:\n{built.stderr[-2000:]}")
    folder.mkdir(parents=True, exist_ok=True)
    (fresh / program.name).replace(program)
    shutil.rmtree(fresh, ignore_errors=True)
    return program
