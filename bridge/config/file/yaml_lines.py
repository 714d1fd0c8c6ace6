"""A YAML document that knows the line of each of its parts, and says what is wrong without showing what it holds.

PyYAML's own messages quote the lines at fault; in a configuration those may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from bridge.config.base import Place
from bridge.config.file.problems import is_sensitive
from bridge.errors import ConfigError

_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_EMPTY: Final = "is empty; `scylla-cdc-bridge example` prints a configuration to begin with"


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: its value, and the nodes that know the lines."""

    node: yaml.Node
    value: object
    doubled: list[tuple[Place, int, int]]

    def problems(self) -> Iterator[tuple[Place, str, int | None]]:
        """What YAML itself has no objection to: place, words, line."""
        for place, line, first in self.doubled:
            where = place[:-1] if is_sensitive(place[:-1]) else place
            yield where, f"given twice, first in line {first}", line
        if not isinstance(self.value, dict):
            kind = "a list" if isinstance(self.value, list) else "a single value"
            yield (), f"must be a mapping with sections such as scylla, kafka and tables, not {kind}", 1

    def line(self, place: Place) -> int | None:
        """The line of a place, or of the nearest one around it that the file has."""
        node = self.node
        line: int | None = None
        for part in place:
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line


def parse(text: str, name: str) -> Document:
    """The document in a YAML text.

    Args:
        text: the file's contents.
        name: what messages call the file.

    Raises:
        ConfigError: it is empty or no YAML; the message has the line, and nothing of its contents.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError([f"{name}: {_EMPTY}"])
        doubled = list(_doubled(node, (), set()))
        bad = next(_unreadable(node, set(), ()), None)
        if bad is not None:
            raise ConfigError([with_line(name, *bad)])
        return Document(node, loader.construct_document(node), doubled)
    except yaml.MarkedYAMLError as error:
        # Not str(error): it quotes the lines, with whatever they hold.
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError([with_line(name, line, f"not YAML: {_syntax_words(error)}")]) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError([with_line(name, line, f"not YAML: {error.reason}")]) from None
    except RecursionError:
        raise ConfigError([f"{name}: not YAML that can be read: nested too deeply"]) from None


def with_line(name: str, line: int | None, words: str) -> str:
    """A message as editors understand it: `bridge.yaml:12: ...`."""
    return f"{name}: {words}" if line is None else f"{name}:{line}: {words}"


def _syntax_words(error: yaml.MarkedYAMLError) -> str:
    words = ", ".join(part for part in (error.context, error.problem) if part)
    # An alias or a tag may be a password that begins with `*` or `!`: only single characters and <tokens> are shown.
    words = re.sub(r" ?'(?!<)[^']{2,}'", "", words)
    if re.search(r" ?'\\t'", f"{error.problem}"):
        words += " (a tab; YAML takes blanks alone for indentation)"
    return words.replace("could not determine a constructor for the tag", "unknown tag")


def _doubled(node: yaml.Node, place: Place, seen: set[int]) -> Iterator[tuple[Place, int, int]]:
    """Keys that a mapping holds twice (YAML would silently take the last): place, line, line of the first."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            line = key.start_mark.line + 1
            if name in lines and name != "<<":
                yield (*place, name), line, lines[name]
            lines.setdefault(name, line)
            yield from _doubled(value, (*place, name), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _doubled(item, (*place, number), seen)


def _unreadable(node: yaml.Node, seen: set[int], above: tuple[int, ...]) -> Iterator[tuple[int, str]]:
    """Lines, with words, of what is YAML but can't be meant: the date 2026-02-31, keys that are no text, circles."""
    line = node.start_mark.line + 1
    if id(node) in above:
        yield line, "an alias (`*...`) stands inside of what it names"
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and node.tag != _MERGE:
        try:
            yaml.SafeLoader("").construct_object(node)
        except ValueError:
            yield line, "looks like a date or a number but is none; put it in quotes"
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        if isinstance(child, tuple):
            key = child[0]
            if not isinstance(key, yaml.ScalarNode):
                yield key.start_mark.line + 1, "a key must be text; was a template (`{{ }}`) left unfilled?"
            elif key.tag not in (_TEXT, _MERGE):
                yield key.start_mark.line + 1, "a key must be text; put it in quotes"
        for one in child if isinstance(child, tuple) else (child,):
            yield from _unreadable(one, seen, (*above, id(node)))
