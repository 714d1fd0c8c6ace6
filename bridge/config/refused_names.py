"""Names that a free mapping of the configuration refuses, for validation and for the JSON schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema


def never(text: str) -> dict[str, Any]:
    """Return a JSON schema that no value fits; validators report it as `value must be <text>`.

    The schema `false` has no text, and draft 7 has no other keyword whose error has a text but not the value.
    """
    only = {"const": text}
    return only | {"not": only}


def left_out(text: str) -> dict[str, Any]:
    """Return a JSON schema for a name that must not be given.

    Args:
        text: why it must not be given, or what to set instead.
    """
    return never(f"left out: {text}")


@dataclass(frozen=True, slots=True)
class RefusedNames:
    """Annotates a field of a free mapping: the names that it refuses, in the mapping's JSON schema.

    The schema uses `patternProperties`, because validators report the place of such a property correctly, but not the
    place of a violation of `propertyNames`.

    Each attribute maps names to a text for the person who gives such a name: why it is refused, or what to set instead.

    Attributes:
        names: refused as they are.
        words: regular expressions; a name that holds one of them is refused, in upper or lower case. Letters in them
            must stand for themselves.
        forms: regular expressions; a name that one of them finds is refused, case-sensitively.
    """

    names: Mapping[str, str]
    words: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    forms: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """Return the value of `patternProperties`."""
        names_by_text: dict[str, list[str]] = {}
        for name, text in sorted(self.names.items()):
            names_by_text.setdefault(text, []).append(re.escape(name))
        patterns = {f"^({'|'.join(names)})$": text for text, names in names_by_text.items()}
        for words, text in self.words.items():
            # Draft 7 has no flags, and not every engine supports inline ones.
            patterns[re.sub(r"\[[^]]*\]|[a-z]", _match_either_case, "|".join(words))] = text
        patterns |= {"|".join(forms): text for forms, text in self.forms.items()}
        return {pattern: left_out(text) for pattern, text in patterns.items()}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the mapping's schema with these names refused."""
        return handler(core) | {"patternProperties": self.schema()}


def other_than(word: str) -> str:
    """Return a regular expression for text that does not begin with a word.

    It needs no lookahead, which not every engine supports.
    """
    rest = ""
    for character in reversed(word):
        rest = f"($|[^{character}]|{re.escape(character)}{rest})" if rest else f"($|[^{character}])"
    return f"^{rest}"


def refuse_names(reasons: Iterable[tuple[str, str]]) -> None:
    """Report all refused names in one error, grouped by reason.

    Args:
        reasons: pairs of a name and the reason to refuse it; if a name has several reasons, the first counts.

    Raises:
        ValueError: there are any.
    """
    names_by_reason: dict[str, list[str]] = {}
    seen: set[str] = set()
    for name, reason in reasons:
        if name not in seen:
            seen.add(name)
            names_by_reason.setdefault(reason, []).append(name)
    if names_by_reason:
        raise ValueError("; ".join(f"{', '.join(sorted(names))}: {why}" for why, names in names_by_reason.items()))


def _match_either_case(found: re.Match[str]) -> str:
    """Return a class of both cases of a letter; of a class, one with both cases of its letters."""
    both = re.sub("[a-z]", lambda letter: letter[0].upper() + letter[0], found[0])
    return both if both.startswith("[") else f"[{both}]"
