"""The reading half of a task, without a cluster: parts, schemas, what is counted, and what is read anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.encoding.group_encoder import EncodedChange, EncodedRun
from bridge.encoding.key_check import SAMPLE_EVERY
from bridge.engine import process_cache, read_lane
from bridge.engine.read_lane import LaneChanges
from bridge.errors import PoisonError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import LogLayout
from bridge.model.micro_batch import Part, PlannedBatch, Role
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId
from bridge.model.times import UnixMicros, timeuuid_of
from bridge.monitoring.counters import tally
from bridge.publishing.protocol import LaneTask
from bridge.reading.lane_merge import ColumnsChangedError
from bridge.reading.table_capture import CapturedTable, Schemas
from schemas.options import OutputOptions, ShapeName
from schemas.table_codec import TableCodec
from tests.unit.bridge.engine.planner_fakes import G1, G2, LAYOUT, at, config
from tests.unit.bridge.log_pages import RawLog
from tests.unit.bridge.reading import test_fast_path as plain_rows
from tests.unit.schemas.example_tables import STREAM, TIME, log_columns, table
from tests.unit.schemas.example_tables import row as log_row


@pytest.mark.parametrize(("streams", "pause_s"), [(10, 0.2), (1000, 10.0)])
def test_task_that_is_tried_again_does_not_ask_at_once(
    monkeypatch: pytest.MonkeyPatch, streams: int, pause_s: float
) -> None:
    """It waits as long as its lane's share allows, 10 s at most; a first try does not wait."""
    lane = {StreamId(number.to_bytes(16, "big")): G1 for number in range(streams)}
    monkeypatch.setattr(process_cache, "lane_streams", lambda *_: lane)
    task = LaneTask("ks", "t", 0, PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    table: Any = SimpleNamespace(layout=None)
    slept_s: list[float] = []
    monkeypatch.setattr(read_lane, "_pause", slept_s.append)
    for retry in (False, True):
        monkeypatch.setattr(process_cache, "is_retry", lambda retry=retry: retry)
        with pytest.raises(AttributeError):  # the pause comes before anything is made of the table
            next(LaneChanges(config(), task, "")._changes(task.batch.parts[0], table))
        assert slept_s == ([pytest.approx(pause_s)] if retry else [])


def test_columns_may_change_inside_a_later_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was handed on of the parts before stands; the schema in force stays so from part to part."""
    schema = ["a"]

    def captured(*_: object) -> Any:
        return SimpleNamespace(schemas=Schemas("key", schema[0]))

    def changes(_self: object, part: Part, table: Any) -> Iterator[EncodedChange]:
        number = 0 if part.selection.role is Role.CLOSED else 1
        for time_us in (1, 2):
            if number and time_us == 2 and table.schemas.value == "a":
                schema[0] = "b"
                raise ColumnsChangedError("other columns")
            position = bytes([number] * 16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + bytes(4)
            yield EncodedChange(b"k", table.schemas.value.encode(), position, True)

    monkeypatch.setattr(process_cache, "captured_table", captured)
    monkeypatch.setattr(process_cache, "recaptured_table", captured)
    monkeypatch.setattr(LaneChanges, "_changes", changes)
    monkeypatch.setattr(process_cache, "lane_streams", lambda *_: {})
    batch = PlannedBatch(at(G1, 10), Cursor(G2, UnixMicros(G2 * 1000 + 5)), LAYOUT)
    assert [part.selection.role for part in batch.parts] == [Role.CLOSED, Role.KEPT]
    lane = LaneChanges(config(), LaneTask("ks", "t", 0, batch), "")
    read = [(part, schemas.value, [one.value for one in found]) for part, schemas, found in lane.runs()]
    assert read == [(0, "a", [b"a", b"a"]), (1, "a", [b"a"]), (1, "b", [b"b"])]
    rest = lane.runs([(1, batch.parts[1])])
    assert [(part, [one.value for one in found]) for part, _, found in rest] == [(1, [b"b", b"b"])]


@pytest.mark.parametrize(
    ("shape", "payload"),
    [("delta", "avro"), ("full", "avro"), ("debezium", "avro"), ("flat", "avro"), ("flat", "json")],
)
def test_operations_that_are_not_known_are_counted(
    monkeypatch: pytest.MonkeyPatch, shape: ShapeName, payload: str
) -> None:
    """Whatever the records look like, it is told how many there were; the records are there."""
    settings = SourceConfig.model_validate(
        {
            "scylla": ScyllaSettings(contact_points=("a:1",)),
            "table": "ks.t",
            "reading": {"integrity": "off"},
            "output": {"shape": shape, "tombstones": False},
            "lanes": 2,
            "payload": payload,
        }
    )
    small = table({"pk": "int"}, {"ck": "int"}, {"v": "text"})
    columns = log_columns(small)
    layout = LogLayout.of(columns, ["pk"], ["ck"])
    captured = CapturedTable(small, Mock(), layout, TableCodec(small, columns, settings.output_options))
    key = {"pk": bytes(4), "ck": bytes(4), "cdc$end_of_batch": b"\x01"}
    cells = [log_row(small, {**key, "cdc$operation": bytes((operation,))}) for operation in (1, 77, 3, 200)]
    monkeypatch.setattr(process_cache, "captured_table", lambda *_: captured)
    monkeypatch.setattr(process_cache, "lane_streams", lambda *_: {StreamId(STREAM): G1})
    # Each row a group of its own: its time is another one.
    apart = [
        [(bytes(16), (one[0], timeuuid_of(UnixMicros(at_us), bytes(8)), *one[2:]))] for at_us, one in enumerate(cells)
    ]
    monkeypatch.setattr(read_lane, "read_lane", lambda *_, **__: iter(apart))
    tally.take()
    lane = LaneChanges(settings, LaneTask("ks", "t", 0, PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)), "")
    assert len([change for _, _, changes in lane.runs() for change in changes]) == 4
    ((name, number, figures),) = tally.take()
    assert (name, number, figures.unknown_operations) == ("ks.t", 0, 2)


@pytest.mark.parametrize("fails", ["capture", "page"])
def test_a_failing_cluster_is_looked_at_anew(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """Nothing that is known of it outlives what another attempt may mend; other failures leave it as it is."""
    dropped: list[object] = []
    monkeypatch.setattr(process_cache, "drop_cluster", dropped.append)
    errors: list[Exception] = [RetriableError("away"), PoisonError("torn")]

    def captured(*_: object) -> Any:
        if fails == "capture":
            raise errors[0]
        return SimpleNamespace(schemas=Schemas("key", "value"))

    def changes(_self: object, _part: Part, _table: Any) -> Iterator[EncodedChange]:
        yield EncodedChange(b"k", b"v", bytes(36), True)
        raise errors[0]

    monkeypatch.setattr(process_cache, "captured_table", captured)
    monkeypatch.setattr(LaneChanges, "_changes", changes)
    monkeypatch.setattr(process_cache, "lane_streams", lambda *_: {})
    lane = LaneChanges(config(), LaneTask("ks", "t", 0, PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)), "")
    for forgotten in (1, 1):
        with pytest.raises(type(errors[0])):
            [change for _, _, found in lane.runs() for change in found]
        assert len(dropped) == forgotten
        errors.pop(0)


@pytest.mark.parametrize("form", ["millis", "timestamp-millis"])
def test_a_change_that_json_does_not_hold_is_named(form: Literal["millis", "timestamp-millis"]) -> None:
    """A timestamp beyond the year 9999 is a number to Avro; as a date it is none to Python."""
    of = table({"pk": "int"}, {}, {"v": "timestamp"})
    columns = log_columns(of)
    captured = CapturedTable(
        of, Mock(), LogLayout.of(columns, ["pk"]), TableCodec(of, columns, OutputOptions(timestamps=form))
    )
    cells = log_row(of, {"pk": bytes(4), "v": (10**15).to_bytes(8, "big")})
    key, value = captured.codec.encode(cells, operation=1, generation_ms=0, last_in_group=True)
    changes = iter([EncodedChange(key, value, STREAM + TIME + bytes(4), True)])
    if form == "millis":
        (shown,) = read_lane._as_json(changes, captured)
        assert json.loads(shown.value or b"")["columns"] == {"v": {"value": 10**15}}
        return
    with pytest.raises(PoisonError, match=rf"^table ks\.t: change 0x{STREAM.hex()}/.*`output\.timestamps` is millis"):
        list(read_lane._as_json(changes, captured))


PLAIN_ROWS = 900
PAGE_ROWS = 150


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[CapturedTable]:
    """How often the table was captured; its log has pages of plain rows in three streams."""
    found: list[CapturedTable] = []

    def capture(_cluster: object, _keyspace: str, _table: str, output: OutputOptions) -> CapturedTable:
        of = plain_rows.NARROW
        layout = plain_rows.layout_of(of)
        log = RawLog(layout, plain_rows.inserts(PLAIN_ROWS), PAGE_ROWS)
        found.append(CapturedTable(of, log, layout, TableCodec(of, log_columns(of), output)))
        return found[-1]

    streams = dict(zip(plain_rows.STREAMS, plain_rows.OPENED.values(), strict=True))
    monkeypatch.setattr(process_cache, "_tables", {})
    monkeypatch.setattr(process_cache, "change_log", lambda _: None)
    monkeypatch.setattr(process_cache, "capture", capture)
    monkeypatch.setattr(process_cache, "lane_streams", lambda *_: streams)
    ranges = {stream: KeyRange(MIN_TOKEN, MAX_TOKEN, [stream]) for stream in streams}
    monkeypatch.setattr(process_cache, "lane_key_ranges", lambda *_: ranges)
    return found


def task_of(settings: SourceConfig, fingerprint: str = "") -> list[EncodedChange | EncodedRun]:
    """What one task reads."""
    ends = (Cursor(plain_rows.GENERATION_MS, UnixMicros(plain_rows.START_US + by)) for by in (0, 10**9))
    lane = LaneChanges(settings, LaneTask("ks", "t", 0, PlannedBatch(*ends, LAYOUT)), fingerprint)
    return [change for _, _, changes in lane.runs() for change in changes]


def keys_checked() -> int:
    return sum(figures.keys_checked for _, _, figures in tally.take())


def settings_of(**changed: Any) -> SourceConfig:
    """All as it is unless somebody sets it."""
    return SourceConfig.model_validate({"scylla": ScyllaSettings(contact_points=("a:1",)), "table": "ks.t", **changed})


def test_plain_rows_of_a_lane_come_in_runs(captures: list[CapturedTable]) -> None:
    """With the settings as they are by default; of their keys a sample is checked, or all where that is set."""
    task_of(settings_of())  # the loop is made here
    tally.take()
    for settings in (settings_of(), settings_of(dead_letters=True)):
        for _ in range(2):
            found = task_of(settings)
            runs = [one for one in found if isinstance(one, EncodedRun)]
            # The last row of a page is no run's where others may follow it: of the first page of each stream.
            assert len(found) - len(runs) == len(plain_rows.STREAMS)
            assert sum(len(one.records) for one in runs) == PLAIN_ROWS - len(plain_rows.STREAMS)
            assert len(runs) <= 8
            assert PLAIN_ROWS // SAMPLE_EVERY <= keys_checked() <= PLAIN_ROWS // SAMPLE_EVERY + 6
    task_of(settings_of(reading={"integrity": "always"}))
    assert keys_checked() == PLAIN_ROWS
    task_of(settings_of(reading={"integrity": "off"}))
    assert keys_checked() == 0
    assert len(captures) == 1


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Gives the lane so many streams more, in which there are no rows."""
    page = RawLog.page

    def add(count: int) -> None:
        more = [StreamId(b"\x10" + number.to_bytes(15, "big")) for number in range(count)]
        streams = dict(zip(plain_rows.STREAMS, plain_rows.OPENED.values(), strict=True)) | dict.fromkeys(more, G1)
        monkeypatch.setattr(process_cache, "lane_streams", lambda *_: streams)
        monkeypatch.setattr(
            RawLog,
            "page",
            lambda self, stream, *of, **how: page(
                RawLog(self._layout, dict(self._rows) | dict.fromkeys(more, ()), self._page_rows), stream, *of, **how
            ),
        )

    return add


def requests() -> int:
    """How many there were since the last time."""
    ((_, _, figures),) = tally.take()
    assert figures.log_rows == PLAIN_ROWS
    return figures.pages.count


PAGES = PLAIN_ROWS // PAGE_ROWS


def test_streams_without_rows_are_not_read_again(captures: list[CapturedTable], silent: Callable[[int], None]) -> None:
    """Where most of a table's streams had none the last time, they are asked together; nothing changes in what is read.

    A table that was captured anew is read whole once more. The three with rows have more than one answer holds.
    """
    silent(90)
    first = task_of(settings_of(), "now")
    assert requests() == PAGES + 90
    for fingerprint, asked in [("now", 6 + 13), ("now", 6 + 13), ("altered", 90), ("altered", 6 + 13)]:
        assert task_of(settings_of(), fingerprint) == first
        assert requests() == PAGES + asked


def test_streams_with_a_few_rows_are_read(captures: list[CapturedTable], silent: Callable[[int], None]) -> None:
    """Those and no others, where an answer holds all that there are: the same changes."""
    silent(90)
    task_of(settings_of(), "now")
    ((captured,), log) = captures, captures[0].reader
    log._rows = {stream: rows[:10] for stream, rows in log._rows.items()}  # type: ignore[attr-defined]
    captured.probe.record_result("ks.t", 1, 1)
    found = []
    for asked in (93, 6 + 3, 6 + 3):
        tally.take()
        found.append(task_of(settings_of(), "now"))
        ((_, _, figures),) = tally.take()
        assert (figures.pages.count, figures.log_rows) == (asked, 30)
    assert found[0] == found[1] == found[2]
    assert sum(len(one.records) if isinstance(one, EncodedRun) else 1 for one in found[0]) == 30


def test_streams_that_are_asked_together_count_each(
    captures: list[CapturedTable], silent: Callable[[int], None]
) -> None:
    """With fewer requests allowed under way than streams fit in one, so many are asked together."""
    silent(90)
    for asked in (90, 19 + 2, 19 + 2):
        task_of(settings_of(scylla=ScyllaSettings(contact_points=("a:1",), requests_in_flight=5)), "now")
        assert requests() == PAGES + asked


def test_streams_are_read_where_more_of_them_have_rows(
    captures: list[CapturedTable], silent: Callable[[int], None]
) -> None:
    """Three of eleven are too many to ask first."""
    silent(8)
    for _ in range(3):
        task_of(settings_of(), "now")
        assert requests() == PAGES + 8


def test_a_reading_that_is_broken_off_teaches_nothing(
    captures: list[CapturedTable], silent: Callable[[int], None]
) -> None:
    """Whoever did not see all streams does not know how many have rows."""
    silent(90)
    task = LaneTask("ks", "t", 0, PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    for _ in range(2):
        runs = LaneChanges(settings_of(), task, "now").runs()
        _, _, changes = next(runs)
        next(changes)
        changes.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    tally.take()
    task_of(settings_of(), "now")
    assert requests() == PAGES + 90


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": "json"},
        {"reading": {"deduplicate": True}},
        {"output": {"key": "primary_key"}},
        {"output": {"tombstones": True}},
        {"output": {"headers": ["position", "operation"]}},
        {"output": {"headers": ["position", "timestamp"]}},
        {"output": {"headers": ["position", "table"]}},
    ],
)
def test_what_looks_at_each_change_gets_each(captures: list[CapturedTable], changed: dict[str, Any]) -> None:
    """No run of records goes past what needs more of a change than key, value and position."""
    for _ in range(2):
        found = task_of(settings_of(**changed))
        assert [type(one) for one in found] == [EncodedChange] * PLAIN_ROWS
    assert len(captures) == 1


def test_table_is_captured_once_while_it_stays(captures: list[CapturedTable]) -> None:
    """What is compiled for it serves every task of a process; another fingerprint or another form is looked at anew."""
    for _ in range(3):
        task_of(settings_of(), "now")
    assert len(captures) == 1
    for _ in range(3):
        task_of(settings_of(), "altered")
    assert len(captures) == 2
    for _ in range(2):
        task_of(settings_of(output={"shape": "full"}), "altered")
        task_of(settings_of(), "altered")
    assert len(captures) == 3
    task_of(settings_of(), "now")
    assert len(captures) == 4
