"""Decoded changes as text: a line for people, or a JSON document. Pure; the Avro schemas say what the values are."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from bridge.encoding import POSITION_BYTES
from bridge.instants import iso_of_micros, iso_of_millis

_CONNECT_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
_LONGEST_NUMBER_BITS: Final = 4096


@dataclass(frozen=True, slots=True)
class Position:
    """Where a change stands in the log, as the record header `cdc.position` has it."""

    stream_id: bytes
    timeuuid: bytes
    batch_seq_no: int

    @classmethod
    def from_header(cls, header: bytes) -> Position | None:
        """16 bytes stream id, 16 bytes timeuuid, 4 bytes batch_seq_no (big-endian); None for anything else."""
        if len(header) != POSITION_BYTES:
            return None
        return cls(header[:16], header[16:32], int.from_bytes(header[32:], "big", signed=True))

    @classmethod
    def from_source(cls, source: Mapping[str, Any]) -> Position:
        """The same from an envelope's source block."""
        return cls(source["stream_id"], source["time"], source["batch_seq_no"])

    def __str__(self) -> str:
        return f"0x{self.stream_id.hex()}/{uuid.UUID(bytes=self.timeuuid)}/{self.batch_seq_no}"


class EnvelopeText:
    """Renders the envelopes of one Avro schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types once.

        Args:
            schema: the envelope's, as the registry has it.

        Raises:
            ValueError: it is not an envelope's schema.
        """
        self._named: dict[str, Any] = {}
        self._collect(schema)
        fields = {field["name"]: field["type"] for field in schema.get("fields", ())}
        if not {"op", "key", "columns", "source"} <= fields.keys():
            raise ValueError("not the schema of a change")
        self._key = {field["name"]: field for field in self._resolved(fields["key"])["fields"]}
        self._columns = {field["name"]: field for field in self._resolved(fields["columns"])["fields"]}
        self._images = {name: fields[name] for name in ("before", "after") if name in fields}

    def json(self, change: Mapping[str, Any], position: Position) -> dict[str, Any]:
        """A change as values that JSON has; `columns` holds only what was touched, null being "set to null".

        `range` is there for range deletes only, `before` and `after` for changes that have such an image.
        """
        source = change["source"]
        return {
            "time": iso_of_micros(source["timestamp_us"]),
            "table": f"{source['keyspace']}.{source['table']}",
            "op": change["op"],
            **({} if change.get("range") is None else {"range": self._range(change["range"])}),
            "key": {name: json_value(value) for name, value in self._key_values(change)},
            "columns": None
            if change["columns"] is None
            else {name: json_value(value) for name, value in self._column_values(change)},
            "empty_columns": list(change.get("empty_columns") or ()),
            **{
                name: json_value(self._value(change[name], avro_type))
                for name, avro_type in self._images.items()
                if change.get(name) is not None
            },
            "ttl": change.get("ttl"),
            "generation": iso_of_millis(source["generation_ms"]),
            "last_in_group": source["last_in_group"],
            "position": str(position),
        }

    def line(self, change: Mapping[str, Any], position: Position) -> str:
        """A change as one line: time, table, operation, key or range, columns, ttl, position."""
        source = change["source"]
        parts = [iso_of_micros(source["timestamp_us"]), f"{source['keyspace']}.{source['table']}", change["op"]]
        parts += [f"{_name(name)}={_plain(value)}" for name, value in self._key_values(change) if value is not None]
        if change.get("range") is not None:
            parts.append(self._range_text(change["range"]))
        empty = set(change.get("empty_columns") or ())
        columns = [
            f"{_name(name)}={'empty' if name in empty else _plain(value)}"
            for name, value in self._column_values(change)
        ]
        if columns:
            parts += ["|", *columns]
        if change.get("ttl") is not None:
            parts.append(f"ttl={change['ttl']}s")
        return " ".join([*parts, "@", str(position)])

    def _key_values(self, change: Mapping[str, Any]) -> list[tuple[str, object]]:
        return [
            (_cql_name(field), self._value(change["key"].get(name), field["type"])) for name, field in self._key.items()
        ]

    def _column_values(self, change: Mapping[str, Any]) -> list[tuple[str, object]]:
        touched = []
        for name, field in self._columns.items():
            cell = (change["columns"] or {}).get(name)
            if cell is not None:
                touched.append((_cql_name(field), self._cell(cell, field["type"])))
        return touched

    def _cell(self, cell: Mapping[str, Any], avro_type: Any) -> object:
        """What a change did to a column or to a field: the value that it has now, or what was added and removed."""
        types = {field["name"]: field for field in self._resolved(avro_type)["fields"]}
        if "cleared" not in types:
            return self._value(cell["value"], types["value"]["type"])
        if "fields" not in types:
            added, removed = (self._value(cell[part], types[part]["type"]) for part in ("added", "removed"))
            return _Delta(cleared=cell["cleared"], added=added, removed=removed)
        fields = {
            _cql_name(field): self._cell(cell["fields"][field["name"]], field["type"])
            for field in self._resolved(types["fields"]["type"])["fields"]
            if cell["fields"][field["name"]] is not None
        }
        return _Delta(cleared=cell["cleared"], fields=fields)

    def _range(self, bounds: Mapping[str, Any]) -> dict[str, object]:
        return {
            side: None
            if bounds[side] is None
            else {
                "inclusive": bounds[side]["inclusive"],
                "key": {name: json_value(value) for name, value in self._bound_values(bounds[side])},
            }
            for side in ("start", "end")
        }

    def _range_text(self, bounds: Mapping[str, Any]) -> str:
        """A range in the signs of an interval: `[ck=1 .. ck=5)`, without a bound where it is open."""
        start, end = (
            "" if one is None else ",".join(f"{_name(name)}={_plain(value)}" for name, value in self._bound_values(one))
            for one in (bounds["start"], bounds["end"])
        )
        opening = "[" if bounds["start"] is not None and bounds["start"]["inclusive"] else "("
        closing = "]" if bounds["end"] is not None and bounds["end"]["inclusive"] else ")"
        return f"{opening}{start + ' ' if start else ''}..{' ' + end if end else ''}{closing}"

    def _bound_values(self, bound: Mapping[str, Any]) -> list[tuple[str, object]]:
        empty = set(bound["empty_columns"])
        found = []
        for name, value in bound["key"].items():
            field = self._key[name]
            if value is not None:
                found.append((_cql_name(field), self._value(value, field["type"])))
            elif _cql_name(field) in empty:
                found.append((_cql_name(field), _Bare("empty")))
        return found

    def _value(self, value: Any, avro_type: Any) -> object:
        """A decoded value as people know it; what has no better form stays as it is."""
        if value is None:
            return None
        avro_type = self._resolved(avro_type)
        cql = avro_type.get("cqlType") if isinstance(avro_type, dict) else None
        if cql in ("decimal", "varint") and isinstance(value, Mapping):
            return _number(value["value"], value["scale"])
        if cql == "duration":
            return _Bare(f"{value['months']}mo{value['days']}d{value['nanoseconds']}ns")
        if cql == "date":
            return _Bare(_date(value))
        if cql == "time" and isinstance(value, int):
            return _Bare(_time(value))
        if isinstance(avro_type, dict) and avro_type.get("connect.name") == _CONNECT_TIMESTAMP:
            return _Bare(iso_of_millis(value)) if isinstance(value, int) else value
        if isinstance(value, list):
            return self._elements(value, avro_type)
        if isinstance(value, Mapping):
            return {_cql_name(field): self._value(value[field["name"]], field["type"]) for field in avro_type["fields"]}
        return _Bare(str(value)) if isinstance(value, uuid.UUID) else value

    def _elements(self, values: list[Any], avro_type: Any) -> list[object]:
        found = [self._value(one, avro_type["items"]) for one in values]
        return _Entries(found) if str(avro_type.get("cqlType", "")).startswith("map<") else found

    def _resolved(self, avro_type: Any) -> Any:
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


