"""Reading a change topic for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from bridge.adapters.kafka.records import Record
from bridge.cli.consume import ChangePrinter, Wanted, records
from bridge.errors import RetriableError
from bridge.model.record_form import RecordForm
from schemas.cql.table import TableSchema
from schemas.errors import RegistryError
from schemas.options import DEFAULT_OUTPUT, OutputOptions, ShapeName
from schemas.table_codec import TableCodec
from schemas.wire.framing import frame
from tests.unit.bridge.encoding.carried import Capture
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
    body = codec.encode_value(
        row(of, dict(cells), ttl), operation=operation, generation_ms=1_700_000_000_000, last_in_group=True
    )
    return codec.value_avro_schema, frame(9, body)


def _line(
    cells: Mapping[str, bytes | None], operation: int = 1, *, as_json: bool = False, ttl: bytes | None = None
) -> str:
    schema, value = _encoded(ORDERS, cells, operation, ttl)
    return ChangePrinter(lambda _: schema, as_json=as_json).line(_record(value))


class TestLine:
    def test_update(self) -> None:
        """A line has time, table, operation, key, what was touched (null included) and position; nothing else."""
        cells = {**KEY, "price": bytes([0, 0, 0, 2, 4, 210]), "cdc$deleted_note": TRUE}
        assert _line(cells) == (
            '2020-03-23T13:10:40.910883Z shop.orders update pk=7 ck="it\'s" | note=null price=12.34 @ ' + POSITION_TEXT
        )

    def test_ttl(self) -> None:
        """A time to live is shown in seconds."""
        assert " | raw=0xff00 ttl=60s @ " in _line({**KEY, "raw": b"\xff\0"}, ttl=(60).to_bytes(8, "big"))

    def test_names_and_calendars(self) -> None:
        """Columns have their CQL names; instants and days are readable, and beyond the calendar stay numbers."""
        cells = {**KEY, "first name": b"\x1b[31m", "seen": bytes(8), "day": (1 << 31).to_bytes(4, "big")}
        text = _line(cells)
        assert " day=1970-01-01 'first name'='\\x1b[31m' seen=1970-01-01T00:00:00.000Z @" in text
        far = {"seen": ((1 << 63) - 1).to_bytes(8, "big"), "day": bytes(4)}
        assert " day=-2147483648 days seen=9223372036854775807 ms @" in _line({**KEY, **far})

    @pytest.mark.parametrize(("operation", "name"), [(2, "insert"), (3, "row_delete"), (99, "unknown")])
    def test_operations(self, operation: int, name: str) -> None:
        """Each operation has its name."""
        assert f" shop.orders {name} pk=7 " in _line(KEY, operation)

    def test_partition_delete(self) -> None:
        """A change of a whole partition shows only the partition key."""
        assert "partition_delete pk=7 @ " in _line({"pk": KEY["pk"]}, 4)

    def test_empty(self) -> None:
        """CQL's zero-length value is told apart from null."""
        assert "| day=empty @" in _line({**KEY, "day": b""})

    def test_collections(self) -> None:
        """What was cleared, added and removed is told apart, and nested values are shown as in CQL."""
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
        assert _rich_line(cells) == (
            "static_update pk=7 | f={'a': {field_0=0, field_1=null}} "
            "l=+[{key=50554d6e-29bb-11e5-b345-feff819cdc9f, value=1970-01-01T00:00:00.000Z}] "
            "m=-['k'] s=cleared+['x'] u={'a b'=null, n=0}"
        )
        assert json.loads(_rich_line(cells, as_json=True))["columns"] == {
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
        ("start", "end", "operations", "text"),
        [
            ({}, {}, (5, 7), "(..)"),
            ({"ck": b"a"}, {"ck": b"b"}, (5, 8), "[ck='a' .. ck='b')"),
            ({"ck": b"a"}, {"ck": b"b", "c2": bytes(4)}, (6, 7), "(ck='a' .. ck='b',c2=0]"),
            ({"ck": b"a", "c2": b""}, {}, (5, 7), "[ck='a',c2=empty ..)"),
        ],
    )
    def test_range(
        self,
        start: dict[str, bytes | None],
        end: dict[str, bytes | None],
        operations: tuple[int, int],
        text: str,
    ) -> None:
        """A range delete shows its bounds, prefixes and open sides included."""
        last = row(RICH, {"pk": KEY["pk"], **end, "cdc$operation": bytes((operations[1],))})
        assert _rich_line(start, operations[0], range_end=last) == f"range_delete pk=7 {text}"
        found = json.loads(_rich_line(start, operations[0], range_end=last, as_json=True))["range"]
        assert (found["start"] is None, found["end"] is None) == (not start, not end)

    def test_images(self) -> None:
        """Images are in the document of a change that has them."""
        key = {"pk": KEY["pk"], "ck": b"x", "c2": bytes(4)}
        before = row(RICH, {**key, "r": bytes(4), "cdc$operation": bytes(1)})
        output = OutputOptions(shape="full", decimals="string", timestamps="timestamp-millis")
        document = json.loads(_rich_line(key, 3, before=before, output=output, as_json=True))
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


