"""The layout that a newcomer relies on: where modules lie, and how long they are."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 50
MOST_MODULES = 12
PATCHES = re.compile(r"monkeypatch\.setattr|\bmock\.patch|\bpatch\.object|\bmock import\b")
MODULES_AT_THE_TOP = {"bridge": 2, "schemas": 5, "spark": 3}


def python_files() -> list[PurePosixPath]:
    """Paths of all Python files that git tracks, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [PurePosixPath(line) for line in listed.splitlines() if (ROOT / line).exists()]


@pytest.mark.parametrize(("package", "most"), MODULES_AT_THE_TOP.items())
def test_no_module_lies_loose(package: str, most: int) -> None:
    """A package of the product has next to no modules beside its subpackages."""
    loose = [str(file) for file in python_files() if file.parent == PurePosixPath(package)]
    assert 0 < len(loose) <= most, loose


def test_packages_are_small() -> None:
    """A package has at most twelve modules. Folders of tests are not counted, because nothing imports them."""
    modules = Counter(
        str(file.parent) for file in python_files() if file.name != "__init__.py" and file.parts[0] != "tests"
    )
    assert {package: count for package, count in modules.items() if count > MOST_MODULES} == {}


def test_modules_are_short() -> None:
    """A module has at most 400 lines."""
    lines = {str(file): len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in python_files()}
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short() -> None:
    """A function has at most 50 lines."""
    long: list[str] = []
    for file in python_files():
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                long.append(f"{file}:{node.lineno} {node.name}: {lines} lines")
    assert long == []


@pytest.mark.parametrize(("document", "most"), [("README.md", 160), ("ARCHITECTURE.md", 200)])
def test_documents_are_short(document: str, most: int) -> None:
    """README and ARCHITECTURE keep their limits of lines."""
    assert len((ROOT / document).read_text(encoding="utf-8").splitlines()) <= most


def test_tests_of_spark_patch_nothing_by_path() -> None:
    """Tests of the Spark layer pass fakes in; they do not replace names in modules."""
    patched = [
        f"{file}:{number}"
        for file in python_files()
        if file.parts[:3] == ("tests", "unit", "spark")
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1)
        if PATCHES.search(line)
    ]
    assert patched == []
