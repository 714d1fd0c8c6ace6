"""Sampled Python stacks: read from what py-spy writes, put into stages, drawn as a flame graph. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, NamedTuple
from zlib import crc32

_PROCESS: Final = re.compile(r'^process (\d+):"')
_THREAD: Final = re.compile(r"^thread \(\w+\)(?:: (?P<name>.*))?$")
_FRAME: Final = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
_ABOVE_PACKAGES: Final = re.compile(r"^.*(?:site-packages|lib/python3\.\d+)/")
_WIDTH: Final = 1200
_LEVEL: Final = 17
_MARGIN: Final = 10
_LETTER: Final = 6.6
_LEAST_PX: Final = 1.5
_COLOURS: Final = (
    ("bridge/", "#e8743b"),
    ("schemas/", "#f2b134"),
    ("<", "#f7d774"),
    ("spark/", "#d64545"),
    ("cassandra/", "#4a90d9"),
    ("confluent_kafka", "#53a567"),
    ("pyspark/", "#9a8fc7"),
)
_OTHER_COLOUR: Final = "#b9c0c8"


_WAITING: Final = tuple(
    (frame,)
    for frame in (
        "wait (threading.py)",
        "Condition.wait (threading.py)",
        "_worker (concurrent/futures/thread.py)",
        "_PollLikeSelector.select (selectors.py)",
        "SocketIO.readinto (socket.py)",
        # A worker waits for its next task, and their daemon for a word from the JVM.
        "read_int (pyspark/serializers.py)",
        "manager (pyspark/daemon.py)",
    )
)


class Stack(NamedTuple):
    """What one process was seen to do, so many times: frames from the outermost in, as `function (file)`."""

    pid: int
    thread: str
    frames: tuple[str, ...]
    samples: int

    @property
    def waits(self) -> bool:
        """Whether it only waits for another thread or process; py-spy takes some of these for work."""
        return self.frames[-1:] in _WAITING


def parse(text: str, root: str) -> list[Stack]:
    """The stacks in py-spy's `raw` format, with subprocesses and threads; files without what lies above packages.

    Args:
        text: one stack a line, frames between semicolons, and a count.
        root: folder of the bridge's own packages.

    Raises:
        ValueError: a line is not of that form.
    """
    return [_stack(line, root) for line in text.splitlines() if line.strip()]


def _stack(line: str, root: str) -> Stack:
    words, _, count = line.rpartition(" ")
    pid, thread, frames = 0, "", []
    for word in words.split(";"):
        process, named = _PROCESS.match(word), _THREAD.match(word)
        if process is not None:
            # Its parents stand before it.
            pid = int(process[1])
        elif named is not None:
            thread = named["name"] or ""
        else:
            frames.append(_frame(word, root))
    if not pid:
        raise ValueError(f"no process in {line!r}; py-spy needs --subprocesses")
    return Stack(pid, thread, tuple(frames), int(count))


def _frame(word: str, root: str) -> str:
    match = _FRAME.match(word)
    if match is None:
        return word
    file = _ABOVE_PACKAGES.sub("", match["file"].removeprefix(root).lstrip("/"))
    return f"{match['function']} ({file})"


def by_stage(
    stacks: Iterable[Stack], stages: Sequence[tuple[str, Callable[[str], bool]]], rest: str
) -> dict[str, float]:
    """Each stage's share of the samples; a stack is of the stage that its innermost frame that fits any names.

    Args:
        stacks: what was seen.
        stages: names, and which frames are theirs.
        rest: name of all else.
    """
    found: dict[str, int] = {}
    for stack in stacks:
        name = next(
            (stage for frame in reversed(stack.frames) for stage, fits in stages if fits(frame)),
            rest,
        )
        found[name] = found.get(name, 0) + stack.samples
    total = sum(found.values())
    return {name: count / total for name, count in sorted(found.items(), key=lambda one: -one[1])}


@dataclass(slots=True)
class _Node:
    samples: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def add(self, frames: Sequence[str], samples: int) -> None:
        node = self
        node.samples += samples
        for frame in frames:
            node = node.children.setdefault(frame, _Node())
            node.samples += samples


def flame_graph(stacks: Iterable[tuple[Sequence[str], int]], title: str) -> str:
    """An SVG in which a frame is as wide as the samples in it, callers below; what is too narrow to see is left out.

    Args:
        stacks: frames from the outermost in, and how often they were seen.
        title: what it shows.
    """
    root = _Node()
    for frames, samples in stacks:
        root.add(frames, samples)
    boxes: list[tuple[int, float, float, str, int]] = []
    _lay(root, 0, 0.0, _WIDTH / max(root.samples, 1), boxes)
    levels = 1 + max((level for level, *_ in boxes), default=0)
    height = (levels + 2) * _LEVEL + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _MARGIN}" height="{height}" '
        'font-family="monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 12}" font-size="14">{escape(title)}</text>',
    ]
    for level, x, width, name, samples in boxes:
        y = height - _MARGIN - (level + 1) * _LEVEL
        share = 100 * samples / root.samples
        shown = name if len(name) * _LETTER < width else name[: max(0, int(width / _LETTER) - 2)] + ".."
        text = f'<text x="{x + _MARGIN + 2:.1f}" y="{y + 12}">{escape(shown)}</text>' if width > 4 * _LETTER else ""
        lines.append(
            f'<g><title>{escape(name)}: {share:.1f} %</title><rect x="{x + _MARGIN:.1f}" y="{y}" '
            f'width="{width:.1f}" height="{_LEVEL - 1}" fill="{_colour(name)}"/>{text}</g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _lay(node: _Node, level: int, x: float, px: float, boxes: list[tuple[int, float, float, str, int]]) -> None:
    for name, child in sorted(node.children.items()):
        width = child.samples * px
        if width >= _LEAST_PX:
            boxes.append((level, x, width, name, child.samples))
            _lay(child, level + 1, x, px, boxes)
        x += width


def _colour(name: str) -> str:
    file = name.rpartition("(")[2]
    base = next((colour for start, colour in _COLOURS if file.startswith(start)), _OTHER_COLOUR)
    # Neighbours must be told apart: a shade by the name, the same each time.
    shade = 0.85 + 0.15 * (crc32(name.encode()) % 100) / 100
    return "#" + "".join(f"{round(int(base[at : at + 2], 16) * shade):02x}" for at in (1, 3, 5))


def merged(stacks: Iterable[Stack], roles: Mapping[int, str]) -> list[tuple[tuple[str, ...], int]]:
    """The same for `flame_graph`: processes of one role together; those without a role are left out."""
    return [
        ((roles[stack.pid], stack.thread or "thread", *stack.frames), stack.samples)
        for stack in stacks
        if roles.get(stack.pid)
    ]
