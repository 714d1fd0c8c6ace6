"""Decoded Avro values as JSON values. The Avro schema says which CQL types they have. Pure."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from bridge.model.times import iso_of_millis

_CONNECT_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
_LONGEST_NUMBER_BITS: Final = 4096


class AvroValues:
    """Converts the decoded values of one Avro schema to values that a person can read."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Collect the named types of the schema."""
        self._named_types: dict[str, Any] = {}
        self._collect_named_types(schema)

    def value(self, value: Any, avro_type: Any) -> object:
        """Return a decoded value in readable form: timestamps, dates, times, durations, numbers and UUIDs as text."""
        if value is None:
            return None
        avro_type = self.resolve(avro_type)
        cql = avro_type.get("cqlType") if isinstance(avro_type, dict) else None
        if cql in ("decimal", "varint") and isinstance(value, Mapping):
            return _format_number(value["value"], value["scale"])
        if cql == "duration":
            return f"{value['months']}mo{value['days']}d{value['nanoseconds']}ns"
        if cql == "date":
            return _format_date(value)
        if cql == "time" and isinstance(value, int):
            return _format_time(value)
        if isinstance(avro_type, dict) and avro_type.get("connect.name") == _CONNECT_TIMESTAMP:
            return iso_of_millis(value) if isinstance(value, int) else value
        if isinstance(value, list):
            return [self.value(one, avro_type["items"]) for one in value]
        if isinstance(value, Mapping):
            return {cql_name(field): self.value(value[field["name"]], field["type"]) for field in avro_type["fields"]}
        return str(value) if isinstance(value, uuid.UUID) else value

    def resolve(self, avro_type: Any) -> Any:
        """Return the type that a name refers to, and for a union the first type that is not null."""
        if isinstance(avro_type, list):
            avro_type = next((one for one in avro_type if one != "null"), "null")
        return self._named_types.get(avro_type, avro_type) if isinstance(avro_type, str) else avro_type

    def _collect_named_types(self, avro_type: Any) -> None:
        if isinstance(avro_type, list):
            for one in avro_type:
                self._collect_named_types(one)
        elif isinstance(avro_type, Mapping):
            if "name" in avro_type:
                self._named_types[avro_type["name"]] = avro_type
            for field in avro_type.get("fields", ()):
                self._collect_named_types(field["type"])
            for inner in ("items", "values"):
                self._collect_named_types(avro_type.get(inner))


class RangeBounds:
    """Converts the bounds of range deletes."""

    def __init__(self, values: AvroValues, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Create a converter; `fields` are the fields of the row by name, among them the clustering columns."""
        self._values = values
        self._fields = fields

    def json(self, bounds: Mapping[str, Any]) -> dict[str, object]:
        """Return `start` and `end` of a range as JSON values; null where the range has no bound."""
        return {
            side: None
            if bounds[side] is None
            else {"inclusive": bounds[side]["inclusive"], "key": self._bound_values(bounds[side])}
            for side in ("start", "end")
        }

    def _bound_values(self, bound: Mapping[str, Any]) -> dict[str, object]:
        empty = set(bound["empty_columns"])
        found: dict[str, object] = {}
        for name, value in bound["key"].items():
            field = self._fields[name]
            if value is not None:
                found[cql_name(field)] = json_value(self._values.value(value, field["type"]))
            elif cql_name(field) in empty:
                found[cql_name(field)] = "empty"
        return found


def cql_name(field: Mapping[str, Any]) -> str:
    """Return the CQL name of an Avro field."""
    return str(field.get("cqlName", field["name"]))


def json_value(value: object) -> object:
    """Return a decoded value as a JSON value: bytes as `0x...`, and infinite numbers, NaN and UUIDs as text."""
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case float() if not math.isfinite(value):
            return str(value)
        case list() | tuple():
            return [json_value(one) for one in value]
        case dict():
            return {str(name): json_value(one) for name, one in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _format_number(unscaled: bytes, scale: int) -> object:
    number = int.from_bytes(unscaled, "big", signed=True)
    if number.bit_length() > _LONGEST_NUMBER_BITS:
        return f"0x{unscaled.hex()}e{-scale}"  # Python refuses to print longer numbers
    if scale == 0:
        return number
    digits = tuple(map(int, str(abs(number))))
    # A Decimal that is built from its parts is exact, whatever the scale.
    return str(Decimal((int(number < 0), digits, -scale)))


def _format_date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days} days"


def _format_time(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"
