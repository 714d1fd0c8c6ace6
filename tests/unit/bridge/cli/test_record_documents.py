"""Records as JSON documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from bridge.adapters.kafka.records import Record
from bridge.cli.output import json_text
from bridge.cli.record_documents import RecordDocuments
from schemas.cql.table import TableSchema
from schemas.errors import RegistryError
from schemas.options import DEFAULT_OUTPUT, OutputOptions, RecordForm, ShapeName
from schemas.table_codec import TableCodec
from schemas.wire.framing import frame
from tests.unit.bridge.encoding.captured_table import Capture
from tests.unit.schemas.example_tables import STREAM, TIME, counted, log_columns, row, sized, table
from tests.unit.schemas.recorded_cells import RECORDED

ORDERS = table(
    {"pk": "int"},
    {"ck": "text"},
    {"note": "text", "price": "decimal", "first name": "text", "raw": "blob", "seen": "timestamp", "day": "date"},
    keyspace="shop",
    name="orders",
)
KEY: Mapping[str, bytes | None] = {"pk": bytes([0, 0, 0, 7]), "ck": b"it's"}
TRUE = b"\x01"
POSITION = STREAM + TIME + bytes([0, 0, 0, 3])
POSITION_TEXT = "0xc0a8000000000000000000000000c0a1/b223c55e-6d07-11ea-7654-24e4fb3f20b9/3"


def _record(value: bytes | None, *, key: bytes | None = None, position: bytes = POSITION) -> Record:
    return Record("shop.orders", 0, 5, key, value, {"cdc.position": position}, 1_700_000_000_123)


@cache
def _codec(of: TableSchema, output: OutputOptions = DEFAULT_OUTPUT) -> TableCodec:
    return TableCodec(of, log_columns(of), output)


def _encoded(
    of: TableSchema, cells: Mapping[str, bytes | None], operation: int, ttl: bytes | None = None
) -> tuple[str, bytes]:
    codec = _codec(of)
    body = codec.encode(
        row(of, dict(cells), ttl), operation=operation, generation_ms=1_700_000_000_000, last_in_group=True
    )[1]
    return codec.value_avro_schema, frame(9, body)


def _document(cells: Mapping[str, bytes | None], operation: int = 1, *, ttl: bytes | None = None) -> dict[str, Any]:
    schema, value = _encoded(ORDERS, cells, operation, ttl)
    return RecordDocuments(lambda _: schema).document(_record(value))


def _touched(document: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a change that are not null: those that the change touches."""
    return {name: one for name, one in document["value"]["columns"].items() if one is not None}


def _bound(bound: dict[str, Any] | None) -> tuple[bool, dict[str, Any]] | None:
    """Return a bound as whether it is inclusive, and the clustering columns that it has, zero-length ones as null."""
    if bound is None:
        return None
    key = {name: one for name, one in bound["key"].items() if one is not None or name in bound["empty_columns"]}
    return bound["inclusive"], key


