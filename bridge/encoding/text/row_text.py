"""Decoded changes of the shapes `debezium` and `flat` as text, see `bridge.encoding.text.change_text`. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterable, Mapping
from typing import Any

from bridge.encoding.text.value_text import AvroValues, Ranges, cql_name, json_value, plain, shown_name
from bridge.model.position import Position
from bridge.model.times import iso_of_micros, iso_of_millis
from schemas.shapes import flat

_UNKNOWN = "?"
"""Stands for a value that the log does not tell."""


class DebeziumText:
    """Renders the changes of one Avro schema of the shape `debezium`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types once.

        Raises:
            ValueError: it is not such a schema.
        """
        fields = {field["name"]: field["type"] for field in schema.get("fields", ())}
        if not {"before", "after", "op", "source", "transaction"} <= fields.keys():
            raise ValueError("not the schema of a change in the shape debezium")
        self._row = _Row(AvroValues(schema), fields["before"])
        self._ranges = Ranges(self._row.values, self._row.fields)

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """A change as values that JSON has; a row lacks the columns that the log does not tell."""
        source = change["source"]
        return {
            "time": iso_of_micros(source["ts_us"]),
            "table": f"{source['keyspace']}.{source['table']}",
            "op": change["op"],
            **({} if change.get("range") is None else {"range": self._ranges.json(change["range"])}),
            "before": self._row.json(change["before"], source["before_unavailable"]),
            "after": self._row.json(change["after"], source["unavailable"]),
            "ttl": source["ttl"],
            "ttl_mixed": source["ttl_mixed"],
            "generation": iso_of_millis(source["generation_ms"]),
            "last_in_group": source["last_in_group"],
            "position": str(position or self._position(source)),
        }

    def line(self, change: Mapping[str, Any], position: Position | None) -> str:
        """A change as one line: time, table, operation, the row after it, what it was before, ttl, position."""
        source, before, after = change["source"], change["before"], change["after"]
        parts = [iso_of_micros(source["ts_us"]), f"{source['keyspace']}.{source['table']}", change["op"]]
        if after is None:
            parts += self._row.line(before, source["before_unavailable"])
        else:
            parts += self._row.line(after, source["unavailable"])
            if before is not None:
                # What stayed as it was is seen in the row after the change.
                changed = {name: value for name, value in before.items() if value != after[name]}
                parts[3:] = self._row.line(after, source["unavailable"], nulls=changed.keys())
                parts += ["<-", *self._row.line({**dict.fromkeys(before), **changed}, ())]
        if change.get("range") is not None:
            parts.append(self._ranges.text(change["range"]))
        parts += _ttl(source["ttl"], is_mixed=source["ttl_mixed"])
        return " ".join([*parts, "@", str(position or self._position(source))])

    @staticmethod
    def _position(source: Mapping[str, Any]) -> Position:
        return Position(bytes.fromhex(source["stream_id"]), uuid.UUID(source["time"]).bytes, source["batch_seq_no"])


class FlatText:
    """Renders the changes of one Avro schema of the shape `flat`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types once.

        Raises:
            ValueError: it is not such a schema.
        """
        if not {"__op", "__timestamp_us", "__unavailable"} <= {field["name"] for field in schema.get("fields", ())}:
            raise ValueError("not the schema of a change in the shape flat")
        self._table = str(schema.get("namespace", ""))
        self._row = _Row(AvroValues(schema), schema, besides=flat.RESERVED)

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """A change as values that JSON has; the row lacks the columns that the log does not tell."""
        bounds = change["__range"]
        return {
            "time": iso_of_micros(change["__timestamp_us"]),
            "table": self._table,
            "op": change["__op"],
            **({} if bounds is None else {"range": json.loads(bounds)}),
            "row": self._row.json(change, _unavailable(change)),
            "ttl": change["__ttl"],
            "ttl_mixed": change["__ttl_mixed"],
            "position": None if position is None else str(position),
        }

    def line(self, change: Mapping[str, Any], position: Position | None) -> str:
        """A change as one line: time, table, operation, the row, range, ttl, position."""
        parts = [iso_of_micros(change["__timestamp_us"]), self._table, change["__op"]]
        # Where rows are deleted, and in what a static row's change leaves alone, null says nothing.
        tells_nulls = not change["__deleted"] and change["__op"] != "static_update"
        parts += self._row.line(change, _unavailable(change), nulls=self._row.fields if tells_nulls else ())
        if change["__range"] is not None:
            parts.append(f"range={change['__range']}")
        parts += _ttl(change["__ttl"], is_mixed=change["__ttl_mixed"])
        return " ".join([*parts, *([] if position is None else ["@", str(position)])])


def _ttl(ttl_s: int | None, *, is_mixed: bool) -> list[str]:
    if is_mixed:
        return ["ttl=mixed"]
    return [] if ttl_s is None else [f"ttl={ttl_s}s"]


class KeyText:
    """Renders the record keys of one Avro schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types once.

        Raises:
            ValueError: it is not a record's schema.
        """
        if not isinstance(schema, dict) or "fields" not in schema:
            raise ValueError("not the schema of a key")
        self._row = _Row(AvroValues(schema), schema)

    def json(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """A key as values that JSON has."""
        return self._row.json(key, ())

    def line(self, key: Mapping[str, Any]) -> str:
        """A key on a line."""
        return " ".join(self._row.line(key, ()))


class _Row:
    """Renders records of columns, and of what may stand `besides` them."""

    def __init__(self, values: AvroValues, avro_type: Any, besides: Container[str] = ()) -> None:
        self.values = values
        fields = values.resolved(avro_type)["fields"]
        self.fields = {field["name"]: field for field in fields if field["name"] not in besides}

    def json(self, row: Mapping[str, Any] | None, unavailable: Iterable[str]) -> dict[str, Any] | None:
        if row is None:
            return None
        untold = set(unavailable)
        return {
            cql_name(field): json_value(self.values.value(row[name], field["type"]))
            for name, field in self.fields.items()
            if cql_name(field) not in untold
        }

    def line(self, row: Mapping[str, Any], unavailable: Iterable[str], *, nulls: Container[str] = ()) -> list[str]:
        """The row's columns; of those that are null the ones named in `nulls`, by their Avro names."""
        untold = set(unavailable)
        shown = []
        for name, field in self.fields.items():
            column, value = cql_name(field), row[name]
            if column in untold:
                shown.append(f"{shown_name(column)}={_UNKNOWN}")
            elif value is not None or name in nulls:
                shown.append(f"{shown_name(column)}={plain(self.values.value(value, field['type']))}")
        return shown


def _unavailable(change: Mapping[str, Any]) -> list[str]:
    names: list[str] = json.loads(change["__unavailable"] or "[]")
    return names
