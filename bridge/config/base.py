"""What settings are made of: the models' base, secrets, addresses, instants.

Secrets are never values in the file: a `Secret` says where one is to be found, and is read where it is used, so a
rotated one is seen by the next connection and none can reach a log, a repr, a metric or a Spark option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from bridge.errors import AccessError

MISPLACED: Final = "misplaced"
"""Type of the errors of `misplaced`, whose context holds the `problems`."""

_ADDRESS = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):\d{1,5}$")
_PORTS: Final = range(1, 65536)

DAY_S: Final = 86_400
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

Place = tuple[str | int, ...]
"""Where in the configuration: keys, and the numbers of list items."""


class Misplaced(NamedTuple):
    """What a validator of the whole finds wrong with one of its parts."""

    place: Place
    text: str


def misplaced(problems: Sequence[Misplaced]) -> PydanticCustomError:
    """The error that a validator of the whole raises, so that each problem is told where it is."""
    words = "; ".join(f"{'.'.join(map(str, problem.place))}: {problem.text}" for problem in problems)
    return PydanticCustomError(MISPLACED, "{words}", {"words": words, "problems": list(problems)})


class Model(BaseModel):
    """A section: every key is known, and nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class InWords:
    """Among a field's annotations: what its text must be, where a regular expression would say it to nobody."""

    text: str


class Secret(Model):
    """Where a secret lies: an environment variable or a file (whose trailing newline is dropped)."""

    env: str | None = Field(None, description="Name of the environment variable that holds the secret.")
    file: Path | None = Field(None, description="Path of the file that holds the secret; read again at each use.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name one place for the secret: either `env` or `file`")
        return self

    def reveal(self, setting: str) -> str:
        """The secret itself.

        Args:
            setting: what it is the secret of, as in `scylla.password`.

        Raises:
            AccessError: the variable is not set, the file can't be read, or there is nothing in it.
        """
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                state = "not set" if value is None else "empty"
                raise AccessError(f"{setting}: the environment variable {self.env} is {state}; it should hold a secret")
            return value
        assert self.file is not None
        try:
            value = self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            # Not as the cause: its text has the bytes.
            raise AccessError(f"{setting}: the secret's file {self.file} is not UTF-8 text") from None
        except OSError as error:
            raise AccessError(f"{setting}: the secret's file {self.file} can't be read: {error.strerror}") from error
        if not value:
            raise AccessError(f"{setting}: the secret's file {self.file} is empty")
        return value


def never(text: str) -> dict[str, Any]:
    """A JSON schema that no value fits, and whose error is `value must be <text>`.

    That of `false` has no text, and draft 7 knows no other keyword with one that does not show the value.
    """
    only = {"const": text}
    return only | {"not": only}


def left_out(text: str) -> dict[str, Any]:
    """The same for what must not be there, with why not, or what to set instead."""
    return never(f"left out: {text}")


HTTP_ADDRESS: Final[Mapping[str, Any]] = {
    "if": {"pattern": "^[^/?#]*//[^/?#]*@"},
    # In an error of `pattern` stands the value.
    "then": never("an address without user and password: there are settings for those"),
    "else": {"pattern": r"^[hH][tT][tT][pP][sS]?://[^/?#@\s]+([/?#]|$)"},
}
"""What the JSON schema says of HTTP addresses: `format` alone takes `host:8081`, and logins."""


