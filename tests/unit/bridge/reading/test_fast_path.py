"""The fast path gives the same bytes as the general path, for any rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.encoding.group_encoder import EncodedChange, EncodedRun, GroupEncoder
from bridge.encoding.grouping import groups
from bridge.encoding.key_check import KeyCheck
from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import Cells, LogLayout
from bridge.model.micro_batch import Window
from bridge.model.murmur3 import murmur3_token
from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMicros, UnixMillis, sort_key, timeuuid_of
from bridge.reading.fast_path import FastPath, encode_chunks
from bridge.reading.lane_merge import read_lane
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.log.images import ImageOptions
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.workload import EVERYTHING, Workload
from schemas.compiled import page_encoder
from schemas.cql.table import TableSchema
from schemas.options import OutputOptions, RecordForm
from schemas.table_codec import TableCodec
from tests.unit.any_tables import examples, raw_rows, tables
from tests.unit.bridge.log_pages import RawLog
from tests.unit.schemas.example_tables import log_columns, table

GENERATION_MS = UnixMillis(1_700_000_000_000)
START_US = GENERATION_MS * 1000 + 1_000_000
WINDOW = Window(UnixMicros(0), None)
STREAMS = [StreamId(number.to_bytes(16, "big")) for number in (3, 1, 2)]
OPENED = {stream.raw: UnixMillis(GENERATION_MS + at) for at, stream in enumerate(STREAMS)}

Rows = Mapping[StreamId, Sequence[Cells]]


def layout_of(of: TableSchema) -> LogLayout:
    return LogLayout.of(log_columns(of), *([one.name for one in part] for part in (of.partition_key, of.clustering)))


def written(of: TableSchema, images: ImageOptions, random: Random, requests: int) -> Rows:
    """The rows of a workload; its groups are spread over the streams, and some have equal times."""
    rules = LogRules.of(of, images=images)
    workload = Workload(of, seed=random.getrandbits(32), keys=2, rows_per_key=4, mix=EVERYTHING, pool=4)
    base = BaseState(rules.columns)
    found: dict[StreamId, list[Cells]] = {stream: [] for stream in STREAMS}
    now_us = START_US
    for mutation in islice(workload, requests):
        now_us += random.choice((0, 1, 300_000_000))
        for group in log_groups(rules, mutation, UnixMicros(now_us), base=base, now_us=UnixMicros(now_us)):
            time = timeuuid_of(UnixMicros(now_us), random.choice((bytes(8), random.randbytes(8))))
            stream = random.choice(STREAMS)
            place = Place(mutation.partition_key, stream.raw, time, GENERATION_MS)
            found[stream] += raw_rows(of, group, place)
        base.write(mutation, UnixMicros(now_us), UnixMicros(now_us))
    # Repeat some rows: loops are made for frequent forms only.
    end = log_columns(of).index("cdc$end_of_batch")
    for rows in found.values():
        for row in [row for row in rows if row[2] == bytes(4) and row[end]]:
            for _ in range(2):
                now_us += random.choice((1, 300_000_000))
                rows.append((row[0], timeuuid_of(UnixMicros(now_us), random.randbytes(8)), *row[2:]))
    return {stream: ordered(rows) for stream, rows in found.items()}


def ordered(rows: Sequence[Cells]) -> list[Cells]:
    """The rows in the server's order, one of each time and number."""
    by_key = {(sort_key(row[1] or b""), row[2] or b""): row for row in rows}
    return [by_key[key] for key in sorted(by_key)]


def damaged(rows: Rows, random: Random) -> Rows:
    """The rows with some cells replaced by null, a part, another row's cell or random bytes; the log's key stays."""

    def one(row: Cells, other: Cells) -> Cells:
        at = random.randrange(3, len(row))
        cell = row[at] or b""
        torn = random.choice((None, b"", cell[:-1], cell + b"\x00", other[at], random.randbytes(len(cell))))
        return (*row[:at], torn, *row[at + 1 :])

    return {
        stream: [one(row, random.choice(of)) if random.random() < 0.1 else row for row in of]
        for stream, of in rows.items()
    }


def general(codec: TableCodec, layout: LogLayout, rows: Iterator[Cells]) -> Iterator[EncodedChange]:
    encoder = GroupEncoder(codec, layout, ("ks", "t"), RecordForm(dead_letters=True))
    for group in groups(rows, layout, keep_failures=True):
        yield from encoder.encode(group, OPENED[group.stream_id])


