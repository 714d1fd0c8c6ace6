"""Turns pydantic's errors into messages for people. Pure.

No message shows a value that may be secret: a password in plain text, a password in an address, or anything in the free
`properties`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bridge.config.base import LOCATED, Location
from bridge.config.reference.catalog import Catalog

_SENSITIVE: Final = re.compile(r"passw|passphrase|secret|token|credential|pem\b|\burl\b|properties", re.IGNORECASE)
_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    location: Location
    text: str


def problems_of(error: ValidationError, catalog: Catalog) -> list[Problem]:
    """Return the problems of a validation error, one for each location, in the order of the model.

    Args:
        error: raised by the catalog's model.
        catalog: the settings of that model.
    """
    found: dict[Location, list[ErrorDetails]] = {}
    located: list[Problem] = []
    for details in error.errors(include_url=False):
        if details["type"] == LOCATED:
            located += [Problem(location, text) for location, text in details["ctx"]["problems"]]
            continue
        found.setdefault(_location_of(details, catalog), []).append(details)
    problems = []
    for location, group in found.items():
        kind = group[0]["type"]
        if kind == "missing":
            problems += _missing_problems(location, catalog)
        elif kind != "too_short" or not any(other[: len(location)] == location for other in found.keys() - {location}):
            # pydantic does not count invalid items, so a list with one may be reported as too short as well.
            problems.append(Problem(location, _problem_text(location, group, catalog)))
    return problems + located


def location_text(location: Location) -> str:
    """Return a location as text for people: `tables[0].name`.

    A key is cut at a blank or `=`, because it may hold a secret: in `{password hunter2}`, all is one key.
    """
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name, *rest = re.split(r"[\s=]", part, maxsplit=1)
            text += ("." if text else "") + name + ("..." if rest else "")
    return text


def is_sensitive(location: Location) -> bool:
    """Return whether a value at this location may hold a secret, so that no message may show it."""
    return _SENSITIVE.search(location_text(location)) is not None


def _suggest_key(location: Location, catalog: Catalog) -> str:
    """Return which existing key an unknown one may mean; if none is similar, the keys that exist there."""
    wrong = str(location[-1])
    parent = _catalog_path(location[:-1])
    siblings = _child_names(parent, catalog)
    lower = wrong.lower().replace("-", "_")
    near = get_close_matches(lower, siblings, n=1) or [one for one in siblings if one.startswith(lower)][:1]
    if near:
        return f"did you mean {near[0]}?"
    elsewhere = [path for path in catalog.settings if path.rpartition(".")[2] == lower]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    return f"known here: {', '.join(siblings)}" if siblings else "no keys are known here"


def _location_of(details: ErrorDetails, catalog: Catalog) -> Location:
    """Return the location of an error in the file.

    pydantic's own location also names the branches of a union and the keys of a shorthand. The location of a secret
    ends at its setting: below it, a password in plain text could look like a key.
    """
    location: Location = ()
    for part in details["loc"]:
        setting = catalog.settings.get(_catalog_path(location))
        further = (*location, part)
        if setting is None:
            if not catalog.knows(_catalog_path(further)):
                is_wrong_key = details["type"] in ("extra_forbidden", "invalid_key")
                return (*location, str(part)) if is_wrong_key else location
        elif setting.kind == "mapping":
            return (*location, str(part))
        elif setting.kind != "list" or not isinstance(part, int):
            return location
        location = further
    return location


def _missing_problems(location: Location, catalog: Catalog) -> list[Problem]:
    path = _catalog_path(location)
    setting = catalog.settings.get(path)
    if setting is not None:
        return [Problem(location, f"required, but missing; it is {setting.expected}")]
    needed = [one for one in catalog.settings.values() if one.required and one.path.startswith(f"{path}.")]
    if not needed:
        return [Problem(location, "required, but missing; it is a list with at least one entry")]
    return [Problem(tuple(one.path.split(".")), f"required, but missing; it is {one.expected}") for one in needed]


def _problem_text(location: Location, group: Sequence[ErrorDetails], catalog: Catalog) -> str:
    """Return one message for all errors at a location, which a union reports for each of its branches."""
    kind = group[0]["type"]
    from_validator = next((details for details in group if details["type"] == "value_error"), None)
    if from_validator is not None:
        return _hide_credentials(from_validator["msg"].removeprefix("Value error, "))
    if kind == "extra_forbidden":
        return _unknown_key_text(location, catalog)
    if kind == "invalid_key":
        return "a key must be text; put it in quotes"
    if kind == "too_short":
        return "needs at least one entry"
    expected = _expected_text(location, catalog)
    if expected is None:
        return group[0]["msg"]
    value = group[0]["input"]
    return f"must be {expected}" + (", but is empty" if value is None else f", not {_value_text(location, value)}")


def _unknown_key_text(location: Location, catalog: Catalog) -> str:
    path, key = _catalog_path(location), str(location[-1])
    if "." in key and catalog.knows(path):
        section, _, name = key.rpartition(".")
        return f"unknown key; write `{name}:` below `{section}:`, not in one with it"
    setting = catalog.settings.get(path)
    return f"unknown key; {_suggest_key(location, catalog)}" if setting is None else f"must be {setting.expected}"


def _expected_text(location: Location, catalog: Catalog) -> str | None:
    """Return what a value must be; None if the catalog does not know the location."""
    path = _catalog_path(location)
    parent, setting = catalog.settings.get(_catalog_path(location[:-1])), catalog.settings.get(path)
    if parent is not None:
        return "text, a number or a boolean" if parent.kind == "mapping" else _one_of(parent.expected)
    if setting is not None:
        return setting.expected
    if catalog.knows(path):
        return "a list" if f"{path}[]" in catalog.sections else "a section with settings of its own"
    return None


def _one_of(listed: str) -> str:
    """Return what an item of a list must be, given what the list must be."""
    items = listed.removeprefix("a list of ")
    return f"one of {items}" if "," in items else items


def _value_text(location: Location, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str() if is_sensitive(location) or len(value) > _LONGEST_SHOWN:
            return "this text"
        case str():
            return _hide_credentials(repr(value))
        case _:
            return "this value" if is_sensitive(location) else str(value)


def _hide_credentials(text: str) -> str:
    """Replace what comes before an `@`, which may be a user and a password."""
    return re.sub(r"[^\s'\",]+@", "...@", text)


def _catalog_path(location: Location) -> str:
    """Return the location as the catalog names it: `tables[].name`."""
    return location_text(tuple(part if isinstance(part, str) else -1 for part in location)).replace("[-1]", "[]")


def _child_names(path: str, catalog: Catalog) -> list[str]:
    prefix = f"{path}." if path else ""
    below = (one[len(prefix) :] for one in catalog.settings if one.startswith(prefix))
    return list(dict.fromkeys(re.split(r"[.\[]", one)[0] for one in below))
