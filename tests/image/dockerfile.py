"""What `deploy/Dockerfile` says, read so that it can be followed without an engine.

Only what that file uses is known; anything else is refused, so that no step is left out in silence.
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
    """The Dockerfile has a step that can't be followed here; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: its word in capitals, and the rest on one line."""

    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files that become part of a stage.

    Attributes:
        sources: paths in the context, or in the file system of another stage.
        target: where they go.
        stage: the other stage's name; empty, the context.
    """

    sources: tuple[str, ...]
    target: str
    stage: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; its name is empty for the last, which is the image."""

    name: str
    steps: tuple[Step, ...]

    def copies(self) -> tuple[Copy, ...]:
        """What is copied into it."""
        found = []
        for words in (shlex.split(step.rest) for step in self._all("COPY")):
            flags = [word for word in words if word.startswith("--")]
            if [flag for flag in flags if not flag.startswith("--from=")]:
                raise UnknownStepError(f"COPY {' '.join(words)}")
            *sources, target = [word for word in words if not word.startswith("--")]
            found.append(Copy(tuple(sources), target, flags[0].removeprefix("--from=") if flags else ""))
        return tuple(found)

    def commands(self) -> tuple[str, ...]:
        """What is run, a shell's command line each."""
        return tuple(step.rest for step in self._all("RUN"))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The variables, over those of the base, which they may name as ${NAME}."""
        found = dict(base)
        for step in self._all("ENV"):
            for word in shlex.split(step.rest):
                name, _, value = word.partition("=")
                found[name] = re.sub(r"\$\{(\w+)\}", lambda named: found[named[1]], value)
        return found

    def last(self, word: str) -> str:
        """The rest of the last instruction of this word.

        Raises:
            UnknownStepError: there is none.
        """
        steps = self._all(word)
        if not steps:
            raise UnknownStepError(f"no {word}")
        return steps[-1].rest

    def arguments(self, word: str) -> tuple[str, ...]:
        """The same in its exec form."""
        return tuple(json.loads(self.last(word)))

    def _all(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]


def stages(text: str | None = None) -> tuple[Stage, ...]:
    """The stages in their order.

    Raises:
        UnknownStepError: an instruction is not known here.
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
