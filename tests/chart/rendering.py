"""The chart as Helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.chart.documents import CHART

Manifest = dict[str, Any]
LOCAL: Final = CHART / "ci" / "local-values.yaml"
FULL: Final = CHART / "ci" / "full-values.yaml"
NAMESPACE: Final = "data"
RELEASE: Final = "shop"
NAME: Final = "shop-scylla-cdc-bridge"


class HelmError(Exception):
    """Helm failed; with its output."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Manifests of one release."""

    manifests: tuple[Manifest, ...]

    def kinds(self) -> list[str]:
        """Return kind and name of each manifest, sorted."""
        return sorted(f"{one['kind']} {one['metadata']['name']}" for one in self.manifests)

    def find(self, kind: str, name: str = NAME) -> Manifest:
        """Return the manifest of a kind and name."""
        found = [one for one in self.manifests if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        assert len(found) == 1, f"{kind} {name} among {self.kinds()}"
        return found[0]

    @property
    def driver(self) -> Manifest:
        """The spec of the driver's pod."""
        spec: Manifest = self.find("StatefulSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        """The driver's container."""
        (container,) = self.driver["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def config_text(self) -> str:
        """The configuration file."""
        text: str = self.find("ConfigMap")["data"]["bridge.yaml"]
        return text

    @property
    def config(self) -> Manifest:
        """The configuration file, read."""
        config: Manifest = yaml.safe_load(self.config_text)
        return config

    @property
    def executor(self) -> Manifest:
        """The executors' pod template."""
        pod: Manifest = yaml.safe_load(self.find("ConfigMap")["data"]["executor.yaml"])
        return pod


@dataclass(frozen=True, slots=True)
class Chart:
    """Helm, and the chart's folder.

    Attributes:
        helm: the program.
        scratch: folder for values files.
    """

    helm: Path
    scratch: Path

    def render(self, *files: Path, values: Mapping[str, Any] | None = None, release: str = RELEASE) -> Rendered:
        """Return what `helm template` renders from files (by default `LOCAL`) and a mapping over them.

        Raises:
            HelmError: Helm rejects them.
        """
        text = self.run("template", release, str(CHART), "--namespace", NAMESPACE, *self._values(files, values))
        # The safe loader in C: the one in Python takes as long as Helm does.
        return Rendered(tuple(one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one is not None))

    def notes(self, *files: Path, values: Mapping[str, Any] | None = None) -> str:
        """Return the notes that Helm prints after an installation."""
        words = ["install", RELEASE, str(CHART), "--dry-run=client", "--namespace", NAMESPACE]
        return self.run(*words, *self._values(files, values)).partition("NOTES:")[2]

    def run(self, *words: str) -> str:
        """Run Helm and return its output.

        Raises:
            HelmError: it fails.
        """
        ended = subprocess.run([self.helm, *words], capture_output=True, text=True, check=False, timeout=120)
        if ended.returncode != 0:
            raise HelmError(ended.stderr + ended.stdout)
        return ended.stdout

    def _values(self, files: Sequence[Path], values: Mapping[str, Any] | None) -> list[str]:
        own = self.scratch / "values.yaml"
        own.write_text(yaml.safe_dump(dict(values or {})), encoding="utf-8")
        return [word for file in (*(files or (LOCAL,)), own) for word in ("--values", str(file))]