def both_ways(
    codec: TableCodec, layout: LogLayout, rows: Rows, page_rows: int, check: KeyCheck | None = None
) -> tuple[list[EncodedChange], list[EncodedChange | EncodedRun]]:
    log = RawLog(layout, rows, page_rows)
    chunks = read_lane(log, STREAMS, WINDOW, layout, page_rows=50, in_flight=2)
    slowly = list(general(codec, layout, (row for chunk in chunks for _, row in chunk)))
    plain = FastPath(codec.page_encoder, layout, OPENED, check)
    chunks = read_lane(log, STREAMS, WINDOW, layout, page_rows=50, in_flight=2, page_to_entries=plain.encode_page)
    return slowly, list(encode_chunks(chunks, lambda of: general(codec, layout, of)))


def one_by_one(found: Sequence[EncodedChange | EncodedRun]) -> list[EncodedChange]:
    return [one for each in found for one in (each.changes() if isinstance(each, EncodedRun) else [each])]


@given(
    of=tables(),
    shape=st.sampled_from(["delta", "delta", "full", "flat"]),
    images=st.sampled_from([ImageOptions("false", False), ImageOptions("full", True)]),
    seed=st.integers(0, 2**32),
    page_rows=st.sampled_from([1, 5, 20, 500]),
    is_damaged=st.booleans(),
    worth_a_loop=st.sampled_from([1, 1, 1_000_000]),
)
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
def test_both_paths_give_the_same(
    of: TableSchema, shape: str, images: ImageOptions, seed: int, page_rows: int, is_damaged: bool, worth_a_loop: int
) -> None:
    """Any table, any requests, any page breaks, rows that no server writes: the same records in the same order."""
    random = Random(seed)
    rows = written(of, images, random, 15)
    codec, layout = TableCodec(of, log_columns(of), OutputOptions(shape=shape)), layout_of(of)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_encoder, "ROWS_BEFORE_COMPILING", worth_a_loop)
        # In the second pass the loops exist from the beginning.
        for _ in range(2):
            slowly, fast = both_ways(codec, layout, damaged(rows, random) if is_damaged else rows, page_rows)
            assert one_by_one(fast) == slowly


NARROW = table({"pk": "int"}, {"ck": "int"}, {"v": "text"})


def inserts(count: int) -> Rows:
    names = log_columns(NARROW)
    found: dict[StreamId, list[Cells]] = {stream: [] for stream in STREAMS}
    for at in range(count):
        stream = STREAMS[at % len(STREAMS)]
        cells = {
            "cdc$stream_id": stream.raw,
            "cdc$time": timeuuid_of(UnixMicros(START_US + at), bytes(8)),
            "cdc$batch_seq_no": bytes(4),
            "cdc$operation": b"\x02",
            "cdc$end_of_batch": b"\x01",
            "pk": at.to_bytes(4, "big"),
            "ck": bytes(4),
            "v": b"text %d" % at,
        }
        found[stream].append(tuple(cells.get(name) for name in names))
    return found


def test_plain_rows_take_the_fast_path() -> None:
    """All of them once a loop knows their form, except the last row of each page that has a successor."""
    codec, layout = TableCodec(NARROW, log_columns(NARROW)), layout_of(NARROW)
    rows = inserts(900)
    both_ways(codec, layout, rows, 300)
    for page_rows, by_row in ((300, 0), (100, 6)):
        slowly, fast = both_ways(codec, layout, rows, page_rows)
        assert one_by_one(fast) == slowly
        assert sum(isinstance(each, EncodedChange) for each in fast) == by_row


MANY = table({"pk": "int"}, {"ck": "int"}, {f"v{at:02}": "int" for at in range(10)})


def updates(touched: Sequence[int]) -> Rows:
    """Updates in one stream; the bits of a number select the columns that each of them sets."""
    names = log_columns(MANY)
    found = []
    for at, bits in enumerate(touched):
        cells = {
            "cdc$stream_id": STREAMS[0].raw,
            "cdc$time": timeuuid_of(UnixMicros(START_US + at), bytes(8)),
            "cdc$batch_seq_no": bytes(4),
            "cdc$operation": b"\x01",
            "cdc$end_of_batch": b"\x01",
            "pk": bytes(4),
            "ck": at.to_bytes(4, "big"),
        }
        cells |= {f"v{bit:02}": at.to_bytes(4, "big") for bit in range(10) if bits >> bit & 1}
        found.append(tuple(cells.get(name) for name in names))
    return {STREAMS[0]: found, STREAMS[1]: [], STREAMS[2]: []}