@dataclass(frozen=True, slots=True)
class RefusedNames:
    """What the JSON schema of a free mapping says of the names that it does not take, for a field's `Annotated`.

    As patterns of properties, because validators tell the place of those rightly, and not that of `propertyNames`.

    Each kind has a text for whoever gives such a name: why not, or what to set instead.

    Attributes:
        names: these.
        words: and those that hold one of these, in capitals or small letters; regular expressions, in which letters
            stand for themselves alone.
        forms: and those that match one of these regular expressions as they stand.
    """

    names: Mapping[str, str]
    words: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    forms: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """The value of `patternProperties`."""
        alike: dict[str, list[str]] = {}
        for name, text in sorted(self.names.items()):
            alike.setdefault(text, []).append(re.escape(name))
        patterns = {f"^({'|'.join(names)})$": text for text, names in alike.items()}
        for words, text in self.words.items():
            # Draft 7 has no flags, and not every engine knows inline ones.
            patterns[re.sub(r"\[[^]]*\]|[a-z]", _either_case, "|".join(words))] = text
        patterns |= {"|".join(forms): text for forms, text in self.forms.items()}
        return {pattern: left_out(text) for pattern, text in patterns.items()}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The mapping's schema with these names refused."""
        return handler(core) | {"patternProperties": self.schema()}


def other_than(word: str) -> str:
    """A regular expression for what does not begin with a word, without the lookahead that not every engine has."""
    rest = ""
    for character in reversed(word):
        rest = f"($|[^{character}]|{re.escape(character)}{rest})" if rest else f"($|[^{character}])"
    return f"^{rest}"


def refuse_names(reasons: Iterable[tuple[str, str]]) -> None:
    """Tell of all names that are refused at once, those of one reason together.

    Args:
        reasons: name and why; of several for one name the first counts.

    Raises:
        ValueError: there are any.
    """
    alike: dict[str, list[str]] = {}
    known: set[str] = set()
    for name, why in reasons:
        if name not in known:
            known.add(name)
            alike.setdefault(why, []).append(name)
    if alike:
        raise ValueError("; ".join(f"{', '.join(sorted(names))}: {why}" for why, names in alike.items()))


def _either_case(found: re.Match[str]) -> str:
    """A letter as a class of both its forms, or a class with both forms of each letter in it."""
    both = re.sub("[a-z]", lambda letter: letter[0].upper() + letter[0], found[0])
    return both if both.startswith("[") else f"[{both}]"


def _refuse_plain_secret(value: object) -> object:
    if isinstance(value, str):
        # pydantic reports ValueErrors, not TypeErrors.
        raise ValueError("a secret can't stand in the file: write {env: NAME} or {file: PATH}")  # noqa: TRY004
    return value


SecretSetting = Annotated[Secret, BeforeValidator(_refuse_plain_secret)]


def _addresses(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _address(value: str) -> str:
    if "@" in value:
        raise ValueError("an address is host:port, without user or password")
    if "://" in value:
        raise ValueError(f"{value!r} begins with a scheme; an address is host:port alone")
    if not _ADDRESS.match(value):
        bracketed = ", and an IPv6 host stands in brackets, as in [::1]:9042" if value.count(":") > 1 else ""
        raise ValueError(f"{value!r} is not host:port{bracketed}")
    port = int(value.rpartition(":")[2])
    if port not in _PORTS:
        raise ValueError(f"{value!r}: {port} is no port; ports are 1 to 65535")
    return value


# What JSON schema says of a value is what may be written, which is more than what becomes of it.
_AddressText = Annotated[str, Field(pattern=_ADDRESS.pattern)]
_AddressList = Annotated[list[_AddressText], Field(min_length=1)]

Address = Annotated[
    str,
    BeforeValidator(
        lambda value: value if not isinstance(value, str) else _address(value), json_schema_input_type=_AddressText
    ),
]
Addresses = Annotated[
    tuple[Address, ...],
    Field(min_length=1),
    BeforeValidator(_addresses, json_schema_input_type=_AddressList | Annotated[str, Field(min_length=1)]),
]


def _instant(value: object) -> object:
    # A bare number would be read as seconds or milliseconds since 1970, whichever seems nearer.
    if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal()):
        raise ValueError("`earliest`, `latest`, or an instant as in 2026-01-31T12:00:00+00:00")
    return value


def _aware(value: str | datetime) -> str | datetime:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("give the instant with its UTC offset, as in 2026-01-31T12:00:00+00:00")
    return value


Start = Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_instant), AfterValidator(_aware)]
