"""Helm and its like, built once through the Go module proxy and kept in `.local-stack/tools`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOLS_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_TOOLS"
_BUILD_WITHIN_S: Final = 1500

HELM: Final = "helm.sh/helm/v4/cmd/helm@v4.3.1"
PROMTOOL: Final = "github.com/prometheus/prometheus/cmd/promtool@v0.307.3"
KUBECONFORM: Final = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"


class ToolMissingError(Exception):
    """A tool is not here and can't be had; the message says why."""


def tools_folder() -> Path:
    """Where tools are kept between runs."""
    named = os.environ.get(TOOLS_VARIABLE)
    return Path(named) if named else _REPOSITORY / ".local-stack" / "tools"


def tool(module: str, *flags: str) -> Path:
    """The program of a Go module's command at a version, built if it is not there yet.

    Args:
        module: as `go install` takes it.
        flags: for the build.

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
        go("install", *flags, module, GOBIN=str(fresh))
        program.parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(program)
        shutil.rmtree(fresh, ignore_errors=True)
    return program


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
