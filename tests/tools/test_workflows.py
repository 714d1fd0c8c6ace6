"""The workflows of `.github`: valid, with pinned actions and few permissions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.go_tools import ACTIONLINT

FOLDER = Path(__file__).parents[2] / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").iterdir())
ACTIONS = sorted(FOLDER.glob("actions/*/action.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def check(*words: str | Path) -> str:
    """Return what actionlint finds; external linters, which not every machine has, are off."""
    ended = subprocess.run(
        [ACTIONLINT.get(), "-shellcheck=", "-pyflakes=", *words],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout


def test_actionlint_finds_nothing() -> None:
    """The linter accepts the workflows."""
    assert check(*WORKFLOWS) == ""


def test_actionlint_finds_a_mistake(tmp_path: Path) -> None:
    """The linter reports a job that needs a job that does not exist."""
    (text,) = (one.read_text(encoding="utf-8") for one in WORKFLOWS if one.name == "release.yml")
    path = tmp_path / "release.yml"
    path.write_text(text.replace("needs: build", "needs: biuld"), encoding="utf-8")
    assert "biuld" in check(path)


def test_both_workflows_are_here() -> None:
    """CI and release, and the set-up that they share."""
    assert [one.name for one in WORKFLOWS] == ["ci.yml", "release.yml"]
    assert [one.parent.name for one in ACTIONS] == ["setup"]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.stem)
def test_actions_are_pinned(path: Path) -> None:
    """An action of another repository is pinned to a commit, and a comment names its version."""
    used = re.findall(r"\buses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    foreign = [one for one in used if not one.startswith("./")]
    assert foreign
    assert [one for one in foreign if not PINNED.fullmatch(one)] == []


def test_one_version_of_each_action() -> None:
    """All files pin an action to the same commit."""
    texts = [path.read_text(encoding="utf-8") for path in [*WORKFLOWS, *ACTIONS]]
    pins = {pin for text in texts for pin in re.findall(r"\buses: ([^.\s]\S*@\S+)", text)}
    names = [pin.partition("@")[0] for pin in pins]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_permissions(path: Path) -> None:
    """A workflow can read the repository; only the job that publishes the release can write."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more == ({"publish": {"contents": "write", "packages": "write"}} if path.stem == "release" else {})


def _jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        yield from ((f"{path.stem}: {name}", job) for name, job in jobs.items() if "uses" not in job)


@pytest.mark.parametrize(("name", "job"), [*_jobs()])
def test_jobs_are_bounded(name: str, job: dict[str, Any]) -> None:
    """Every job has a time limit and a fixed machine, and no checkout leaves its token behind."""
    assert 0 < job["timeout-minutes"] <= 60, name
    assert job["runs-on"] == "ubuntu-24.04"
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False]
