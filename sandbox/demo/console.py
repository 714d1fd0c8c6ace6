"""The demo's output: lines, and on a terminal a progress bar below them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_LINE_EVERY_S: Final = 5.0


class Step:
    """Shows the progress of a long step: a bar on a terminal, elsewhere a line every 5 s."""

    def __init__(self, console: Console, title: str, progress: Progress | None) -> None:
        """Start the step. Callers use `ProgressConsole.step`."""
        self._console = console
        self._title = title
        self._progress = progress
        self._task = None if progress is None else progress.add_task(title, total=None)
        self._next_s = time.monotonic() + _LINE_EVERY_S

    def update(self, text: str, done: float | None = None) -> None:
        """Show the step's progress.

        Args:
            text: the progress as text.
            done: completed share, from 0 to 1; None if unknown.
        """
        if self._progress is not None and self._task is not None:
            total = None if done is None else 1.0
            self._progress.update(self._task, description=f"{self._title}: {text}", total=total, completed=done or 0)
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LINE_EVERY_S
            self._console.print(f"  {text}")


class ProgressConsole:
    """Prints plain lines, without interpreting markup, and shows progress."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Print to `file`, or to standard output."""
        self._console = Console(file=file, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Announce a long step and show its progress during the `with` block."""
        self.say(title)
        if not self._console.is_terminal:
            yield Step(self._console, title, None)
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            yield Step(self._console, title, progress)