class TestDelta:
    """Changes of the shape `delta`."""

    def test_update(self) -> None:
        """A document has position, key and value with the fields of their schemas, then the record's place."""
        cells = {**KEY, "raw": b"\xff", "cdc$deleted_note": TRUE}
        document = _document(cells, ttl=(60).to_bytes(8, "big"))
        value = document.pop("value")
        assert document == {
            "position": POSITION_TEXT,
            "key": None,
            "topic": "shop.orders",
            "partition": 0,
            "offset": 5,
            "timestamp": "2023-11-14T22:13:20.123Z",
            "key_schema_id": None,
            "schema_id": 9,
        }
        assert (value["op"], value["key"], value["ttl"]) == ("update", {"pk": 7, "ck": "it's"}, 60)
        assert value["columns"] == {
            "note": {"value": None}, "raw": {"value": "0xff"},
            "price": None, "first name": None, "seen": None, "day": None,
        }  # fmt: skip
        assert value["source"]["timestamp_us"] == 1_584_969_040_910_883

    def test_names_and_calendars(self) -> None:
        """Columns have their CQL names; instants and days are readable, and beyond the calendar stay numbers."""
        cells = {**KEY, "first name": b"x", "price": bytes([0, 0, 0, 2, 4, 210]), "seen": bytes(8)}
        assert _touched(_document({**cells, "day": (1 << 31).to_bytes(4, "big")})) == {
            "price": {"value": "12.34"}, "first name": {"value": "x"},
            "seen": {"value": "1970-01-01T00:00:00.000Z"}, "day": {"value": "1970-01-01"},
        }  # fmt: skip
        far = {"seen": ((1 << 63) - 1).to_bytes(8, "big"), "day": bytes(4)}
        found = _touched(_document({**KEY, **far}))
        assert found == {"seen": {"value": "9223372036854775807 ms"}, "day": {"value": "-2147483648 days"}}

    @pytest.mark.parametrize(("operation", "name"), [(2, "insert"), (3, "row_delete"), (99, "unknown")])
    def test_operations(self, operation: int, name: str) -> None:
        """Each operation has its name."""
        assert _document(KEY, operation)["value"]["op"] == name

    def test_row_delete(self) -> None:
        """A delete has no columns."""
        assert _document(KEY, 3)["value"]["columns"] is None

    def test_partition_delete(self) -> None:
        """A change of a whole partition has no clustering key."""
        assert _document({"pk": KEY["pk"]}, 4)["value"]["key"] == {"pk": 7, "ck": None}

    def test_empty(self) -> None:
        """CQL's zero-length value is told apart from null."""
        found = _document({**KEY, "day": b""})
        assert (_touched(found), found["value"]["empty_columns"]) == ({"day": {"value": None}}, ["day"])

    def test_collections(self) -> None:
        """A change of a collection shows apart what it cleared, added and removed, with nested values as in CQL."""
        uuid = bytes.fromhex("50554d6e29bb11e5b345feff819cdc9f")
        cells = {
            "s": counted(b"x"),
            "cdc$deleted_s": TRUE,
            "cdc$deleted_elements_m": counted(b"k"),
            "l": counted(uuid, bytes(8), of=2),
            "u": sized(None, bytes(4)),
            "cdc$deleted_elements_u": counted(bytes(2)),
            "f": counted(b"a", sized(bytes(4), None), of=2),
        }
        assert _touched(_rich_document(cells)) == {
            "s": {"cleared": True, "added": ["x"], "removed": []},
            "m": {"cleared": False, "added": [], "removed": ["k"]},
            "l": {
                "cleared": False,
                "added": [{"key": "50554d6e-29bb-11e5-b345-feff819cdc9f", "value": "1970-01-01T00:00:00.000Z"}],
                "removed": [],
            },
            "u": {"cleared": False, "fields": {"a b": {"value": None}, "n": {"value": 0}}},
            "f": {"value": [{"key": "a", "value": {"field_0": 0, "field_1": None}}]},
        }

    @pytest.mark.parametrize(
        ("start", "end", "operations", "expected"),
        [
            ({}, {}, (5, 7), (None, None)),
            ({"ck": b"a"}, {"ck": b"b"}, (5, 8), ((True, {"ck": "a"}), (False, {"ck": "b"}))),
            (
                {"ck": b"a"},
                {"ck": b"b", "c2": bytes(4)},
                (6, 7),
                ((False, {"ck": "a"}), (True, {"ck": "b", "c2": 0})),
            ),
            ({"ck": b"a", "c2": b""}, {}, (5, 7), ((True, {"ck": "a", "c2": None}), None)),
        ],
    )
    def test_range(
        self,
        start: dict[str, bytes | None],
        end: dict[str, bytes | None],
        operations: tuple[int, int],
        expected: tuple[tuple[bool, dict[str, Any]] | None, tuple[bool, dict[str, Any]] | None],
    ) -> None:
        """A range delete shows its bounds; prefixes and open sides too."""
        last = row(RICH, {"pk": KEY["pk"], **end, "cdc$operation": bytes((operations[1],))})
        found = _rich_document(start, operations[0], range_end=last)
        assert found["value"]["op"] == "range_delete"
        assert {side: _bound(one) for side, one in found["value"]["range"].items()} == dict(
            zip(("start", "end"), expected, strict=True)
        )

    def test_images(self) -> None:
        """A change of the shape `full` has the images that its log row has."""
        key = {"pk": KEY["pk"], "ck": b"x", "c2": bytes(4)}
        before = row(RICH, {**key, "r": bytes(4), "cdc$operation": bytes(1)})
        output = OutputOptions(shape="full", decimals="string", timestamps="timestamp-millis")
        value = _rich_document(key, 3, before=before, output=output)["value"]
        assert value["before"] == {"f": None, "l": None, "m": None, "r": 0, "s": None, "u": None}
        assert value["after"] is None


