"""Decoded Avro values as text: what CQL types there are is said by the Avro schema. Pure."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from bridge.model.times import iso_of_millis

_CONNECT_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
_LONGEST_NUMBER_BITS: Final = 4096


class AvroValues:
    """The values of one schema, by its named types."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up the named types once."""
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def value(self, value: Any, avro_type: Any) -> object:
        """A decoded value as people know it; what has no better form stays as it is."""
        if value is None:
            return None
        avro_type = self.resolved(avro_type)
        cql = avro_type.get("cqlType") if isinstance(avro_type, dict) else None
        if cql in ("decimal", "varint") and isinstance(value, Mapping):
            return _number(value["value"], value["scale"])
        if cql == "duration":
            return Bare(f"{value['months']}mo{value['days']}d{value['nanoseconds']}ns")
        if cql == "date":
            return Bare(_date(value))
        if cql == "time" and isinstance(value, int):
            return Bare(_time(value))
        if isinstance(avro_type, dict) and avro_type.get("connect.name") == _CONNECT_TIMESTAMP:
            return Bare(iso_of_millis(value)) if isinstance(value, int) else value
        if isinstance(value, list):
            return self._elements(value, avro_type)
        if isinstance(value, Mapping):
            return {cql_name(field): self.value(value[field["name"]], field["type"]) for field in avro_type["fields"]}
        return Bare(str(value)) if isinstance(value, uuid.UUID) else value

    def _elements(self, values: list[Any], avro_type: Any) -> list[object]:
        found = [self.value(one, avro_type["items"]) for one in values]
        return Entries(found) if str(avro_type.get("cqlType", "")).startswith("map<") else found

    def resolved(self, avro_type: Any) -> Any:
        """The type behind a name, and of a nullable one what is not null."""
        if isinstance(avro_type, list):
            avro_type = next((one for one in avro_type if one != "null"), "null")
        return self._named.get(avro_type, avro_type) if isinstance(avro_type, str) else avro_type

    def _collect(self, avro_type: Any) -> None:
        if isinstance(avro_type, list):
            for one in avro_type:
                self._collect(one)
        elif isinstance(avro_type, Mapping):
            if "name" in avro_type:
                self._named[avro_type["name"]] = avro_type
            for field in avro_type.get("fields", ()):
                self._collect(field["type"])
            for inner in ("items", "values"):
                self._collect(avro_type.get(inner))


class Bare(str):
    """Text that needs no quotes on a line."""

    __slots__ = ()


class Entries(list[Any]):
    """A map's entries."""

    __slots__ = ()


class Delta(dict[str, Any]):
    """What was done to a column of many cells."""

    __slots__ = ()


class Ranges:
    """The ranges of range deletes."""

    def __init__(self, values: AvroValues, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the fields of the clustering columns by name, others being ignored."""
        self._values = values
        self._fields = fields

    def json(self, bounds: Mapping[str, Any]) -> dict[str, object]:
        """A range as values that JSON has."""
        return {
            side: None
            if bounds[side] is None
            else {
                "inclusive": bounds[side]["inclusive"],
                "key": {name: json_value(value) for name, value in self._bound_values(bounds[side])},
            }
            for side in ("start", "end")
        }

    def text(self, bounds: Mapping[str, Any]) -> str:
        """A range in the signs of an interval: `[ck=1 .. ck=5)`, without a bound where it is open."""
        start, end = (
            ""
            if one is None
            else ",".join(f"{shown_name(name)}={plain(value)}" for name, value in self._bound_values(one))
            for one in (bounds["start"], bounds["end"])
        )
        opening = "[" if bounds["start"] is not None and bounds["start"]["inclusive"] else "("
        closing = "]" if bounds["end"] is not None and bounds["end"]["inclusive"] else ")"
        return f"{opening}{start + ' ' if start else ''}..{' ' + end if end else ''}{closing}"

    def _bound_values(self, bound: Mapping[str, Any]) -> list[tuple[str, object]]:
        empty = set(bound["empty_columns"])
        found = []
        for name, value in bound["key"].items():
            field = self._fields[name]
            if value is not None:
                found.append((cql_name(field), self._values.value(value, field["type"])))
            elif cql_name(field) in empty:
                found.append((cql_name(field), Bare("empty")))
        return found


def cql_name(field: Mapping[str, Any]) -> str:
    """A field's CQL name."""
    return str(field.get("cqlName", field["name"]))


def shown_name(name: str) -> str:
    """A name, quoted where it would not be told from what stands around it."""
    return name if re.fullmatch(r"\w+", name) else repr(name)


def _number(unscaled: bytes, scale: int) -> object:
    number = int.from_bytes(unscaled, "big", signed=True)
    if number.bit_length() > _LONGEST_NUMBER_BITS:
        return Bare(f"0x{unscaled.hex()}e{-scale}")  # Python refuses to print very long ones
    if scale == 0:
        return number
    digits = tuple(map(int, str(abs(number))))
    return Bare(str(Decimal((int(number < 0), digits, -scale))))  # made of its parts: exact, whatever the scale


def _date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days} days"


def _time(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"


def json_value(value: object) -> object:
    """A decoded value in the terms of JSON: bytes as `0x...`, what is not finite and uuids as text."""
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case float() if not math.isfinite(value):
            return str(value)
        case Bare():
            return str(value)
        case list() | tuple():
            return [json_value(one) for one in value]
        case dict():
            return {str(name): json_value(one) for name, one in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def plain(value: object) -> str:
    """A value on a line."""
    match value:
        case None:
            return "null"
        case Bare():
            return str(value)
        case str():
            return repr(value)  # also keeps control characters away from the terminal
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case Delta():
            added, removed, fields = value.get("added"), value.get("removed"), value.get("fields")
            parts = [
                "cleared" if value["cleared"] else "",
                f"+{plain(added)}" if added else "",
                f"-{plain(removed)}" if removed else "",
                plain(fields) if fields else "",
            ]
            return "".join(parts) or "unchanged"
        case Entries():
            return "{" + ", ".join(f"{plain(one['key'])}: {plain(one['value'])}" for one in value) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(plain, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{shown_name(str(name))}={plain(one)}" for name, one in value.items()) + "}"
        case _:
            return str(value)