class _Bare(str):
    """Text that needs no quotes on a line."""

    __slots__ = ()


class _Entries(list[Any]):
    """A map's entries."""

    __slots__ = ()


class _Delta(dict[str, Any]):
    """What was done to a column of many cells."""

    __slots__ = ()


def _cql_name(field: Mapping[str, Any]) -> str:
    return str(field.get("cqlName", field["name"]))


def _name(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else repr(name)


def _number(unscaled: bytes, scale: int) -> object:
    number = int.from_bytes(unscaled, "big", signed=True)
    if number.bit_length() > _LONGEST_NUMBER_BITS:
        return _Bare(f"0x{unscaled.hex()}e{-scale}")  # Python refuses to print very long ones
    if scale == 0:
        return number
    digits = tuple(map(int, str(abs(number))))
    return _Bare(str(Decimal((int(number < 0), digits, -scale))))  # made of its parts: exact, whatever the scale


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
        case _Bare():
            return str(value)
        case list() | tuple():
            return [json_value(one) for one in value]
        case dict():
            return {str(name): json_value(one) for name, one in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _plain(value: object) -> str:
    match value:
        case None:
            return "null"
        case _Bare():
            return str(value)
        case str():
            return repr(value)  # also keeps control characters away from the terminal
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case _Delta():
            added, removed, fields = value.get("added"), value.get("removed"), value.get("fields")
            parts = [
                "cleared" if value["cleared"] else "",
                f"+{_plain(added)}" if added else "",
                f"-{_plain(removed)}" if removed else "",
                _plain(fields) if fields else "",
            ]
            return "".join(parts) or "unchanged"
        case _Entries():
            return "{" + ", ".join(f"{_plain(one['key'])}: {_plain(one['value'])}" for one in value) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_plain, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_name(str(name))}={_plain(one)}" for name, one in value.items()) + "}"
        case _:
            return str(value)
