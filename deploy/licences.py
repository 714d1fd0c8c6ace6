"""Writes docs/licences.md from the metadata of the installed packages: `python -m deploy.licences`.

A package states its licence as an SPDX expression, as classifiers or as free text. This module turns all three into
SPDX identifiers. A text that none of its tables knows stays as it is, so a person looks at it. It needs no network.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = ROOT / "docs" / "licences.md"

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",  # binds changes of its own files only
        "PSF-2.0",
        "Zlib",
    }
)
"""SPDX identifiers that are allowed beside an Apache-2.0 program."""

_BY_CLASSIFIER: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_BY_TEXT: Final = {
    "Apache 2.0": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
}
_OPERATORS: Final = re.compile(r"\s+(?:AND|OR|WITH)\s+|[()]")

_HEAD: Final = """\
# Licences

This page lists the licences of the Python packages that are installed with the bridge, directly or as dependencies.
`make licences` generates it from the packages' metadata. [constraints.txt](../constraints.txt) has their versions.
PySpark contains Apache Spark's jars with their notices. The sandbox's jars are fetched for tests and the demo only,
and are not shipped.
"""


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """An installed package and its licence: an SPDX expression, or the package's own text if none is known."""

    name: str
    licence: str

    @property
    def is_allowed(self) -> bool:
        """Whether every licence of the expression is allowed."""
        parts = [part for part in _OPERATORS.split(self.licence) if part]
        return bool(parts) and ALLOWED.issuperset(parts)


def packages(requirements: Iterable[str]) -> list[Package]:
    """Return all packages that requirements install, sorted by name.

    Raises:
        importlib.metadata.PackageNotFoundError: a package is not installed.
    """
    found: dict[str, Package] = {}
    visited: set[tuple[str, str]] = set()
    pending = [Requirement(one) for one in requirements]
    while pending:
        wanted = pending.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *sorted(wanted.extras)):
            if (name, extra) in visited:
                continue
            visited.add((name, extra))
            found[name] = Package(name, _licence_of(metadata.metadata(name)))
            for text in metadata.requires(name) or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    pending.append(inner)
    return sorted(found.values())


def document() -> str:
    """Return the text of the page."""
    project, sandbox = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "sandbox")
    )
    groups = {
        "Installed with the bridge": project["dependencies"],
        "Added by the sandbox": [one for one in sandbox["dependencies"] if not one.startswith(project["name"])],
        "Added for development": project["optional-dependencies"]["dev"],
    }
    lines = [_HEAD]
    seen: set[Package] = set()
    for title, requirements in groups.items():
        lines += [f"## {title}", "", "| package | licence |", "|---|---|"]
        own = [one for one in packages(requirements) if one not in seen]
        seen.update(own)
        lines += [f"| {one.name} | {one.licence} |" for one in own] + [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _licence_of(about: metadata.PackageMetadata) -> str:
    def texts_of(field: str) -> list[str]:
        return [str(one).strip() for one in about.get_all(field) or ()]

    if expression := texts_of("License-Expression"):
        return expression[0]
    text = "".join(texts_of("License")[:1])
    known = _BY_TEXT.get(text, text)
    if known in ALLOWED:
        return known
    classifiers = [one.rpartition(" :: ")[2] for one in texts_of("Classifier") if one.startswith("License")]
    by_classifier = [_BY_CLASSIFIER[one] for one in classifiers if one in _BY_CLASSIFIER]
    return by_classifier[0] if by_classifier else (text.splitlines() or ["unknown"])[0]


def main() -> None:
    """Write the page."""
    DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
