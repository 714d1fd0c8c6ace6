"""Decoded Avro values as JSON values. The Avro schema says which CQL types they have. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from bridge.model.times import iso_of_millis

_CONNECT_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
_LONGEST_NUMBER_BITS: Final = 4096


class AvroValues:
    """Converts the decoded values of one Avro schema to JSON values that a person can read."""

    def __init__(self, schema: Any) -> None:
        """Collect the named types of a schema, which is parsed from JSON."""
        self._schema = schema
        self._named_types: dict[str, Any] = {}
        self._collect_named_types(schema)

    def json(self, decoded: object) -> object:
        """Return a decoded value of the schema as a JSON value.

        Records have CQL names where the schema has them. Timestamps, dates, times, durations, long numbers and UUIDs
        are text, bytes are hex text that begins with ``0x``.
        """
        return json_value(self._value(decoded, self._schema))

    def _value(self, value: Any, avro_type: Any) -> object:
        avro_type = self._resolve(avro_type)
        if value is None or not isinstance(avro_type, Mapping):
            return value
        cql = avro_type.get("cqlType")
        if cql in ("decimal", "varint") and isinstance(value, Mapping):
            return _format_number(value["value"], value["scale"])
        if cql == "duration":
            return f"{value['months']}mo{value['days']}d{value['nanoseconds']}ns"
        if cql == "date":
            return _format_date(value)
        if cql == "time" and isinstance(value, int):
            return _format_time(value)
        if avro_type.get("connect.name") == _CONNECT_TIMESTAMP:
            return iso_of_millis(value) if isinstance(value, int) else value
        match avro_type.get("type"):
            case "array":
                return [self._value(one, avro_type["items"]) for one in value]
            case "map":
                return {name: self._value(one, avro_type["values"]) for name, one in value.items()}
            case "record":
                fields = avro_type["fields"]
                return {_cql_name(field): self._value(value[field["name"]], field["type"]) for field in fields}
        return value

    def _resolve(self, avro_type: Any) -> Any:
        """Return the type that a name refers to; for a union of null and one type, that type."""
        if isinstance(avro_type, list):
            choices = [one for one in avro_type if one != "null"]
            # A decoded value does not tell which of several types it has: it is shown without names and formats.
            avro_type = choices[0] if len(choices) == 1 else "any"
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
            for inner in ("type", "items", "values"):
                self._collect_named_types(avro_type.get(inner))


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


def _cql_name(field: Mapping[str, Any]) -> str:
    """Return the CQL name of an Avro field; its Avro name if it has none."""
    return str(field.get("cqlName", field["name"]))


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