RICH = table(
    {"pk": "int"},
    {"ck": "text", "c2": "int"},
    {"r": "int"},
    {
        "s": "set<text>",
        "m": "map<text, int>",
        "l": "list<timestamp>",
        "u": "u",
        "f": "frozen<map<text, frozen<tuple<int, int>>>>",
    },
    keyspace="shop",
    name="orders",
    types={"u": {"a b": "text", "n": "int"}},
)


def _rich_document(
    cells: Mapping[str, bytes | None],
    operation: int = 1,
    *,
    output: OutputOptions = OutputOptions(),  # noqa: B008
    range_end: tuple[bytes | None, ...] | None = None,
    before: tuple[bytes | None, ...] | None = None,
) -> dict[str, Any]:
    codec = _codec(RICH, output)
    _, body = codec.encode(
        row(RICH, {"pk": KEY["pk"], **cells}),
        operation=operation,
        generation_ms=1_700_000_000_000,
        last_in_group=True,
        range_end=range_end,
        before=before,
    )
    return RecordDocuments(lambda _: codec.value_avro_schema).document(_record(frame(9, body)))


@pytest.mark.parametrize(("cql_type", "raw", "expected"), RECORDED)
def test_every_value(cql_type: str, raw: str, expected: object) -> None:
    """Every recorded value of every type is shown, as JSON that everyone reads."""
    example = table({"pk": "int"}, {}, {"v": cql_type})
    schema, value = _encoded(example, {"pk": bytes(4), "v": bytes.fromhex(raw)}, 1)
    text = json_text(RecordDocuments(lambda _: schema).document(_record(value)), indent=None)
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    if isinstance(expected, bool | int) and cql_type not in ("timestamp", "date", "time"):
        assert document["value"]["columns"] == {"v": {"value": expected}}
    assert text.isprintable()


ROWS = (
    'CREATE TABLE shop.t (pk int, ck int, "a b" text, tags set<text>, PRIMARY KEY (pk, ck)) '
    "WITH cdc = {'enabled': true%s}"
)
INSERT = "INSERT INTO shop.t (pk, ck, \"a b\") VALUES (1, 2, 'x') USING TTL 60"
ADD = "UPDATE shop.t SET \"a b\" = 'y', tags = tags + {'t'} WHERE pk = 1 AND ck = 2"
NULL = 'UPDATE shop.t SET "a b" = null WHERE pk = 1 AND ck = 2'
DELETE = "DELETE FROM shop.t WHERE pk = 1 AND ck = 2"
RANGE = "DELETE FROM shop.t WHERE pk = 1 AND ck > 2"
FULL_IMAGES = ", 'preimage': 'full', 'postimage': true"


def _documents(shape: ShapeName, images: str, *statements: str, ddl: str = ROWS) -> list[dict[str, Any]]:
    """Return the documents of the statements' records, which have no position header."""
    output = OutputOptions(shape=shape, key="primary_key")
    capture = Capture(ddl % images, output=output, form=RecordForm(tombstones=True))
    texts = {1: capture.codec.key_avro_schema, 2: capture.codec.value_avro_schema}
    documents = RecordDocuments(lambda schema_id: texts[schema_id])
    found = []
    for one in capture.run(*statements):
        value = None if one.record.value is None else frame(2, one.record.value)
        record = Record("t", 0, 5, frame(1, one.record.key), value, {}, 1_769_860_800_000)
        found.append(documents.document(record))
    return found


