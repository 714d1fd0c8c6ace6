"""Parses YAML, remembers the line of each part, and reports problems without showing values.

PyYAML's own messages quote lines of the file, which may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from bridge.config.base import Location
from bridge.config.file.problems import is_sensitive
from bridge.errors import ConfigError

_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_EMPTY: Final = "is empty; `scylla-cdc-bridge example` prints a configuration to begin with"


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        node: the root node, whose descendants have the lines.
        value: what the file holds, as Python values.
        repeated_keys: keys that a mapping has twice: location, line, line of the first.
    """

    node: yaml.Node
    value: object
    repeated_keys: list[tuple[Location, int, int]]

    def problems(self) -> Iterator[tuple[Location, str, int | None]]:
        """Yield problems of a file that is valid YAML: location, message, line."""
        for location, line, first in self.repeated_keys:
            shown = location[:-1] if is_sensitive(location[:-1]) else location
            yield shown, f"given twice, first in line {first}", line
        if not isinstance(self.value, dict):
            kind = "a list" if isinstance(self.value, list) else "a single value"
            yield (), f"must be a mapping with sections such as scylla, kafka and tables, not {kind}", 1

    def line(self, location: Location) -> int | None:
        """Return the line of a location; if the file does not have it, that of the nearest part around it."""
        node = self.node
        line: int | None = None
        for part in location:
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
    """Parse a YAML text.

    Args:
        text: the file's contents.
        name: the file's name, for messages.

    Raises:
        ConfigError: the text is empty or not YAML; the message has the line, but none of the text.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError([f"{name}: {_EMPTY}"])
        repeated_keys = list(_find_repeated_keys(node, (), set()))
        unusable = next(_find_unusable(node, set(), ()), None)
        if unusable is not None:
            raise ConfigError([with_line(name, *unusable)])
        return Document(node, loader.construct_document(node), repeated_keys)
    except yaml.MarkedYAMLError as error:
        # str(error) would quote lines of the file.
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError([with_line(name, line, f"not YAML: {_syntax_text(error)}")]) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError([with_line(name, line, f"not YAML: {error.reason}")]) from None
    except RecursionError:
        raise ConfigError([f"{name}: not YAML that can be read: nested too deeply"]) from None


def with_line(name: str, line: int | None, message: str) -> str:
    """Return a message in the form that editors understand: `bridge.yaml:12: ...`."""
    return f"{name}: {message}" if line is None else f"{name}:{line}: {message}"


def _syntax_text(error: yaml.MarkedYAMLError) -> str:
    text = ", ".join(part for part in (error.context, error.problem) if part)
    # An alias or a tag may be a password that begins with `*` or `!`, so only single characters and <tokens> stay.
    text = re.sub(r" ?'(?!<)[^']{2,}'", "", text)
    if re.search(r" ?'\\t'", f"{error.problem}"):
        text += " (a tab; YAML allows only blanks for indentation)"
    return text.replace("could not determine a constructor for the tag", "unknown tag")


def _find_repeated_keys(node: yaml.Node, location: Location, seen: set[int]) -> Iterator[tuple[Location, int, int]]:
    """Yield keys that a mapping has twice, of which PyYAML would silently take the last."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            line = key.start_mark.line + 1
            if name in lines and name != "<<":
                yield (*location, name), line, lines[name]
            lines.setdefault(name, line)
            yield from _find_repeated_keys(value, (*location, name), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _find_repeated_keys(item, (*location, number), seen)


def _find_unusable(node: yaml.Node, seen: set[int], above: tuple[int, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and message of valid YAML that can't be used: the date 2026-02-31, keys that are not text, cycles."""
    line = node.start_mark.line + 1
    if id(node) in above:
        yield line, "an alias (`*...`) is inside the node that it refers to"
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and node.tag != _MERGE:
        try:
            yaml.SafeLoader("").construct_object(node)
        except ValueError:
            yield line, "looks like a date or a number, but is not a valid one; put it in quotes"
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        if isinstance(child, tuple):
            key = child[0]
            if not isinstance(key, yaml.ScalarNode):
                yield key.start_mark.line + 1, "a key must be text; was a template (`{{ }}`) left unfilled?"
            elif key.tag not in (_TEXT, _MERGE):
                yield key.start_mark.line + 1, "a key must be text; put it in quotes"
        for part in child if isinstance(child, tuple) else (child,):
            yield from _find_unusable(part, seen, (*above, id(node)))
