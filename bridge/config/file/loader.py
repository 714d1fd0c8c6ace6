"""Reads the configuration from a YAML file or from flat options, and reports every problem with its location."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from bridge.config.base import Location
from bridge.config.document import BridgeConfig, validate
from bridge.config.file.problems import Problem, location_text, problems_of
from bridge.config.file.yaml_lines import parse, with_line
from bridge.config.reference.catalog import BOOLEAN, Catalog, catalog_of
from bridge.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

_BOOLEANS: Final = {"true": True, "false": False}
_COMMA_OUTSIDE_QUOTES: Final = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


def load(path: str | Path) -> BridgeConfig:
    """Return the configuration of a YAML file.

    Raises:
        ConfigError: the file can't be read, or has problems; the error has all of them, each as in
            `bridge.yaml:12: reading.confidence: unknown key; ...`.
    """
    name = str(path)
    if not name or "\0" in name:
        raise ConfigError(["the configuration file's name is empty, or no valid file name"])
    text = _read_text(Path(path), name)
    document = parse(text, name)
    problems = [(line, _with_location(location, message)) for location, message, line in document.problems()]
    if isinstance(document.value, dict):
        try:
            config = validate(_fill_empty_sections(document.value))
        except ValidationError as error:
            problems += [
                (document.line(found.location), _with_location(found.location, found.text))
                for found in problems_of(error, catalog_of())
            ]
        else:
            if not problems:
                return config
    # The sort is stable, so problems of one line keep the order of the model.
    problems.sort(key=lambda found: found[0] or 0)
    raise ConfigError([with_line(name, line, message) for line, message in problems])


def from_options(options: Mapping[str, str], model: type[M]) -> M:
    """Return the configuration that flat options hold, such as those of a Spark source: `reading.confidence_ms` -> "0".

    `table` is a table's name, and `tables` holds names separated by commas. All that follows `kafka.properties.` or
    `spark.properties.` is one name, including dots. A secret is `scylla.password.env` or `scylla.password.file`.

    Args:
        options: values by name; names are not case-sensitive.
        model: the model to make of them, such as `SourceConfig`.

    Raises:
        ConfigError: the options have problems; the error has all of them, each with its option.
    """
    catalog = catalog_of(model)
    names = _option_names(catalog, model)
    nested: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in sorted(options.items()):
        location = _free_option(name, catalog) or names.get(name.lower())
        if location is None:
            problems.append(f"option {name}: unknown; {_suggest_option(name, names)}")
        else:
            setting = catalog.settings.get(location_text(location))
            # Options have booleans only as text, which a strict setting refuses.
            is_boolean = setting is not None and setting.expected == BOOLEAN
            _put(nested, location, _BOOLEANS.get(value.lower(), value) if is_boolean else value)
    if "tables" in nested:
        nested["tables"] = [part.strip() for part in _COMMA_OUTSIDE_QUOTES.split(nested["tables"]) if part.strip()]
    try:
        config = model.model_validate(nested)
    except ValidationError as error:
        problems += [
            f"option {location_text(found.location)}: {_option_problem(found, catalog)}"
            if found.location
            else f"options: {found.text}"
            for found in problems_of(error, catalog)
        ]
    else:
        if not problems:
            return config
    raise ConfigError(problems)


def _option_names(catalog: Catalog, model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Return the location of each option that can be given."""
    shorthands = {"table": ("table", "name"), "tables": ("tables",)}
    names = {name: location for name, location in shorthands.items() if name in model.model_fields}
    for path, setting in catalog.settings.items():
        if "[]" not in path and setting.kind != "mapping":
            location = tuple(path.split("."))
            # The bare name of a secret is included, so that its error says what to do instead.
            names[path] = location
            if setting.secret:
                names |= {f"{path}.env": (*location, "env"), f"{path}.file": (*location, "file")}
    return names


def _free_option(name: str, catalog: Catalog) -> tuple[str, ...] | None:
    for path, setting in catalog.settings.items():
        if setting.kind == "mapping" and name.lower().startswith(f"{path}."):
            return (*path.split("."), name[len(path) + 1 :])
    return None


def _put(nested: dict[str, Any], location: tuple[str, ...], value: str | bool) -> None:
    *parents, last = location
    for part in parents:
        inner = nested.setdefault(part, {})
        if not isinstance(inner, dict):
            return  # a secret given as text: its own option is refused
        nested = inner
    nested[last] = value


def _suggest_option(name: str, names: Collection[str]) -> str:
    near = [known for known in names if known.endswith(f".{name.lower()}")]
    near = near or get_close_matches(name.lower(), names, n=1)
    return f"did you mean {' or '.join(near)}?" if near else "options are named like the settings of the file"


def _option_problem(problem: Problem, catalog: Catalog) -> str:
    setting = catalog.settings.get(location_text(problem.location))
    if setting is not None and setting.secret:
        return f"a secret can't be an option: give {setting.path}.env or {setting.path}.file"
    return problem.text


def _read_text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{name}: can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name}: is not UTF-8 text (at byte {error.start})"]) from error


def _fill_empty_sections(value: dict[Any, Any], parent: str = "") -> dict[Any, Any]:
    """Replace null by an empty section: YAML reads a section as null if all its settings are commented out."""
    filled = {}
    for key, found in value.items():
        is_section = f"{parent}{key}" in catalog_of().sections
        inner = {} if is_section and found is None else found
        filled[key] = _fill_empty_sections(inner, f"{parent}{key}.") if isinstance(inner, dict) else inner
    return filled


def _with_location(location: Location, message: str) -> str:
    return f"{location_text(location)}: {message}" if location else message
