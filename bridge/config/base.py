"""What the sections of the configuration share: their base class, located problems, addresses and start instants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from bridge.config.refused_names import never

LOCATED: Final = "located"
"""Type of the errors that `located_error` makes; their context holds the `problems`."""

_ADDRESS = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):\d{1,5}$")
_PORTS: Final = range(1, 65536)

DAY_S: Final = 86_400
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

Location = tuple[str | int, ...]
"""Where in the configuration: keys, and the numbers of list items."""


class LocatedProblem(NamedTuple):
    """What a validator of a whole model finds wrong with one of its parts."""

    location: Location
    text: str


def located_error(problems: Sequence[LocatedProblem]) -> PydanticCustomError:
    """Return the error that a validator of a whole model raises, so that each problem is reported at its location."""
    text = "; ".join(f"{'.'.join(map(str, problem.location))}: {problem.text}" for problem in problems)
    return PydanticCustomError(LOCATED, "{text}", {"text": text, "problems": list(problems)})


class Model(BaseModel):
    """Base of the sections: unknown keys are refused, and a section does not change once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class ExpectedText:
    """Annotates a text field: describes what its regular expression accepts."""

    text: str


HTTP_ADDRESS: Final[Mapping[str, Any]] = {
    "if": {"pattern": "^[^/?#]*//[^/?#]*@"},
    # The error of a `pattern` would show the value.
    "then": never("an address without user and password: there are settings for those"),
    "else": {"pattern": r"^[hH][tT][tT][pP][sS]?://[^/?#@\s]+([/?#]|$)"},
}
"""JSON schema of an HTTP address; `format` alone accepts `host:8081`, and addresses with a login."""


def _split_addresses(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _check_address(value: object) -> object:
    if not isinstance(value, str):
        return value
    if "@" in value:
        raise ValueError("an address is host:port, without user or password")
    if "://" in value:
        raise ValueError(f"{value!r} begins with a scheme; an address is host:port alone")
    if not _ADDRESS.match(value):
        bracketed = ", and an IPv6 host is in brackets, as in [::1]:9042" if value.count(":") > 1 else ""
        raise ValueError(f"{value!r} is not host:port{bracketed}")
    port = int(value.rpartition(":")[2])
    if port not in _PORTS:
        raise ValueError(f"{value!r}: {port} is no port; ports are 1 to 65535")
    return value


# The JSON schema describes what may be written in the file, which is more than the type that it is converted to.
_AddressText = Annotated[str, Field(pattern=_ADDRESS.pattern)]
_AddressList = Annotated[list[_AddressText], Field(min_length=1)]

Address = Annotated[str, BeforeValidator(_check_address, json_schema_input_type=_AddressText)]
Addresses = Annotated[
    tuple[Address, ...],
    Field(min_length=1),
    BeforeValidator(_split_addresses, json_schema_input_type=_AddressList | Annotated[str, Field(min_length=1)]),
]


def _refuse_number(value: object) -> object:
    # pydantic would read a bare number as seconds or as milliseconds since 1970, depending on its size.
    if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal()):
        raise ValueError("`earliest`, `latest`, or an instant as in 2026-01-31T12:00:00+00:00")
    return value


def _require_offset(value: str | datetime) -> str | datetime:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("give the instant with its UTC offset, as in 2026-01-31T12:00:00+00:00")
    return value


Start = Annotated[
    Literal["earliest", "latest"] | datetime, BeforeValidator(_refuse_number), AfterValidator(_require_offset)
]
