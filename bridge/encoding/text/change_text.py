"""Decoded changes as text: a line for people, or a JSON document. Pure; the Avro schemas say what the values are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.encoding.text.value_text import AvroValues, Delta, Ranges, cql_name, json_value, plain, shown_name
from bridge.model.position import Position
from bridge.model.times import iso_of_micros, iso_of_millis


class EnvelopeText:
    """Renders the changes of one Avro schema of the shapes `delta` and `full`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Look up names and types once.

        Args:
            schema: the envelope's, as the registry has it.

        Raises:
            ValueError: it is not an envelope's schema.
        """
        self._values = AvroValues(schema)
        fields = {field["name"]: field["type"] for field in schema.get("fields", ())}
        if not {"op", "key", "columns", "source"} <= fields.keys():
            raise ValueError("not the schema of a change")
        self._key = {field["name"]: field for field in self._values.resolved(fields["key"])["fields"]}
        self._columns = {field["name"]: field for field in self._values.resolved(fields["columns"])["fields"]}
        self._ranges = Ranges(self._values, self._key)
        self._images = {name: fields[name] for name in ("before", "after") if name in fields}

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """A change as values that JSON has; `columns` holds only what was touched, null being "set to null".

        `range` is there for range deletes only, `before` and `after` for changes that have such an image.
        """
        source = change["source"]
        return {
            "time": iso_of_micros(source["timestamp_us"]),
            "table": f"{source['keyspace']}.{source['table']}",
            "op": change["op"],
            **({} if change.get("range") is None else {"range": self._ranges.json(change["range"])}),
            "key": {name: json_value(value) for name, value in self._key_values(change)},
            "columns": None
            if change["columns"] is None
            else {name: json_value(value) for name, value in self._column_values(change)},
            "empty_columns": list(change.get("empty_columns") or ()),
            **{
                name: json_value(self._values.value(change[name], avro_type))
                for name, avro_type in self._images.items()
                if change.get(name) is not None
            },
            "ttl": change.get("ttl"),
            "generation": iso_of_millis(source["generation_ms"]),
            "last_in_group": source["last_in_group"],
            "position": str(position or _position_in(source)),
        }

    def line(self, change: Mapping[str, Any], position: Position | None) -> str:
        """A change as one line: time, table, operation, key or range, columns, ttl, images, position."""
        source = change["source"]
        parts = [iso_of_micros(source["timestamp_us"]), f"{source['keyspace']}.{source['table']}", change["op"]]
        parts += [f"{shown_name(name)}={plain(value)}" for name, value in self._key_values(change) if value is not None]
        if change.get("range") is not None:
            parts.append(self._ranges.text(change["range"]))
        empty = set(change.get("empty_columns") or ())
        columns = [
            f"{shown_name(name)}={'empty' if name in empty else plain(value)}"
            for name, value in self._column_values(change)
        ]
        if columns:
            parts += ["|", *columns]
        if change.get("ttl") is not None:
            parts.append(f"ttl={change['ttl']}s")
        for name in self._images:
            if change.get(name) is not None:
                parts += ["|", f"{name}:", *(self._image(change, name) or ["nothing but nulls"])]
        return " ".join([*parts, "@", str(position or _position_in(source))])

    def _key_values(self, change: Mapping[str, Any]) -> list[tuple[str, object]]:
        return [
            (cql_name(field), self._values.value(change["key"].get(name), field["type"]))
            for name, field in self._key.items()
        ]

    def _image(self, change: Mapping[str, Any], name: str) -> list[str]:
        """The columns of the row before or after a change that are not null; `?` where the log does not tell."""
        unknown, empty = (set(change.get(f"{name}_{what}") or ()) for what in ("unknown", "empty"))
        shown = []
        for field in self._values.resolved(self._images[name])["fields"]:
            column, value = cql_name(field), self._values.value(change[name][field["name"]], field["type"])
            text = "?" if column in unknown else "empty" if column in empty else plain(value)
            if text != "null":
                shown.append(f"{shown_name(column)}={text}")
        return shown

    def _column_values(self, change: Mapping[str, Any]) -> list[tuple[str, object]]:
        touched = []
        for name, field in self._columns.items():
            cell = (change["columns"] or {}).get(name)
            if cell is not None:
                touched.append((cql_name(field), self._cell(cell, field["type"])))
        return touched

    def _cell(self, cell: Mapping[str, Any], avro_type: Any) -> object:
        """What a change did to a column or to a field: the value that it has now, or what was added and removed."""
        types = {field["name"]: field for field in self._values.resolved(avro_type)["fields"]}
        if "cleared" not in types:
            return self._values.value(cell["value"], types["value"]["type"])
        if "fields" not in types:
            added, removed = (self._values.value(cell[part], types[part]["type"]) for part in ("added", "removed"))
            return Delta(cleared=cell["cleared"], added=added, removed=removed)
        fields = {
            cql_name(field): self._cell(cell["fields"][field["name"]], field["type"])
            for field in self._values.resolved(types["fields"]["type"])["fields"]
            if cell["fields"][field["name"]] is not None
        }
        return Delta(cleared=cell["cleared"], fields=fields)


def _position_in(source: Mapping[str, Any]) -> Position:
    return Position(source["stream_id"], source["time"], source["batch_seq_no"])
