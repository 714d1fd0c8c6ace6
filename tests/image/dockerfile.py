"""Parses `deploy/Dockerfile`, so that its steps can be run without an engine.

It supports only the instructions that this file uses. It refuses all others, so that no step is skipped unnoticed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCKERFILE: Final = Path(__file__).parents[2] / "deploy" / "Dockerfile"
_KNOWN: Final = frozenset({"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"})


class UnknownStepError(Exception):
    """The Dockerfile has an unsupported step. The message quotes it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: its name in capitals, and the rest on one line."""

    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY into a stage.

    Attributes:
        sources: paths in the context, or in the file system of another stage.
        target: destination path.
        stage: name of the other stage; empty for the context.
    """

    sources: tuple[str, ...]
    target: str
    stage: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. The last one, the image, has an empty name."""

    name: str
    steps: tuple[Step, ...]

    def copies(self) -> tuple[Copy, ...]:
        """The stage's COPY steps."""
        found = []
        for words in (shlex.split(step.rest) for step in self._all("COPY")):
            flags = [word for word in words if word.startswith("--")]
            if [flag for flag in flags if not flag.startswith("--from=")]:
                raise UnknownStepError(f"COPY {' '.join(words)}")
            *sources, target = [word for word in words if not word.startswith("--")]
            found.append(Copy(tuple(sources), target, flags[0].removeprefix("--from=") if flags else ""))
        return tuple(found)

    def commands(self) -> tuple[str, ...]:
        """The command lines of the stage's RUN steps."""
        return tuple(step.rest for step in self._all("RUN"))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The stage's variables together with those of the base, to which they may refer as ${NAME}."""
        found = dict(base)
        for step in self._all("ENV"):
            for word in shlex.split(step.rest):
                name, _, value = word.partition("=")
                found[name] = re.sub(r"\$\{(\w+)\}", lambda named: found[named[1]], value)
        return found

    def last(self, word: str) -> str:
        """Return the arguments of the last instruction with this name.

        Raises:
            UnknownStepError: there is no such instruction.
        """
        steps = self._all(word)
        if not steps:
            raise UnknownStepError(f"no {word}")
        return steps[-1].rest

    def arguments(self, word: str) -> tuple[str, ...]:
        """Return the arguments of the last instruction with this name, in the exec form."""
        return tuple(json.loads(self.last(word)))

    def _all(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]


def stages(text: str | None = None) -> tuple[Stage, ...]:
    """Parse the stages, in order.

    Raises:
        UnknownStepError: an instruction is not supported.
    """
    found: list[tuple[str, list[Step]]] = []
    for step in _steps(DOCKERFILE.read_text(encoding="utf-8") if text is None else text):
        if step.word not in _KNOWN:
            raise UnknownStepError(f"{step.word} {step.rest}")
        if step.word == "FROM":
            _, _, name = step.rest.partition(" AS ")
            found.append((name, []))
        elif found:
            found[-1][1].append(step)
    return tuple(Stage(name, tuple(steps)) for name, steps in found)


def _steps(text: str) -> list[Step]:
    # Comments may stand between the lines of one instruction.
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Step(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]
