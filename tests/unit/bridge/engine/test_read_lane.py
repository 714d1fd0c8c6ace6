"""The reading half of a task, without a cluster: parts, schemas, counts, and retries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.encoding.group_encoder import EncodedChange, EncodedRun
from bridge.encoding.key_check import SAMPLE_EVERY
from bridge.engine.process.scylla_cache import ScyllaCache
from bridge.engine.read_lane import LaneChanges, as_json
from bridge.errors import RetriableError, UnpublishableError
from bridge.model.cursor import Cursor
from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import LogLayout
from bridge.model.micro_batch import Part, PlannedBatch, Role
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId
from bridge.model.times import UnixMicros, timeuuid_of
from bridge.monitoring.counters import CounterStore
from bridge.publishing.lane_recovery import LaneTask
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
def test_retry_waits_for_its_share_of_requests(streams: int, pause_s: float) -> None:
    """A retry waits as long as its lane's share demands, 10 s at most; a first attempt does not wait."""
    lane = {StreamId(number.to_bytes(16, "big")): G1 for number in range(streams)}
    cache: Any = SimpleNamespace(lane_streams=lambda *_: lane)
    task = LaneTask("ks", "t", 0, PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    table: Any = SimpleNamespace(layout=None)
    slept_s: list[float] = []
    for is_retry in (False, True):
        changes = LaneChanges(config(), task, "", cache, is_retry=is_retry, sleep=slept_s.append)
        with pytest.raises(AttributeError):  # the pause comes before the first use of the table
            next(changes._changes(task.batch.parts[0], lambda: None, table))
        assert slept_s == ([pytest.approx(pause_s)] if is_retry else [])


def test_columns_may_change_inside_a_later_part() -> None:
    """Changes of earlier parts stand. The schema in force stays in force from part to part."""
    schema = ["a"]

    def captured(*_: object) -> Any:
        return SimpleNamespace(schemas=Schemas("key", schema[0]))

    class Changing(LaneChanges):
        def _changes(self, part: Part, while_waiting: object, captured: Any) -> Iterator[EncodedChange]:
            number = 0 if part.selection.role is Role.CLOSED else 1
            for time_us in (1, 2):
                if number and time_us == 2 and captured.schemas.value == "a":
                    schema[0] = "b"
                    raise ColumnsChangedError("other columns")
                position = bytes([number] * 16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + bytes(4)
                yield EncodedChange(b"k", captured.schemas.value.encode(), position, True)

    cache: Any = SimpleNamespace(captured_table=captured, recaptured_table=captured)
    batch = PlannedBatch(at(G1, 10), Cursor(G2, UnixMicros(G2 * 1000 + 5)), LAYOUT)
    assert [part.selection.role for part in batch.parts] == [Role.CLOSED, Role.KEPT]
    lane = Changing(config(), LaneTask("ks", "t", 0, batch), "", cache, is_retry=False)
    read = [(part, schemas.value, [one.value for one in found]) for part, schemas, found in lane.runs()]
    assert read == [(0, "a", [b"a", b"a"]), (1, "a", [b"a"]), (1, "b", [b"b"])]
    rest = lane.runs([(1, batch.parts[1])])
    assert [(part, [one.value for one in found]) for part, _, found in rest] == [(1, [b"b", b"b"])]


@pytest.mark.parametrize(
    ("shape", "payload"),
    [("delta", "avro"), ("full", "avro"), ("debezium", "avro"), ("flat", "avro"), ("flat", "json")],
)
def test_unknown_operations_are_counted(shape: ShapeName, payload: str) -> None:
    """In every shape; their records are published all the same."""
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
    key = {"pk": bytes(4), "ck": bytes(4), "cdc$end_of_batch": b"\x01"}
    cells = [log_row(small, {**key, "cdc$operation": bytes((operation,))}) for operation in (1, 77, 3, 200)]
    # Each row has a time of its own, so each is a group.
    apart = [(one[0], timeuuid_of(UnixMicros(at_us), bytes(8)), *one[2:]) for at_us, one in enumerate(cells)]
    stream = StreamId(STREAM)
    log = RawLog(layout, {stream: apart}, 50)
    captured = CapturedTable(small, log, layout, TableCodec(small, columns, settings.output_options))
    cache: Any = SimpleNamespace(captured_table=lambda *_: captured, lane_streams=lambda *_: {stream: G1})
    task = LaneTask("ks", "t", 0, PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    counters = CounterStore()
    lane = LaneChanges(settings, task, "", cache, is_retry=False, counters=counters)
    assert len([change for _, _, changes in lane.runs() for change in changes]) == 4
    ((name, number, figures),) = counters.take()
    assert (name, number, figures.unknown_operations) == ("ks.t", 0, 2)


@pytest.mark.parametrize("fails", ["capture", "page"])
def test_failing_cluster_is_dropped(fails: str) -> None:
    """After an error that another attempt may get past; other errors leave the connection open."""
    dropped: list[object] = []
    errors: list[Exception] = [RetriableError("away"), UnpublishableError("torn")]

    def captured(*_: object) -> Any:
        if fails == "capture":
            raise errors[0]
        return SimpleNamespace(schemas=Schemas("key", "value"))

    class Failing(LaneChanges):
        def _changes(self, part: Part, while_waiting: object, captured: Any) -> Iterator[EncodedChange]:
            yield EncodedChange(b"k", b"v", bytes(36), True)
            raise errors[0]

    cache: Any = SimpleNamespace(captured_table=captured, drop_cluster=dropped.append)
    task = LaneTask("ks", "t", 0, PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    lane = Failing(config(), task, "", cache, is_retry=False)
    for forgotten in (1, 1):
        with pytest.raises(type(errors[0])):
            [change for _, _, found in lane.runs() for change in found]
        assert len(dropped) == forgotten
        errors.pop(0)


@pytest.mark.parametrize("form", ["millis", "timestamp-millis"])
def test_change_that_json_cannot_carry_is_named(form: Literal["millis", "timestamp-millis"]) -> None:
    """A timestamp beyond the year 9999 is a number in Avro, and no date in Python."""
    of = table({"pk": "int"}, {}, {"v": "timestamp"})
    columns = log_columns(of)
    captured = CapturedTable(
        of, Mock(), LogLayout.of(columns, ["pk"]), TableCodec(of, columns, OutputOptions(timestamps=form))
    )
    cells = log_row(of, {"pk": bytes(4), "v": (10**15).to_bytes(8, "big")})
    key, value = captured.codec.encode(cells, operation=1, generation_ms=0, last_in_group=True)
    changes = iter([EncodedChange(key, value, STREAM + TIME + bytes(4), True)])
    if form == "millis":
        (shown,) = as_json(changes, captured)
        assert json.loads(shown.value or b"")["columns"] == {"v": {"value": 10**15}}
        return
    with pytest.raises(
        UnpublishableError, match=rf"^table ks\.t: change 0x{STREAM.hex()}/.*`output\.timestamps` is millis"
    ):
        list(as_json(changes, captured))


PLAIN_ROWS = 900
PAGE_ROWS = 150


class Process:
    """A process with a cluster whose log has pages of plain rows in three streams, and its cache.

    Attributes:
        captures: the table, as often as it was captured.
        counters: what tasks have counted.
    """

    def __init__(self) -> None:
        self.captures: list[CapturedTable] = []
        self.counters = CounterStore()
        self._streams = dict(zip(plain_rows.STREAMS, plain_rows.OPENED.values(), strict=True))
        self._empty: list[StreamId] = []
        self.cache = ScyllaCache(self._connect, capture=self._capture)

    def add_empty_streams(self, count: int) -> None:
        """Give the lane so many streams more, without rows; before the first task."""
        self._empty = [StreamId(b"\x10" + number.to_bytes(15, "big")) for number in range(count)]

    def read(self, settings: SourceConfig, fingerprint: str = "") -> list[EncodedChange | EncodedRun]:
        """Read the lane in one task."""
        ends = (Cursor(plain_rows.GENERATION_MS, UnixMicros(plain_rows.START_US + by)) for by in (0, 10**9))
        lane = self.lane(settings, PlannedBatch(*ends, LAYOUT), fingerprint)
        return [change for _, _, changes in lane.runs() for change in changes]

    def lane(self, settings: SourceConfig, batch: PlannedBatch, fingerprint: str) -> LaneChanges:
        task = LaneTask("ks", "t", 0, batch)
        return LaneChanges(settings, task, fingerprint, self.cache, is_retry=False, counters=self.counters)

    def keys_checked(self) -> int:
        return sum(figures.keys_checked for _, _, figures in self.counters.take())

    def requests(self) -> int:
        """How many requests the last task sent; it has read all rows."""
        ((_, _, figures),) = self.counters.take()
        assert figures.log_rows == PLAIN_ROWS
        return figures.pages.count

    def _connect(self, _settings: object) -> Any:
        streams = self._streams | dict.fromkeys(self._empty, G1)
        ranges = {stream: KeyRange(MIN_TOKEN, MAX_TOKEN, [stream]) for stream in streams}
        metadata = SimpleNamespace(streams=lambda *_: streams, key_ranges=lambda *_: ranges)
        return SimpleNamespace(stream_metadata=lambda *_: metadata)

    def _capture(self, _cluster: object, _keyspace: str, _table: str, output: OutputOptions) -> CapturedTable:
        of = plain_rows.NARROW
        layout = plain_rows.layout_of(of)
        log = RawLog(layout, plain_rows.inserts(PLAIN_ROWS) | dict.fromkeys(self._empty, ()), PAGE_ROWS)
        self.captures.append(CapturedTable(of, log, layout, TableCodec(of, log_columns(of), output)))
        return self.captures[-1]


@pytest.fixture
def process() -> Process:
    return Process()


def settings_of(**changed: Any) -> SourceConfig:
    """The default settings, but for some."""
    return SourceConfig.model_validate({"scylla": ScyllaSettings(contact_points=("a:1",)), "table": "ks.t", **changed})


def test_plain_rows_of_a_lane_come_in_runs(process: Process) -> None:
    """With the default settings. A sample of their keys is checked, or all of them, or none, as configured."""
    process.read(settings_of())  # compiles the loop
    process.counters.take()
    for settings in (settings_of(), settings_of(dead_letters=True)):
        for _ in range(2):
            found = process.read(settings)
            runs = [one for one in found if isinstance(one, EncodedRun)]
            # The last row of a page is in no run if more pages may follow: that of the first page of each stream.
            assert len(found) - len(runs) == len(plain_rows.STREAMS)
            assert sum(len(one.records) for one in runs) == PLAIN_ROWS - len(plain_rows.STREAMS)
            assert len(runs) <= 8
            assert PLAIN_ROWS // SAMPLE_EVERY <= process.keys_checked() <= PLAIN_ROWS // SAMPLE_EVERY + 6
    process.read(settings_of(reading={"integrity": "always"}))
    assert process.keys_checked() == PLAIN_ROWS
    process.read(settings_of(reading={"integrity": "off"}))
    assert process.keys_checked() == 0
    assert len(process.captures) == 1


PAGES = PLAIN_ROWS // PAGE_ROWS


def test_streams_without_rows_are_not_read_again(process: Process) -> None:
    """If most of a table's streams had no rows the last time, one request asks many of them together.

    The task reads the same changes. After the table is captured again, it reads all streams once more. The rows of the
    three streams that have some do not fit in one answer.
    """
    process.add_empty_streams(90)
    first = process.read(settings_of(), "now")
    assert process.requests() == PAGES + 90
    for fingerprint, asked in [("now", 6 + 13), ("now", 6 + 13), ("altered", 90), ("altered", 6 + 13)]:
        assert process.read(settings_of(), fingerprint) == first
        assert process.requests() == PAGES + asked


def test_streams_with_a_few_rows_are_read(process: Process) -> None:
    """Those streams alone, if one answer holds the rows of all."""
    process.add_empty_streams(90)
    process.read(settings_of(), "now")
    ((captured,), log) = process.captures, process.captures[0].reader
    log._rows = {stream: rows[:10] for stream, rows in log._rows.items()}  # type: ignore[attr-defined]
    captured.probe.record_result("ks.t", 1, 1)
    found = []
    for asked in (93, 6 + 3, 6 + 3):
        process.counters.take()
        found.append(process.read(settings_of(), "now"))
        ((_, _, figures),) = process.counters.take()
        assert (figures.pages.count, figures.log_rows) == (asked, 30)
    assert found[0] == found[1] == found[2]
    assert sum(len(one.records) if isinstance(one, EncodedRun) else 1 for one in found[0]) == 30


def test_request_for_several_streams_counts_once_for_each(process: Process) -> None:
    """So a request names no more streams than the limit of requests in flight."""
    process.add_empty_streams(90)
    for asked in (90, 19 + 2, 19 + 2):
        process.read(settings_of(scylla=ScyllaSettings(contact_points=("a:1",), requests_in_flight=5)), "now")
        assert process.requests() == PAGES + asked


def test_all_streams_are_read_if_many_have_rows(process: Process) -> None:
    """Three of eleven are too many for a request that asks first."""
    process.add_empty_streams(8)
    for _ in range(3):
        process.read(settings_of(), "now")
        assert process.requests() == PAGES + 8


def test_interrupted_reading_does_not_count_streams(process: Process) -> None:
    """It has not seen all of them, so it cannot tell how many have rows."""
    process.add_empty_streams(90)
    batch = PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)
    for _ in range(2):
        runs = process.lane(settings_of(), batch, "now").runs()
        _, _, changes = next(runs)
        next(changes)
        changes.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    process.counters.take()
    process.read(settings_of(), "now")
    assert process.requests() == PAGES + 90


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
def test_options_that_need_each_change_get_each_change(process: Process, changed: dict[str, Any]) -> None:
    """Runs of records carry key, value and position only."""
    for _ in range(2):
        found = process.read(settings_of(**changed))
        assert [type(one) for one in found] == [EncodedChange] * PLAIN_ROWS
    assert len(process.captures) == 1


def test_table_is_captured_once_while_it_stays(process: Process) -> None:
    """All tasks of a process use the compiled codec. Another fingerprint or output is captured again."""
    for _ in range(3):
        process.read(settings_of(), "now")
    assert len(process.captures) == 1
    for _ in range(3):
        process.read(settings_of(), "altered")
    assert len(process.captures) == 2
    for _ in range(2):
        process.read(settings_of(output={"shape": "full"}), "altered")
        process.read(settings_of(), "altered")
    assert len(process.captures) == 3
    process.read(settings_of(), "now")
    assert len(process.captures) == 4
