"""Decoded changes and record keys as JSON values, for each shape of records. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterable, Mapping
from typing import Any

from bridge.encoding.json_values import AvroValues, RangeBounds, cql_name, json_value
from bridge.model.position import Position
from bridge.model.times import iso_of_micros, iso_of_millis
from schemas.shapes import flat


class EnvelopeJson:
    """Renders the changes of one Avro schema of the shapes `delta` and `full`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types of a schema.

        Raises:
            ValueError: the schema has another shape.
        """
        self._values = AvroValues(schema)
        fields = {field["name"]: field["type"] for field in schema.get("fields", ())}
        if not {"op", "key", "columns", "source"} <= fields.keys():
            raise ValueError("not the schema of a change")
        self._key = {field["name"]: field for field in self._values.resolve(fields["key"])["fields"]}
        self._columns = {field["name"]: field for field in self._values.resolve(fields["columns"])["fields"]}
        self._ranges = RangeBounds(self._values, self._key)
        self._images = {name: fields[name] for name in ("before", "after") if name in fields}

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """Return a change as JSON values.

        `columns` holds only the columns that the change touches; null means that it sets a column to null. `range` is
        given for range deletes only; `before` and `after` only if the change has the image.

        Args:
            change: the decoded Avro record.
            position: the position in the record's header; None takes it from the record.
        """
        source = change["source"]
        return {
            "time": iso_of_micros(source["timestamp_us"]),
            "table": f"{source['keyspace']}.{source['table']}",
            "op": change["op"],
            **({} if change.get("range") is None else {"range": self._ranges.json(change["range"])}),
            "key": {
                cql_name(field): json_value(self._values.value(change["key"].get(name), field["type"]))
                for name, field in self._key.items()
            },
            "columns": None if change["columns"] is None else self._touched_columns(change["columns"]),
            "empty_columns": list(change.get("empty_columns") or ()),
            **{
                name: json_value(self._values.value(change[name], avro_type))
                for name, avro_type in self._images.items()
                if change.get(name) is not None
            },
            "ttl": change.get("ttl"),
            "generation": iso_of_millis(source["generation_ms"]),
            "last_in_group": source["last_in_group"],
            "position": str(position or Position(source["stream_id"], source["time"], source["batch_seq_no"])),
        }

    def _touched_columns(self, columns: Mapping[str, Any]) -> dict[str, object]:
        return {
            cql_name(field): json_value(self._read_cell(columns[name], field["type"]))
            for name, field in self._columns.items()
            if columns.get(name) is not None
        }

    def _read_cell(self, cell: Mapping[str, Any], avro_type: Any) -> object:
        """Return the value that a change sets; for a column of several cells, what it clears, adds and removes."""
        types = {field["name"]: field for field in self._values.resolve(avro_type)["fields"]}
        if "cleared" not in types:
            return self._values.value(cell["value"], types["value"]["type"])
        if "fields" not in types:
            added, removed = (self._values.value(cell[part], types[part]["type"]) for part in ("added", "removed"))
            return {"cleared": cell["cleared"], "added": added, "removed": removed}
        fields = {
            cql_name(field): self._read_cell(cell["fields"][field["name"]], field["type"])
            for field in self._values.resolve(types["fields"]["type"])["fields"]
            if cell["fields"][field["name"]] is not None
        }
        return {"cleared": cell["cleared"], "fields": fields}


class DebeziumJson:
    """Renders the changes of one Avro schema of the shape `debezium`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types of a schema.

        Raises:
            ValueError: the schema has another shape.
        """
        fields = {field["name"]: field["type"] for field in schema.get("fields", ())}
        if not {"before", "after", "op", "source", "transaction"} <= fields.keys():
            raise ValueError("not the schema of a change in the shape debezium")
        values = AvroValues(schema)
        self._row = _RowJson(values, fields["before"])
        self._ranges = RangeBounds(values, self._row.fields)

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """Return a change as JSON values; a row lacks the columns whose value the log does not tell.

        Args:
            change: the decoded Avro record.
            position: the position in the record's header; None takes it from the record.
        """
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
            "position": str(position or _position_in(source)),
        }


class FlatJson:
    """Renders the changes of one Avro schema of the shape `flat`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types of a schema.

        Raises:
            ValueError: the schema has another shape.
        """
        if not {"__op", "__timestamp_us", "__unavailable"} <= {field["name"] for field in schema.get("fields", ())}:
            raise ValueError("not the schema of a change in the shape flat")
        self._table = str(schema.get("namespace", ""))
        self._row = _RowJson(AvroValues(schema), schema, omitted=flat.RESERVED)

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """Return a change as JSON values; the row lacks the columns whose value the log does not tell.

        Args:
            change: the decoded Avro record.
            position: the position in the record's header; the record itself has none.
        """
        bounds = change["__range"]
        return {
            "time": iso_of_micros(change["__timestamp_us"]),
            "table": self._table,
            "op": change["__op"],
            **({} if bounds is None else {"range": json.loads(bounds)}),
            "row": self._row.json(change, json.loads(change["__unavailable"] or "[]")),
            "ttl": change["__ttl"],
            "ttl_mixed": change["__ttl_mixed"],
            "position": None if position is None else str(position),
        }


class KeyJson:
    """Renders the record keys of one Avro schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types of a schema.

        Raises:
            ValueError: the schema is not that of a record.
        """
        if not isinstance(schema, dict) or "fields" not in schema:
            raise ValueError("not the schema of a key")
        self._row = _RowJson(AvroValues(schema), schema)

    def json(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a decoded key as JSON values."""
        return self._row.json(key, ())


class _RowJson:
    """Renders records whose fields are columns of a row, except the `omitted` fields."""

    def __init__(self, values: AvroValues, avro_type: Any, omitted: Container[str] = ()) -> None:
        self._values = values
        fields = values.resolve(avro_type)["fields"]
        self.fields = {field["name"]: field for field in fields if field["name"] not in omitted}

    def json(self, row: Mapping[str, Any] | None, unavailable: Iterable[str]) -> dict[str, Any] | None:
        if row is None:
            return None
        omitted = set(unavailable)
        return {
            cql_name(field): json_value(self._values.value(row[name], field["type"]))
            for name, field in self.fields.items()
            if cql_name(field) not in omitted
        }


def _position_in(source: Mapping[str, Any]) -> Position:
    return Position(bytes.fromhex(source["stream_id"]), uuid.UUID(source["time"]).bytes, source["batch_seq_no"])
