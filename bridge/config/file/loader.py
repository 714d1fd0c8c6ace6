"""The configuration from a YAML file, or from flat options: read, checked whole, every problem named with its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from bridge.config.base import Place
from bridge.config.document import BridgeConfig, validate
from bridge.config.file.problems import Problem, problems_of, shown
from bridge.config.file.yaml_lines import parse, with_line
from bridge.config.reference.catalog import BOOLEAN, Catalog, catalog_of
from bridge.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

_BOOLEANS: Final = {"true": True, "false": False}
_COMMA_OUTSIDE_QUOTES: Final = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


def load(path: str | Path) -> BridgeConfig:
    """The configuration in a YAML file.

    Raises:
        ConfigError: with every problem of the file, each as `bridge.yaml:12: reading.confidence: unknown key; ...`.
    """
    name = str(path)
    if not name or "\0" in name:
        raise ConfigError(["the configuration file's name is empty, or none that a file can have"])
    text = _read(Path(path), name)
    document = parse(text, name)
    problems = [(line, _with_place(place, words)) for place, words, line in document.problems()]
    if isinstance(document.value, dict):
        try:
            config = validate(_with_empty_sections(document.value))
        except ValidationError as error:
            problems += [
                (document.line(found.place), _with_place(found.place, found.text))
                for found in problems_of(error, catalog_of())
            ]
        else:
            if not problems:
                return config
    # The sort is stable: what has the same line keeps the order of the model.
    problems.sort(key=lambda found: found[0] or 0)
    raise ConfigError([with_line(name, line, words) for line, words in problems])


def from_options(options: Mapping[str, str], model: type[M]) -> M:
    """A configuration in flat options, as a Spark source gets them: `reading.confidence_ms` -> "0".

    `table` is its name, and `tables` holds names separated by commas; what follows `kafka.properties.` or
    `spark.properties.` is one name, dots and all; a secret is `scylla.password.env` or `scylla.password.file`.

    Args:
        options: values by name; names are not case-sensitive.
        model: what they make up, such as `SourceConfig`.

    Raises:
        ConfigError: with every problem, each naming its option.
    """
    catalog = catalog_of(model)
    names = _option_names(catalog, model)
    nested: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in sorted(options.items()):
        place = _free_option(name, catalog) or names.get(name.lower())
        if place is None:
            problems.append(f"option {name}: unknown; {_option_hint(name, names)}")
        else:
            setting = catalog.settings.get(shown(place))
            # Options have no booleans but in text, which a strict setting does not take.
            is_boolean = setting is not None and setting.expected == BOOLEAN
            _put(nested, place, _BOOLEANS.get(value.lower(), value) if is_boolean else value)
    if "tables" in nested:
        nested["tables"] = [part.strip() for part in _COMMA_OUTSIDE_QUOTES.split(nested["tables"]) if part.strip()]
    try:
        config = model.model_validate(nested)
    except ValidationError as error:
        problems += [
            f"option {shown(found.place)}: {_option_words(found, catalog)}" if found.place else f"options: {found.text}"
            for found in problems_of(error, catalog)
        ]
    else:
        if not problems:
            return config
    raise ConfigError(problems)


def _option_names(catalog: Catalog, model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """The options that can be given, and their place."""
    shorthands = {"table": ("table", "name"), "tables": ("tables",)}
    names = {name: place for name, place in shorthands.items() if name in model.model_fields}
    for path, setting in catalog.settings.items():
        if "[]" not in path and setting.kind != "mapping":
            place = tuple(path.split("."))
            # The bare name of a secret is known too, so that it is refused with what to do instead.
            names[path] = place
            if setting.secret:
                names |= {f"{path}.env": (*place, "env"), f"{path}.file": (*place, "file")}
    return names


def _free_option(name: str, catalog: Catalog) -> tuple[str, ...] | None:
    for path, setting in catalog.settings.items():
        if setting.kind == "mapping" and name.lower().startswith(f"{path}."):
            return (*path.split("."), name[len(path) + 1 :])
    return None


def _put(nested: dict[str, Any], place: tuple[str, ...], value: str | bool) -> None:
    *parents, last = place
    for part in parents:
        inner = nested.setdefault(part, {})
        if not isinstance(inner, dict):
            return  # a secret given whole: that is refused anyway, with what to do instead
        nested = inner
    nested[last] = value


def _option_hint(name: str, names: Collection[str]) -> str:
    near = [known for known in names if known.endswith(f".{name.lower()}")]
    near = near or get_close_matches(name.lower(), names, n=1)
    return f"did you mean {' or '.join(near)}?" if near else "options are named like the settings of the file"


def _option_words(problem: Problem, catalog: Catalog) -> str:
    setting = catalog.settings.get(shown(problem.place))
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


def _with_empty_sections(value: dict[Any, Any], parent: str = "") -> dict[Any, Any]:
    """A section whose settings are all commented out is there, but null: it means the defaults."""
    filled = {}
    for key, found in value.items():
        is_section = f"{parent}{key}" in catalog_of().sections
        inner = {} if is_section and found is None else found
        filled[key] = _with_empty_sections(inner, f"{parent}{key}.") if isinstance(inner, dict) else inner
    return filled


def _with_place(place: Place, words: str) -> str:
    return f"{shown(place)}: {words}" if place else words