class TestShapes:
    """The records of the other shapes: the same renderer, with the fields of their schemas."""

    def test_full(self) -> None:
        """A change has the rows before and after it."""
        _, added, nulled = (one["value"] for one in _documents("full", FULL_IMAGES, INSERT, ADD, NULL))
        assert added["op"] == "update"
        assert added["columns"]["tags"] == {"cleared": False, "added": ["t"], "removed": []}
        assert (added["before"], added["after"]) == ({"a b": "x", "tags": None}, {"a b": "y", "tags": ["t"]})
        assert nulled["columns"] == {"a b": {"value": None}, "tags": None}

    def test_debezium(self) -> None:
        """A change has before, after and source; a range delete its bounds."""
        inserted, deleted = (one["value"] for one in _documents("debezium", "", INSERT, RANGE))
        assert (inserted["op"], inserted["before"]) == ("c", None)
        assert inserted["after"] == {"pk": 1, "ck": 2, "a b": "x", "tags": None}
        assert (inserted["source"]["ttl"], inserted["source"]["unavailable"]) == (60, ["tags"])
        assert (deleted["op"], deleted["before"]["pk"]) == ("d", 1)
        assert deleted["range"] == {
            "start": {"inclusive": False, "key": {"ck": 2}, "empty_columns": []}, "end": None,
        }  # fmt: skip

    def test_flat(self) -> None:
        """A change has its row, and fields whose names begin with `__`."""
        inserted, deleted = (one["value"] for one in _documents("flat", "", INSERT, RANGE))
        assert {name: inserted[name] for name in ("pk", "ck", "a b", "tags")} == {
            "pk": 1, "ck": 2, "a b": "x", "tags": None,
        }  # fmt: skip
        assert (inserted["__op"], inserted["__ttl"]) == ("insert", 60)
        assert (deleted["__op"], deleted["__deleted"]) == ("range_delete", True)

    def test_record_key(self) -> None:
        """The record key is shown with its columns, and a tombstone has no value."""
        inserted, _, tombstone = _documents("debezium", "", INSERT, DELETE)
        assert inserted["key"] == {"pk": 1, "ck": 2}
        assert tombstone == {
            "position": None,
            "key": {"pk": 1, "ck": 2},
            "value": None,
            "topic": "t",
            "partition": 0,
            "offset": 5,
            "timestamp": "2026-01-31T12:00:00.000Z",
            "key_schema_id": 1,
            "schema_id": None,
        }


class TestOtherRecords:
    def _document(self, value: bytes | None, schema: str = '"string"', key: bytes | None = None) -> dict[str, Any]:
        return RecordDocuments(lambda _: schema).document(_record(value, key=key))

    def test_json(self) -> None:
        """A key or value without the registry's frame is read as JSON, such as a dead letter."""
        letter = {"stream_id": "00", "error": "shop.t: 'x'"}
        found = self._document(json.dumps(letter).encode(), key=b'"k"')
        assert (found["value"], found["key"], found.get("problem")) == (letter, "k", None)

    def test_neither_avro_nor_json(self) -> None:
        """Other bytes are shown in hex, and the problem names key and value."""
        found = self._document(b"x", key=b"\x01")
        assert (found["key"], found["value"], found["offset"]) == ("0x01", "0x78", 5)
        key, value = found["problem"].split("; ")
        assert key.startswith("key: not readable: message of 1 bytes")
        assert value.startswith("value: not readable: message of 1 bytes")

    def test_foreign_schema(self) -> None:
        """A record with another Avro schema is shown by that schema; types that a union leaves open stay plain."""
        types = {"a": {"type": "map", "values": ["null", "bytes"]}, "b": ["null", "int", "string"]}
        fields = [{"name": name, "type": kind} for name, kind in types.items()]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        found = self._document(frame(9, b"\x02\x02k\x02\x02\xff\x00" + b"\x02\x02"), schema)
        assert (found["value"], found["schema_id"], found.get("problem")) == ({"a": {"k": "0xff"}, "b": 1}, 9, None)

    def test_no_record(self) -> None:
        """A schema that is not a record's is a problem of the record."""
        found = self._document(frame(9, b"\x02a"), '"string"')
        assert found["problem"] == "value: not readable: its schema is not that of a record"

    def test_damaged(self) -> None:
        """A body that does not fit its schema is not readable; its schema's id is shown."""
        schema, value = _encoded(ORDERS, KEY, 1)
        found = self._document(value[:-1], schema)
        assert found["problem"].startswith("value: not readable: ")
        assert (found["value"], found["schema_id"]) == (f"0x{value[:-1].hex()}", 9)

    def test_registry(self) -> None:
        """A schema that the registry does not know is the record's problem; if the registry is down, it is an error."""

        def documents(*, retriable: bool) -> RecordDocuments:
            def ask(_schema_id: int) -> str:
                raise RegistryError("schema 9 is not there", retriable=retriable)

            return RecordDocuments(ask)

        problem = documents(retriable=False).document(_record(frame(9, b"")))["problem"]
        assert problem == "value: not readable: schema 9 is not there"
        with pytest.raises(RegistryError):
            documents(retriable=True).document(_record(frame(9, b"")))

    def test_damaged_position(self) -> None:
        """A position header of another length shows no position."""
        schema, value = _encoded(ORDERS, KEY, 1)
        assert RecordDocuments(lambda _: schema).document(_record(value, position=b"short"))["position"] is None
