"""The two wheels: which files they hold, and what the product's wheel can do without the sandbox's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PRODUCT = ("bridge", "schemas", "spark")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", *PRODUCT, "sandbox")
OUR_DISTRIBUTIONS = ("scylla_cdc_bridge", "__editable__")


@dataclass(frozen=True)
class Wheels:
    """The built wheels of both distributions."""

    product: Path
    sandbox: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment with some of our wheels, and with the dependencies of the environment of the tests."""

    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line outside of the repository."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self.folder / "bin" / "scylla-cdc-bridge"), *words]
        return subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False, timeout=120
        )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Both wheels, built from a copy: building writes into the source."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(
                REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy2(REPOSITORY / name, source / name)
    for of in (source, source / "sandbox"):
        run_pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(of))
    (product,) = folder.glob("scylla_cdc_bridge-*.whl")
    (sandbox,) = folder.glob("scylla_cdc_bridge_sandbox-*.whl")
    return Wheels(product, sandbox)


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to what is installed here, but for our own distributions: their commands must not be found."""
    folder = tmp_path_factory.mktemp("dependencies")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith(OUR_DISTRIBUTIONS):
            (folder / one.name).symlink_to(one)
    return folder


@pytest.fixture(scope="module")
def product_alone(wheels: Wheels, dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the product's wheel."""
    return make_environment(tmp_path_factory.mktemp("product"), dependencies, wheels.product)


@pytest.fixture(scope="module")
def product_and_sandbox(wheels: Wheels, dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both wheels."""
    return make_environment(tmp_path_factory.mktemp("both"), dependencies, wheels.product, wheels.sandbox)


def make_environment(folder: Path, dependencies: Path, *wheels: Path) -> Environment:
    """A virtual environment that downloads nothing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    python = str(folder / "bin" / "python")
    run_pip("--python", python, "install", "--no-index", "--no-deps", *map(str, wheels))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return Environment(folder)


def run_pip(*words: str) -> None:
    """Run the pip of the environment of the tests."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr


def files_of(wheel: Path) -> set[str]:
    """The files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files_below(*folders: str) -> set[str]:
    """The files of some folders of the repository that belong into a wheel."""
    return {
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }


def test_product_wheel_holds_the_product_and_nothing_else(wheels: Wheels) -> None:
    """It holds all modules and data files of its packages, and no file of the sandbox."""
    assert files_of(wheels.product) == files_below(*PRODUCT)


def test_sandbox_wheel_holds_the_sandbox_and_nothing_else(wheels: Wheels) -> None:
    """Its list of packages is complete, and so are its jar list, Java sources, recordings and style sheet."""
    assert files_of(wheels.sandbox) == files_below("sandbox") - {"sandbox/pyproject.toml"}


def test_product_alone_validates_its_example(product_alone: Environment) -> None:
    """The product needs no file of the sandbox, of the tests or of the repository."""
    example = product_alone.run("example")
    assert example.returncode == 0, example.stderr
    file = product_alone.folder / "bridge.yaml"
    file.write_text(example.stdout, encoding="utf-8")
    validated = product_alone.run("validate", "-c", str(file))
    assert validated.returncode == 0, validated.stderr
    assert f"{file}: no problem found" in validated.stdout


@pytest.mark.parametrize("command", ["demo", "local"])
def test_product_alone_names_the_distribution_of_a_missing_command(product_alone: Environment, command: str) -> None:
    """The command without the sandbox names the package to install."""
    refused = product_alone.run(command, "--help")
    assert refused.returncode == 2
    assert refused.stderr == (
        f"scylla-cdc-bridge: error: `{command}` is part of another distribution. "
        "Install it: pip install scylla-cdc-bridge-sandbox\n"
    )
    assert "scylla-cdc-bridge-sandbox" in product_alone.run("--help").stdout


@pytest.mark.parametrize(("command", "text"), [("demo", "report"), ("local", "up")])
def test_sandbox_adds_its_commands(product_and_sandbox: Environment, command: str, text: str) -> None:
    """Both commands start outside of the repository."""
    helped = product_and_sandbox.run(command, "--help")
    assert helped.returncode == 0, helped.stderr
    assert text in helped.stdout