def _rich_line(
    cells: Mapping[str, bytes | None],
    operation: int = 1,
    *,
    output: OutputOptions = OutputOptions(),  # noqa: B008
    as_json: bool = False,
    range_end: tuple[bytes | None, ...] | None = None,
    before: tuple[bytes | None, ...] | None = None,
) -> str:
    """The middle of a line, or a document."""
    codec = _codec(RICH, output)
    _, body = codec.encode(
        row(RICH, {"pk": KEY["pk"], **cells}),
        operation=operation,
        generation_ms=1_700_000_000_000,
        last_in_group=True,
        range_end=range_end,
        before=before,
    )
    text = ChangePrinter(lambda _: codec.value_avro_schema, as_json=as_json).line(_record(frame(9, body)))
    return text if as_json else text.split("shop.orders ")[1].split(" @ ")[0]


class TestJson:
    def test_update(self) -> None:
        """A document has the same, null being "set to null" and what was not touched being absent."""
        cells = {**KEY, "raw": b"\xff", "cdc$deleted_note": TRUE}
        assert json.loads(_line(cells, as_json=True, ttl=(60).to_bytes(8, "big"))) == {
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

    def test_delete(self) -> None:
        """A delete has no columns."""
        assert json.loads(_line(KEY, 3, as_json=True))["columns"] is None


@pytest.mark.parametrize(("cql_type", "raw", "expected"), RECORDED)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_value(cql_type: str, raw: str, expected: object, as_json: bool) -> None:
    """Every recorded value of every type can be shown, and as JSON that everyone reads."""
    example = table({"pk": "int"}, {}, {"v": cql_type})
    schema, value = _encoded(example, {"pk": bytes(4), "v": bytes.fromhex(raw)}, 1)
    text = ChangePrinter(lambda _: schema, as_json=as_json).line(_record(value))
    if as_json:
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
RANGE = "DELETE FROM shop.t WHERE pk = 1 AND ck > 2"
PLACE = "0xced0000000000000000000000000c0a1/"


def _printed(shape: ShapeName, images: str, *statements: str, as_json: bool = False, ddl: str = ROWS) -> list[str]:
    """What is printed of the statements' records, without the position's time."""
    output = OutputOptions(shape=shape, key="primary_key")
    capture = Capture(ddl % images, output=output, form=RecordForm(tombstones=True))
    texts = {1: capture.codec.key_avro_schema, 2: capture.codec.value_avro_schema}
    printer = ChangePrinter(lambda schema_id: texts[schema_id], as_json=as_json)
    lines = []
    for one in capture.run(*statements):
        value = None if one.record.value is None else frame(2, one.record.value)
        headers = {} if as_json else {"cdc.position": one.record.position}
        lines.append(printer.line(Record("t", 0, 5, frame(1, one.record.key), value, headers, 1_769_860_800_000)))
    return lines if as_json else [line.split(PLACE)[0] for line in lines]


class TestImages:
    def test_line(self) -> None:
        """A change of the shape `full` shows the rows before and after it: what is not null, and what is not told."""
        nulled = 'UPDATE shop.t SET "a b" = null WHERE pk = 1 AND ck = 2'
        assert _printed("full", ", 'preimage': 'full', 'postimage': true", INSERT, ADD, nulled)[1:] == [
            "2026-01-31T12:00:01.000000Z shop.t update pk=1 ck=2 | 'a b'='y' tags=+['t'] "
            "| before: 'a b'='x' | after: 'a b'='y' tags=['t'] @ ",
            "2026-01-31T12:00:02.000000Z shop.t update pk=1 ck=2 | 'a b'=null "
            "| before: 'a b'='y' tags=['t'] | after: tags=['t'] @ ",
        ]
        assert _printed("full", ", 'preimage': true", INSERT, nulled)[1].endswith(" | before: 'a b'='x' tags=? @ ")


class TestRowShapes:
    def test_debezium(self) -> None:
        """A line has the row after the change, and what was otherwise before; a question mark is what nobody told."""
        delete = "DELETE FROM shop.t WHERE pk = 1 AND ck = 2"
        assert _printed("debezium", "", INSERT, ADD, RANGE) == [
            "2026-01-31T12:00:00.000000Z shop.t c pk=1 ck=2 'a b'='x' tags=? ttl=60s @ ",
            "2026-01-31T12:00:01.000000Z shop.t u pk=1 ck=2 'a b'='y' tags=? @ ",
            "2026-01-31T12:00:02.000000Z shop.t d pk=1 'a b'=? tags=? (ck=2 ..) @ ",
        ]
        assert _printed("debezium", ", 'preimage': 'full', 'postimage': true", INSERT, ADD, delete)[1:] == [
            "2026-01-31T12:00:01.000000Z shop.t u pk=1 ck=2 'a b'='y' tags=['t'] <- 'a b'='x' @ ",
            "2026-01-31T12:00:02.000000Z shop.t d pk=1 ck=2 'a b'='y' tags=['t'] @ ",
            "2026-01-31T12:00:00.000Z t[0]@5 tombstone pk=1 ck=2",
        ]

    def test_what_was_set_to_null(self) -> None:
        """It is shown, as what the log tells to be null; what it does not tell is a question mark."""
        nulled = 'UPDATE shop.t SET "a b" = null WHERE pk = 1 AND ck = 2'
        assert _printed("flat", "", INSERT, nulled)[1:] == [
            "2026-01-31T12:00:01.000000Z shop.t update pk=1 ck=2 'a b'=null tags=? @ ",
        ]
        assert _printed("debezium", ", 'preimage': 'full', 'postimage': true", INSERT, nulled)[1:] == [
            "2026-01-31T12:00:01.000000Z shop.t u pk=1 ck=2 'a b'=null <- 'a b'='x' @ ",
        ]

    def test_flat(self) -> None:
        """So has one of the shape `flat`."""
        assert _printed("flat", "", INSERT, RANGE) == [
            "2026-01-31T12:00:00.000000Z shop.t insert pk=1 ck=2 'a b'='x' tags=? ttl=60s @ ",
            "2026-01-31T12:00:01.000000Z shop.t range_delete pk=1 'a b'=? tags=? "
            'range={"start": {"inclusive": false, "key": {"ck": 2}, "empty_columns": []}, "end": null} @ ',
        ]

    def test_columns_named_like_the_fields_of_flat(self) -> None:
        """A column is one in every shape, whatever its name begins with."""
        columns = 'pk int, "__ck" int, "__v" int, PRIMARY KEY (pk, "__ck")'
        ddl = f"CREATE TABLE shop.t ({columns}) WITH cdc = {{'enabled': true%s}}"
        statements = (
            'INSERT INTO shop.t (pk, "__ck", "__v") VALUES (1, 2, 3)',
            'DELETE FROM shop.t WHERE pk = 1 AND "__ck" = 2',
        )
        found = _printed("debezium", "", *statements, ddl=ddl)
        assert [line.split(" shop.t ")[-1] for line in found] == [
            "c pk=1 __ck=2 __v=3 @ ",
            "d pk=1 __ck=2 __v=? @ ",
            "2026-01-31T12:00:00.000Z t[0]@5 tombstone pk=1 __ck=2",
        ]
        assert " insert pk=1 __ck=2 __v=3 @ " in _printed("flat", "", statements[0], ddl=ddl)[0]

    def test_mixed_ttls(self) -> None:
        """Several times to live are told from none."""
        batch = f"BEGIN BATCH {INSERT}; {ADD}; APPLY BATCH"
        for shape in ("debezium", "flat"):
            (line,) = _printed(shape, "", batch)
            assert " ttl=mixed" in line
            (document,) = (json.loads(one) for one in _printed(shape, "", batch, as_json=True))
            assert (document["ttl"], document["ttl_mixed"]) == (None, True)

    def test_json(self) -> None:
        """A document lacks the columns that nobody told; the envelope says where it stands, a flat row does not."""
        found = [json.loads(line) for line in _printed("debezium", "", INSERT, RANGE, as_json=True)]
        assert found[0]["after"] == {"pk": 1, "ck": 2, "a b": "x"}
        assert (found[0]["before"], found[0]["ttl"], found[0]["op"]) == (None, 60, "c")
        assert found[0]["position"].startswith("0xced0")
        assert found[1]["before"] == {"pk": 1, "ck": None}
        assert found[1]["range"] == {"start": {"inclusive": False, "key": {"ck": 2}}, "end": None}
        flat = [json.loads(line) for line in _printed("flat", "", INSERT, RANGE, as_json=True)]
        assert flat[0]["row"] == {"pk": 1, "ck": 2, "a b": "x"}
        assert (flat[1]["op"], flat[1]["position"], flat[1]["range"]["end"]) == ("range_delete", None, None)

    def test_tombstone_as_json(self) -> None:
        """A tombstone's document has its key."""
        lines = _printed("delta", "", "DELETE FROM shop.t WHERE pk = 1 AND ck = 2", as_json=True)
        assert json.loads(lines[1]) == {
            "op": "tombstone",
            "key": {"pk": 1, "ck": 2},
            "partition": 0,
            "offset": 5,
            "key_schema_id": 1,
        }

    @pytest.mark.parametrize("as_json", [False, True])
    def test_dead_letter(self, as_json: bool) -> None:
        """A dead letter is shown with its reason."""
        letter = json.dumps({"stream_id": "00", "error": "shop.t: 'x'"}).encode()
        text = ChangePrinter(lambda _: "", as_json=as_json).line(_record(letter))
        if as_json:
            assert json.loads(text)["error"] == "shop.t: 'x'"
        else:
            assert text == "2023-11-14T22:13:20.123Z shop.orders[0]@5 dead letter \"shop.t: 'x'\""


class TestWhatIsNoChange:
    def _printed(self, value: bytes | None, schema: str = '"string"', *, as_json: bool = False) -> str:
        return ChangePrinter(lambda _: schema, as_json=as_json).line(_record(value))

    def test_tombstone(self) -> None:
        """A tombstone is shown as one, with its place and key."""
        assert self._printed(None) == "2023-11-14T22:13:20.123Z shop.orders[0]@5 a tombstone (key 0x01)"

    def test_no_frame(self) -> None:
        """Bytes without the registry's frame are no reason to stop."""
        assert "not readable: first byte is 0x7b" in self._printed(b'{"lane":0}')
        assert json.loads(self._printed(b"x", as_json=True))["offset"] == 5

    def test_other_schema(self) -> None:
        """A record of another schema is shown as that."""
        schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
        assert "a record of another schema" in self._printed(frame(9, b"\x02"), schema)

    def test_damaged(self) -> None:
        """A body that does not fit its schema is said to be unreadable."""
        schema, value = _encoded(ORDERS, KEY, 1)
        assert "not readable: " in self._printed(value[:-1], schema)

    def test_registry(self) -> None:
        """A schema that the registry does not know is shown; a registry that does not answer is an error."""

        def printer(*, retriable: bool) -> ChangePrinter:
            def ask(_schema_id: int) -> str:
                raise RegistryError("schema 9 is not there", retriable=retriable)

            return ChangePrinter(ask, as_json=False)

        assert "not readable: schema 9" in printer(retriable=False).line(_record(frame(9, b"")))
        with pytest.raises(RegistryError):
            printer(retriable=True).line(_record(frame(9, b"")))

    def test_position_from_the_envelope(self) -> None:
        """Without a good position header, the envelope says where the change stands."""
        schema, value = _encoded(ORDERS, KEY, 1)
        text = ChangePrinter(lambda _: schema, as_json=False).line(_record(value, position=b"short"))
        assert text.endswith(POSITION_TEXT.replace("/3", "/0"))


class _Topic:
    """A topic whose polls give what the test says."""

    def __init__(self, *polls: list[Record]) -> None:
        self._polls = list(polls)
        self.followed: list[tuple[list[int], bool]] = []

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        assert topic == "shop.orders"
        self.followed.append((partitions, from_end))

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        assert most > 0
        assert timeout_s <= 1, "Ctrl-C has to get through"
        if not self._polls:
            raise KeyboardInterrupt
        return self._polls.pop(0)

    def read_to_end(self, topic: str, partitions: list[int], timeout_s: float) -> Iterator[Record]:
        assert topic == "shop.orders"
        self.followed.append((partitions, False))
        return (record for poll in self._polls for record in poll if record.partition in partitions)


def _values(topic: _Topic, wanted: Wanted) -> list[bytes | None]:
    return [record.value for record in records(topic, wanted)]


A, B, C = (_record(value, partition=partition) for value, partition in ((b"a", 0), (b"b", 1), (b"c", 0)))


class TestRecords:
    def test_new_ones(self) -> None:
        """Without being told otherwise, reading starts at the end and goes on until Ctrl-C."""
        topic = _Topic([A], [], [B])
        found: list[Record] = []
        with pytest.raises(KeyboardInterrupt):
            found.extend(records(topic, Wanted("shop.orders", 2)))
        assert found == [A, B]
        assert topic.followed == [([0, 1], True)]

    def test_most(self) -> None:
        """No more than the wanted number is given, even out of the middle of a poll."""
        assert _values(_Topic([A, B, C]), Wanted("shop.orders", 2, from_beginning=True, most=2)) == [b"a", b"b"]

    def test_until_end(self) -> None:
        """Reading can end with what the topic holds at the start, or earlier."""
        assert _values(_Topic([A], [B]), Wanted("shop.orders", 2, from_beginning=True, until_end=True)) == [b"a", b"b"]
        wanted = Wanted("shop.orders", 2, from_beginning=True, until_end=True, most=1)
        assert _values(_Topic([A], [B]), wanted) == [b"a"]

    def test_from_the_end_to_the_end(self) -> None:
        """What begins at the end has ended already."""
        topic = _Topic([A])
        assert _values(topic, Wanted("shop.orders", 2, until_end=True)) == []

    def test_kafka_fails(self) -> None:
        """What Kafka reports is not held back."""

        class Failing(_Topic):
            def poll(self, most: int, timeout_s: float) -> list[Record]:
                raise RetriableError("gone")

        with pytest.raises(RetriableError, match="gone"):
            _values(Failing(), Wanted("shop.orders", 1))
