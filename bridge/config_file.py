"""The configuration from a YAML file, or from flat options: read, checked whole, every problem named with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from bridge.config import BridgeConfig, ValidationError, validate
from bridge.config_docs import sections, settings
from bridge.config_problems import Place, Problem, is_sensitive, problems_of, shown
from bridge.errors import ConfigError

_EMPTY: Final = "is empty; `scylla-cdc-bridge example` prints a configuration to begin with"
_COMMA_OUTSIDE_QUOTES: Final = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


def load(path: str | Path) -> BridgeConfig:
    """The configuration in a YAML file.

    Raises:
        ConfigError: with every problem of the file, each as `bridge.yaml:12: reading.confidence: unknown key; ...`.
    """
    name = str(path)
    text = _read(Path(path), name)
    document = _parse(text, name)
    problems = [(line, _with_place(place, words)) for place, words, line in document.problems()]
    if isinstance(document.value, dict):
        try:
            config = validate(_with_empty_sections(document.value))
        except ValidationError as error:
            problems += [
                (document.line(found.place), _with_place(found.place, found.text)) for found in problems_of(error)
            ]
        else:
            if not problems:
                return config
    # The sort is stable: what has the same line keeps the order of the model.
    problems.sort(key=lambda found: found[0] or 0)
    raise ConfigError([_with_line(name, line, words) for line, words in problems])


def from_options(options: Mapping[str, str]) -> BridgeConfig:
    """The configuration in flat options, as a Spark source gets them: `reading.confidence_ms` -> "0".

    `tables` holds names separated by commas; what follows `kafka.properties.` or `spark.properties.` is one name, dots
    and all; a secret is `scylla.password.env` or `scylla.password.file`.

    Raises:
        ConfigError: with every problem, each naming its option.
    """
    nested: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in sorted(options.items()):
        place = _place_of_option(name)
        if place is None:
            problems.append(f"option {name}: unknown; {_option_hint(name)}")
            continue
        *parents, last = place
        at = nested
        for part in parents:
            inner = at.setdefault(part, {})
            if not isinstance(inner, dict):  # the secret itself: said below, with what to do
                break
            at = inner
        else:
            at[last] = value
    if "tables" in nested:
        nested["tables"] = [part.strip() for part in _COMMA_OUTSIDE_QUOTES.split(nested["tables"]) if part.strip()]
    try:
        config = validate(nested)
    except ValidationError as error:
        problems += [
            f"option {shown(problem.place)}: {_option_words(problem)}" if problem.place else f"options: {problem.text}"
            for problem in problems_of(error)
        ]
    else:
        if not problems:
            return config
    raise ConfigError(problems)


@cache
def _option_names() -> Mapping[str, tuple[str, ...]]:
    """The options that can be given, and their place."""
    names: dict[str, tuple[str, ...]] = {"tables": ("tables",)}
    for path, setting in settings().items():
        if "[]" not in path and setting.kind != "mapping":
            place = tuple(path.split("."))
            # The bare name of a secret is known too, so that it is refused with what to do instead.
            names[path] = place
            if setting.secret:
                names |= {f"{path}.env": (*place, "env"), f"{path}.file": (*place, "file")}
    return names


def _place_of_option(name: str) -> tuple[str, ...] | None:
    for path, setting in settings().items():
        if setting.kind == "mapping" and name.lower().startswith(f"{path}."):
            return (*path.split("."), name[len(path) + 1 :])
    return _option_names().get(name.lower())


def _option_hint(name: str) -> str:
    by_end = [known for known in _option_names() if known.endswith(f".{name.lower()}")]
    near = by_end or get_close_matches(name.lower(), _option_names(), n=1)
    return f"did you mean {' or '.join(near)}?" if near else "the options are named as in the configuration file"


def _option_words(problem: Problem) -> str:
    setting = settings().get(shown(problem.place))
    if setting is not None and setting.secret:
        return f"a secret can't be an option: give {setting.path}.env or {setting.path}.file"
    return problem.text


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{name}: can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name}: is not UTF-8 text (at byte {error.start})"]) from error


def _parse(text: str, name: str) -> _Document:
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError([f"{name}: {_EMPTY}"])
        doubled = list(_doubled(node, (), set()))
        bad = next(_unreadable(node, set()), None)
        if bad is not None:
            raise ConfigError([_with_line(name, bad, "looks like a date or a number but is none; put it in quotes")])
        return _Document(node, loader.construct_document(node), doubled)
    except yaml.MarkedYAMLError as error:
        # Not str(error): it quotes the lines, with whatever they hold.
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError([_with_line(name, line, f"not YAML: {_syntax_words(error)}")]) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError([_with_line(name, line, f"not YAML: {error.reason}")]) from None
    except RecursionError:
        raise ConfigError([f"{name}: not YAML that can be read: nested too deeply"]) from None


def _syntax_words(error: yaml.MarkedYAMLError) -> str:
    words = ", ".join(part for part in (error.context, error.problem) if part)
    # An alias or a tag may be a password that begins with `*` or `!`: only single characters and <tokens> are shown.
    words = re.sub(r" ?'(?!<)[^']{2,}'", "", words)
    return words.replace("could not determine a constructor for the tag", "unknown tag")


@dataclass(frozen=True, slots=True)
class _Document:
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


def _unreadable(node: yaml.Node, seen: set[int]) -> Iterator[int]:
    """Lines of single values that YAML takes for what they can't be, such as the date 2026-02-31."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_object(node)
        except ValueError:
            yield node.start_mark.line + 1
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for one in child if isinstance(child, tuple) else (child,):
            yield from _unreadable(one, seen)


def _with_empty_sections(value: dict[Any, Any]) -> dict[Any, Any]:
    """A section whose settings are all commented out is there, but null: it means the defaults."""
    return {key: {} if found is None and key in sections() else found for key, found in value.items()}


def _with_line(name: str, line: int | None, words: str) -> str:
    return f"{name}: {words}" if line is None else f"{name}:{line}: {words}"


def _with_place(place: Place, words: str) -> str:
    return f"{shown(place)}: {words}" if place else words
