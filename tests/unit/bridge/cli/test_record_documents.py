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


def _record(value: bytes | None, *, partition: int = 0, at: int = 5, position: bytes = POSITION) -> Record:
    return Record("shop.orders", partition, at, b"\x01", value, {"cdc.position": position}, 1_700_000_000_123)


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


class TestDelta:
    """Changes of the shape `delta`."""

    def test_update(self) -> None:
        """A document has what a change touched, null being "set to null"; what it left alone is absent."""
        cells = {**KEY, "raw": b"\xff", "cdc$deleted_note": TRUE}
        assert _document(cells, ttl=(60).to_bytes(8, "big")) == {
            "time": "2020-03-23T13:10:40.910883Z",
            "table": "shop.orders",
            "op": "update",
            "key": {"pk": 7, "ck": "it's"},
            "columns": {"note": None, "raw": "0xff"},
            "empty_columns": [],
            "ttl": 60,
            "generation": "2023-11-14T22:13:20.000Z",
            "last_in_group": True,
            "position": POSITION_TEXT,
            "partition": 0,
            "offset": 5,
            "schema_id": 9,
        }

    def test_names_and_calendars(self) -> None:
        """Columns have their CQL names; instants and days are readable, and beyond the calendar stay numbers."""
        cells = {**KEY, "first name": b"x", "price": bytes([0, 0, 0, 2, 4, 210]), "seen": bytes(8)}
        assert _document({**cells, "day": (1 << 31).to_bytes(4, "big")})["columns"] == {
            "price": "12.34", "first name": "x", "seen": "1970-01-01T00:00:00.000Z", "day": "1970-01-01",
        }  # fmt: skip
        far = {"seen": ((1 << 63) - 1).to_bytes(8, "big"), "day": bytes(4)}
        found = _document({**KEY, **far})["columns"]
        assert found == {"seen": "9223372036854775807 ms", "day": "-2147483648 days"}

    @pytest.mark.parametrize(("operation", "name"), [(2, "insert"), (3, "row_delete"), (99, "unknown")])
    def test_operations(self, operation: int, name: str) -> None:
        """Each operation has its name."""
        assert _document(KEY, operation)["op"] == name

    def test_row_delete(self) -> None:
        """A delete has no columns."""
        assert _document(KEY, 3)["columns"] is None

    def test_partition_delete(self) -> None:
        """A change of a whole partition has no clustering key."""
        assert _document({"pk": KEY["pk"]}, 4)["key"] == {"pk": 7, "ck": None}

    def test_empty(self) -> None:
        """CQL's zero-length value is told apart from null."""
        found = _document({**KEY, "day": b""})
        assert (found["columns"], found["empty_columns"]) == ({"day": None}, ["day"])

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
        assert _rich_document(cells)["columns"] == {
            "s": {"cleared": True, "added": ["x"], "removed": []},
            "m": {"cleared": False, "added": [], "removed": ["k"]},
            "l": {
                "cleared": False,
                "added": [{"key": "50554d6e-29bb-11e5-b345-feff819cdc9f", "value": "1970-01-01T00:00:00.000Z"}],
                "removed": [],
            },
            "u": {"cleared": False, "fields": {"a b": None, "n": 0}},
            "f": [{"key": "a", "value": {"field_0": 0, "field_1": None}}],
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
            ({"ck": b"a", "c2": b""}, {}, (5, 7), ((True, {"ck": "a", "c2": "empty"}), None)),
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
        assert found["op"] == "range_delete"
        assert found["range"] == {
            side: None if bound is None else {"inclusive": bound[0], "key": bound[1]}
            for side, bound in zip(("start", "end"), expected, strict=True)
        }

    def test_images(self) -> None:
        """A change of the shape `full` has the images that its log row has."""
        key = {"pk": KEY["pk"], "ck": b"x", "c2": bytes(4)}
        before = row(RICH, {**key, "r": bytes(4), "cdc$operation": bytes(1)})
        output = OutputOptions(shape="full", decimals="string", timestamps="timestamp-millis")
        document = _rich_document(key, 3, before=before, output=output)
        assert document["before"] == {"f": None, "l": None, "m": None, "r": 0, "s": None, "u": None}
        assert "after" not in document


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
    columns = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["columns"]
    if isinstance(expected, bool | int) and cql_type not in ("timestamp", "date", "time"):
        assert columns == {"v": expected}
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
    """The documents of the statements' records, which have no position header."""
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


class TestFull:
    def test_images(self) -> None:
        """A change has the rows before and after it."""
        _, added, nulled = _documents("full", FULL_IMAGES, INSERT, ADD, NULL)
        assert (added["time"], added["table"], added["op"]) == ("2026-01-31T12:00:01.000000Z", "shop.t", "update")
        assert added["columns"] == {"a b": "y", "tags": {"cleared": False, "added": ["t"], "removed": []}}
        assert (added["before"], added["after"]) == ({"a b": "x", "tags": None}, {"a b": "y", "tags": ["t"]})
        assert nulled["columns"] == {"a b": None}
        assert (nulled["before"], nulled["after"]) == ({"a b": "y", "tags": ["t"]}, {"a b": None, "tags": ["t"]})


class TestRowShapes:
    def test_debezium(self) -> None:
        """A row lacks the columns that the log does not hold."""
        inserted, added, deleted = _documents("debezium", "", INSERT, ADD, RANGE)
        assert (inserted["time"], inserted["table"]) == ("2026-01-31T12:00:00.000000Z", "shop.t")
        assert [one["op"] for one in (inserted, added, deleted)] == ["c", "u", "d"]
        assert (inserted["before"], inserted["after"]) == (None, {"pk": 1, "ck": 2, "a b": "x"})
        assert (inserted["ttl"], added["after"]) == (60, {"pk": 1, "ck": 2, "a b": "y"})
        assert deleted["before"] == {"pk": 1, "ck": None}
        assert deleted["range"] == {"start": {"inclusive": False, "key": {"ck": 2}}, "end": None}

    def test_debezium_with_images(self) -> None:
        """With images, both rows are whole; a delete is followed by a tombstone with its key."""
        _, added, deleted, tombstone = _documents("debezium", FULL_IMAGES, INSERT, ADD, DELETE)
        assert added["before"] == {"pk": 1, "ck": 2, "a b": "x", "tags": None}
        assert added["after"] == deleted["before"] == {"pk": 1, "ck": 2, "a b": "y", "tags": ["t"]}
        assert (tombstone["op"], tombstone["key"]) == ("tombstone", {"pk": 1, "ck": 2})

    def test_column_set_to_null(self) -> None:
        """A column that was set to null is in the row; one that the log does not hold is absent."""
        assert _documents("flat", "", INSERT, NULL)[1]["row"] == {"pk": 1, "ck": 2, "a b": None}
        nulled = _documents("debezium", FULL_IMAGES, INSERT, NULL)[1]
        assert (nulled["before"]["a b"], nulled["after"]["a b"]) == ("x", None)

    def test_flat(self) -> None:
        """A change of the shape `flat` has its row, and no position of its own."""
        inserted, deleted = _documents("flat", "", INSERT, RANGE)
        assert inserted["row"] == {"pk": 1, "ck": 2, "a b": "x"}
        assert (inserted["time"], inserted["table"]) == ("2026-01-31T12:00:00.000000Z", "shop.t")
        assert (inserted["op"], inserted["ttl"]) == ("insert", 60)
        assert deleted["range"] == {
            "start": {"inclusive": False, "key": {"ck": 2}, "empty_columns": []}, "end": None,
        }  # fmt: skip
        assert (deleted["op"], deleted["position"]) == ("range_delete", None)

    def test_columns_named_like_the_fields_of_flat(self) -> None:
        """A column is shown in every shape, whatever its name begins with."""
        columns = 'pk int, "__ck" int, "__v" int, PRIMARY KEY (pk, "__ck")'
        ddl = f"CREATE TABLE shop.t ({columns}) WITH cdc = {{'enabled': true%s}}"
        statements = (
            'INSERT INTO shop.t (pk, "__ck", "__v") VALUES (1, 2, 3)',
            'DELETE FROM shop.t WHERE pk = 1 AND "__ck" = 2',
        )
        inserted, deleted, tombstone = _documents("debezium", "", *statements, ddl=ddl)
        assert inserted["after"] == {"pk": 1, "__ck": 2, "__v": 3}
        assert deleted["before"] == tombstone["key"] == {"pk": 1, "__ck": 2}
        assert _documents("flat", "", statements[0], ddl=ddl)[0]["row"] == {"pk": 1, "__ck": 2, "__v": 3}

    @pytest.mark.parametrize("shape", ["debezium", "flat"])
    def test_mixed_ttls(self, shape: ShapeName) -> None:
        """Several times to live are told apart from none."""
        (document,) = _documents(shape, "", f"BEGIN BATCH {INSERT}; {ADD}; APPLY BATCH")
        assert (document["ttl"], document["ttl_mixed"]) == (None, True)

    def test_position_of_the_source_block(self) -> None:
        """Without a position header, the source block tells the position."""
        (inserted,) = _documents("debezium", "", INSERT)
        assert inserted["position"].startswith("0xced0")


def test_tombstone() -> None:
    """A tombstone has its key."""
    assert _documents("delta", "", DELETE)[1] == {
        "op": "tombstone",
        "key": {"pk": 1, "ck": 2},
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "key_schema_id": 1,
    }


def test_dead_letter() -> None:
    """A dead letter is shown as it is, with its place."""
    letter = {"stream_id": "00", "error": "shop.t: 'x'"}
    assert RecordDocuments(lambda _: "").document(_record(json.dumps(letter).encode())) == {**letter, **PLACE}


PLACE = {"topic": "shop.orders", "partition": 0, "offset": 5, "timestamp": "2023-11-14T22:13:20.123Z"}


class TestOtherRecords:
    def _document(self, value: bytes | None, schema: str = '"string"') -> dict[str, Any]:
        return RecordDocuments(lambda _: schema).document(_record(value))

    def test_tombstone_with_an_unreadable_key(self) -> None:
        """The key is shown as bytes."""
        expected = {"problem": "a tombstone whose key is not readable", "key": "0x01", **PLACE}
        assert self._document(None) == expected

    def test_no_frame(self) -> None:
        """A value without the registry's frame is a problem of its record alone."""
        found = self._document(b'{"lane":0}')
        assert found["problem"].startswith("not readable: first byte is 0x7b")
        assert self._document(b"x")["offset"] == 5

    def test_other_schema(self) -> None:
        """A record with another schema is not taken for a change."""
        schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
        found = self._document(frame(9, b"\x02"), schema)
        assert (found["problem"], found["schema_id"]) == ("not a change: the record has another schema", 9)

    def test_damaged(self) -> None:
        """A body that does not fit its schema is not readable."""
        schema, value = _encoded(ORDERS, KEY, 1)
        assert self._document(value[:-1], schema)["problem"].startswith("not readable: ")

    def test_registry(self) -> None:
        """A schema that the registry does not know is the record's problem; if the registry is down, it is an error."""

        def documents(*, retriable: bool) -> RecordDocuments:
            def ask(_schema_id: int) -> str:
                raise RegistryError("schema 9 is not there", retriable=retriable)

            return RecordDocuments(ask)

        problem = documents(retriable=False).document(_record(frame(9, b"")))["problem"]
        assert problem == "not readable: schema 9 is not there"
        with pytest.raises(RegistryError):
            documents(retriable=True).document(_record(frame(9, b"")))

    def test_position_of_the_envelope(self) -> None:
        """Without a good position header, the envelope tells the position."""
        schema, value = _encoded(ORDERS, KEY, 1)
        found = RecordDocuments(lambda _: schema).document(_record(value, position=b"short"))
        assert found["position"] == POSITION_TEXT.replace("/3", "/0")
