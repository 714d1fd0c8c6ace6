"""What pydantic found wrong with a configuration, as sentences for people. Pure.

No message holds the value of a setting that may be secret: neither a password that someone wrote in plain text, nor an
address with a password in it, nor anything in the free `properties`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bridge.config.base import MISPLACED, Place
from bridge.config.reference.catalog import Catalog

_SENSITIVE: Final = re.compile(r"passw|passphrase|secret|token|credential|pem\b|\burl\b|properties", re.IGNORECASE)
_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    place: Place
    text: str


def problems_of(error: ValidationError, catalog: Catalog) -> list[Problem]:
    """Every problem in a validation error of the catalog's model, each place once, in the order of the model."""
    found: dict[Place, list[ErrorDetails]] = {}
    own: list[Problem] = []
    for details in error.errors(include_url=False):
        if details["type"] == MISPLACED:
            own += [Problem(place, text) for place, text in details["ctx"]["problems"]]
            continue
        found.setdefault(_place_of(details, catalog), []).append(details)
    problems = []
    for place, group in found.items():
        kind = group[0]["type"]
        if kind == "missing":
            problems += _missing(place, catalog)
        elif kind != "too_short" or not any(other[: len(place)] == place for other in found.keys() - {place}):
            # (pydantic counts only the items that are right, so a list with a wrong one may be "too short" as well)
            problems.append(Problem(place, _text(place, group, catalog)))
    return problems + own


def shown(place: Place) -> str:
    """A place as it is written for people: `tables[0].name`.

    Of a key only what comes before a blank or `=`: in `{password hunter2}` a secret is part of it.
    """
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name, *rest = re.split(r"[\s=]", part, maxsplit=1)
            text += ("." if text else "") + name + ("..." if rest else "")
    return text


def is_sensitive(place: Place) -> bool:
    """Whether a value at this place may hold a secret, so that no message may show it."""
    return _SENSITIVE.search(shown(place)) is not None


def hint(place: Place, catalog: Catalog) -> str:
    """What may have been meant by a key that does not exist, or else which ones do."""
    wrong = str(place[-1])
    parent = _path(place[:-1])
    siblings = _children(parent, catalog)
    lower = wrong.lower().replace("-", "_")
    near = get_close_matches(lower, siblings, n=1) or [one for one in siblings if one.startswith(lower)][:1]
    if near:
        return f"did you mean {near[0]}?"
    elsewhere = [path for path in catalog.settings if path.rpartition(".")[2] == lower]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    return f"known here: {', '.join(siblings)}" if siblings else "no keys are known here"


def _place_of(details: ErrorDetails, catalog: Catalog) -> Place:
    """The error's place without what pydantic adds to it: the branches of a union, the keys of a shorthand.

    A secret is never looked into: one that stands there in the place of a mapping reads as a key.
    """
    place: Place = ()
    for part in details["loc"]:
        setting = catalog.settings.get(_path(place))
        further = (*place, part)
        if setting is None:
            if not catalog.knows(_path(further)):
                wrong_key = details["type"] in ("extra_forbidden", "invalid_key")
                return (*place, str(part)) if wrong_key else place
        elif setting.kind == "mapping":
            return (*place, str(part))
        elif setting.kind != "list" or not isinstance(part, int):
            return place
        place = further
    return place


def _missing(place: Place, catalog: Catalog) -> list[Problem]:
    path = _path(place)
    setting = catalog.settings.get(path)
    if setting is not None:
        return [Problem(place, f"required, but missing; it is {setting.expected}")]
    needed = [one for one in catalog.settings.values() if one.required and one.path.startswith(f"{path}.")]
    if not needed:
        return [Problem(place, "required, but missing; it is a list with at least one entry")]
    return [Problem(tuple(one.path.split(".")), f"required, but missing; it is {one.expected}") for one in needed]


def _text(place: Place, group: Sequence[ErrorDetails], catalog: Catalog) -> str:
    kind = group[0]["type"]
    setting = catalog.settings.get(_path(place))
    own = next((details for details in group if details["type"] == "value_error"), None)
    if own is not None:
        return _without_credentials(own["msg"].removeprefix("Value error, "))
    if kind == "extra_forbidden":
        if "." in str(place[-1]) and catalog.knows(_path(place)):
            section, _, name = str(place[-1]).rpartition(".")
            return f"unknown key; write `{name}:` below `{section}:`, not in one with it"
        return f"unknown key; {hint(place, catalog)}" if setting is None else f"must be {setting.expected}"
    if kind == "invalid_key":
        return "a key must be text; put it in quotes"
    if kind == "too_short":
        return "needs at least one entry"
    if (holder := catalog.settings.get(_path(place[:-1]))) is not None:
        expected = "text, a number or a boolean" if holder.kind == "mapping" else _one_of(holder.expected)
    elif setting is not None:
        expected = setting.expected
    elif catalog.knows(_path(place)):
        expected = "a list" if f"{_path(place)}[]" in catalog.sections else "a section with settings of its own"
    else:
        return group[0]["msg"]
    value = group[0]["input"]
    return f"must be {expected}" + (", but is empty" if value is None else f", not {_value(place, value)}")


def _one_of(listed: str) -> str:
    """What an item of a list must be, by what the list is expected to be."""
    items = listed.removeprefix("a list of ")
    return f"one of {items}" if "," in items else items


def _value(place: Place, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str() if is_sensitive(place) or len(value) > _LONGEST_SHOWN:
            return "this text"
        case str():
            return _without_credentials(repr(value))
        case _:
            return "this value" if is_sensitive(place) else str(value)


def _without_credentials(text: str) -> str:
    """Whatever stands before an `@` may be a user and a password."""
    return re.sub(r"[^\s'\",]+@", "...@", text)


def _path(place: Place) -> str:
    return shown(tuple(part if isinstance(part, str) else -1 for part in place)).replace("[-1]", "[]")


def _children(path: str, catalog: Catalog) -> list[str]:
    prefix = f"{path}." if path else ""
    below = (one[len(prefix) :] for one in catalog.settings if one.startswith(prefix))
    return list(dict.fromkeys(re.split(r"[.\[]", one)[0] for one in below))
