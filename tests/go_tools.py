"""Programs and modules that tests get through the Go module proxy, kept in `.local-stack/tools`.

`make tools` builds the programs of `BUILT_FOR_TESTS`. The tests themselves build nothing: without a program they are
skipped, and print how to build it.
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

_REPOSITORY: Final = Path(__file__).resolve().parents[1]
TOOLS_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_TOOLS"
_PROGRAMS: Final = Path(__file__).parent / "chart" / "programs"
_BUILD_WITHIN_S: Final = 3000


class ToolMissingError(Exception):
    """A tool is missing. The message says how to get it."""


def tools_folder() -> Path:
    """Return the folder in which tools are kept between runs."""
    named = os.environ.get(TOOLS_VARIABLE)
    return Path(named) if named else _REPOSITORY / ".local-stack" / "tools"


@dataclass(frozen=True, slots=True)
class ModuleProgram:
    """A command of a public Go module.

    Attributes:
        package: import path of the command.
        version: version of the module.
    """

    package: str
    version: str

    @property
    def path(self) -> Path:
        """Where the built program is kept; each version has a folder of its own."""
        name = Path(self.package).name
        return tools_folder() / f"{name}-{self.version}" / name

    def get(self) -> Path:
        """Return the built program.

        Raises:
            ToolMissingError: it is not built.
        """
        if not self.path.exists():
            raise ToolMissingError(f"{self.path.name} is not built here; `make tools` builds it and needs Go")
        return self.path

    def build(self) -> Path:
        """Build the program unless it is built already, and return its path.

        Raises:
            ToolMissingError: Go is not installed.
            RuntimeError: Go fails; with its output.
        """
        if not self.path.exists():
            # An interrupted build must not look complete, so the program is built elsewhere and then moved.
            fresh = tools_folder() / f"building-{os.getpid()}"
            go("install", f"{self.package}@{self.version}", GOBIN=str(fresh))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            (fresh / self.path.name).replace(self.path)
            shutil.rmtree(fresh, ignore_errors=True)
        return self.path


HELM: Final = ModuleProgram("helm.sh/helm/v4/cmd/helm", "v4.3.1")
KUBECONFORM: Final = ModuleProgram("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
ACTIONLINT: Final = ModuleProgram("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12")
BUILT_FOR_TESTS: Final = (HELM, KUBECONFORM, ACTIONLINT)
"""The programs of the tests that `make test` runs."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A program whose Go module is in `tests/chart/programs`, because it replaces dependencies.

    Attributes:
        name: of the folder and the program.
        package: the package to build.
        flags: flags of the build.
        command: the `make` command that builds the program.
    """

    name: str
    package: str
    flags: tuple[str, ...]
    command: str

    @property
    def path(self) -> Path:
        """Where the built program is kept; the folder's name depends on source and flags."""
        sources = sorted((_PROGRAMS / self.name).iterdir())
        made_of = [*(source.read_bytes() for source in sources), *(flag.encode() for flag in self.flags)]
        digest = hashlib.sha256(b"".join(made_of)).hexdigest()[:12]
        return tools_folder() / f"{self.name}-{digest}" / self.name

    def get(self) -> Path:
        """Return the built program.

        Raises:
            ToolMissingError: it is not built.
        """
        if not self.path.exists():
            raise ToolMissingError(f"{self.name} is not built here; `{self.command}` builds it and needs Go")
        return self.path

    def build(self) -> Path:
        """Build the program unless it is built already, and return its path.

        Raises:
            ToolMissingError: Go is not installed.
            RuntimeError: Go fails; with its output.
        """
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_suffix(".new")
            go("build", "-o", str(fresh), *self.flags, self.package, folder=_PROGRAMS / self.name)
            fresh.replace(self.path)
        return self.path


# Without the service discovery of all clouds, which is most of promtool.
PROMTOOL: Final = OwnProgram(
    "promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    ("-tags", "remove_all_sd", "-ldflags", "-s -w"),
    "make chart",
)


def module_folder(module: str) -> Path:
    """Return the folder of a Go module in Go's own cache, after fetching it if necessary.

    Args:
        module: module path and version, as `path@version`.

    Raises:
        ToolMissingError: Go is not installed.
        RuntimeError: Go fails; with its output.
    """
    return Path(json.loads(go("mod", "download", "-json", module))["Dir"])


def go(*words: str, folder: Path | None = None, **environment: str) -> str:
    """Run a command of Go and return its standard output.

    Args:
        words: the command's words after `go`.
        folder: the working folder.
        environment: variables in addition to this process's.

    Raises:
        ToolMissingError: Go is not installed.
        RuntimeError: Go fails; with its output.
    """
    program = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if program is None:
        raise ToolMissingError("Go is not installed")
    try:
        ended = subprocess.run(
            [program, *words],
            cwd=folder,
            env=os.environ | {"GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_WITHIN_S,
        )
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"go {' '.join(words)}: not done within {_BUILD_WITHIN_S} s") from late
    if ended.returncode != 0:
        raise RuntimeError(f"go {' '.join(words)}:\n{ended.stderr[-2000:]}{ended.stdout[-2000:]}")
    return ended.stdout