def test_rare_forms_take_the_fast_path() -> None:
    """Row by row: none is merged as cells."""
    codec, layout = TableCodec(MANY, log_columns(MANY)), layout_of(MANY)
    slowly, fast = both_ways(codec, layout, updates([1 + at % 1000 for at in range(2000)]), 5000)
    assert one_by_one(fast) == slowly
    assert all(isinstance(each, EncodedRun) for each in fast)
    assert not codec.page_encoder.loops


def test_unused_loop_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old forms must not keep a frequent form from its loop; but not every new form gets one."""
    monkeypatch.setattr(page_encoder, "MISSES_BEFORE_REPLACEMENT", 20)
    most = page_encoder.MAX_LOOPS
    codec, layout = TableCodec(MANY, log_columns(MANY)), layout_of(MANY)
    for form in range(1, most + 1):
        both_ways(codec, layout, updates([form] * 20), 5000)
    former = set(codec.page_encoder.loops)
    assert len(former) == most
    both_ways(codec, layout, updates([100] * 20), 5000)
    assert set(codec.page_encoder.loops) == former
    slowly, fast = both_ways(codec, layout, updates([100] * 2000), 5000)
    assert one_by_one(fast) == slowly
    (made,) = set(codec.page_encoder.loops) - former
    assert codec.page_encoder.loops[0] is made
    assert len(codec.page_encoder.loops) == most


@pytest.mark.parametrize("bad", ["v", "ck", "pk", "cdc$time"])
def test_malformed_cell_takes_its_row_to_the_general_path(bad: str) -> None:
    """Once, at its place, anywhere on its page; the rows around it take the fast path."""
    codec, layout = TableCodec(NARROW, log_columns(NARROW)), layout_of(NARROW)
    rows = {stream: list(of) for stream, of in inserts(90).items()}
    both_ways(codec, layout, rows, 300)
    at, of = log_columns(NARROW).index(bad), rows[STREAMS[0]]
    for number in (0, 4, 5, 29):
        cell = of[number][at] or b""
        torn = timeuuid_of(UnixMicros(number), bytes(8)) if bad == "cdc$time" else cell[:-1] + b"\xff" * (bad == "v")
        of[number] = (*of[number][:at], torn, *of[number][at + 1 :])
    rows[STREAMS[0]] = ordered(of)
    for page_rows in (300, 10, 3):
        slowly, fast = both_ways(codec, layout, rows, page_rows)
        assert one_by_one(fast) == slowly
        assert sum(len(each.records) for each in fast if isinstance(each, EncodedRun)) >= (90 - 4) * 2 // 3 - 4


def test_group_that_continues_after_its_end_flag_is_one_group() -> None:
    """A row with the flag is no whole group if the next row has its time; also across the end of a page."""
    codec, layout = TableCodec(NARROW, log_columns(NARROW)), layout_of(NARROW)
    rows = {stream: list(of) for stream, of in inserts(90).items()}
    both_ways(codec, layout, rows, 300)
    of = rows[STREAMS[0]]
    for at in (7, 19, 29):
        of[at + 1 : at + 1] = [(*of[at][:2], (1).to_bytes(4, "big"), *of[at][3:])]
    for page_rows in (300, 8, 1):
        slowly, fast = both_ways(codec, layout, rows, page_rows)
        assert one_by_one(fast) == slowly
        assert [one.last_in_group for one in slowly].count(False) == 3


@pytest.mark.parametrize("every", [1, 64])
def test_keys_are_checked_on_both_paths(every: int) -> None:
    """One in `every` on the fast path too, the first included; a key in the wrong stream is reported."""
    codec, layout = TableCodec(NARROW, log_columns(NARROW)), layout_of(NARROW)
    rows = inserts(600)
    both_ways(codec, layout, rows, 300)
    told: list[object] = []
    ranges = {stream: KeyRange(Token(stream.token - 1), stream.token, (stream,)) for stream in STREAMS}
    check = KeyCheck(layout, lambda: ranges, murmur3_token, told.append, every=every)
    _, fast = both_ways(codec, layout, rows, 300, check)
    assert all(isinstance(each, EncodedRun) for each in fast)
    assert check.misplaced == len(told) == check.checked
    assert check.checked == 600 if every == 1 else 600 / 64 <= check.checked <= 600 / 64 + 2
