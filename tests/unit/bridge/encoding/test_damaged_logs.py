"""Log rows that no server writes: each leads to a clear error or to a true record."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.encoding.group_encoder import EncodedChange, GroupEncoder
from bridge.encoding.grouping import groups
from bridge.errors import UnpublishableError
from bridge.model.log_rows import Cells, Change, Group, LogLayout
from bridge.model.times import UnixMicros, UnixMillis, micros_of, timeuuid_of
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.log.images import ImageOptions
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import CollectionDelta, LogCell
from sandbox.scylla.oracle import ExpectedChange, RangeEnd
from sandbox.scylla.workload import EVERYTHING, Workload
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.codec import compile_reader
from schemas.compiled.reference_encoder import ReferenceEncoder
from schemas.cql.table import TableSchema
from schemas.cql.types import is_multi_cell
from schemas.errors import SchemaError
from schemas.log.columns import log_positions
from schemas.log.log_change import LogChange
from schemas.options import OutputOptions, RecordForm
from schemas.shapes.catalog import shape_of
from schemas.table_codec import TableCodec
from tests.replica import frozen
from tests.unit.any_tables import examples, raw_rows
from tests.unit.schemas.example_tables import ADDRESS, log_columns, rich_table, table, wide_table

GENERATION_MS = UnixMillis(1_700_000_000_000)
START_US = GENERATION_MS * 1000 + 1_000_000
STREAM = bytes(15) + b"\x01"
REQUESTS = 200
IMAGES = frozenset({0, 9})
FORMS = (
    RecordForm(dead_letters=True),
    RecordForm(primary_key=True, tombstones=True, operation=True, timestamp=True, table=True, dead_letters=True),
)
OUTPUTS = tuple(OutputOptions(shape=shape) for shape in ("delta", "full", "debezium", "flat"))


def lone_rows() -> TableSchema:
    """Return a table without clustering columns."""
    return table(
        {"pk": "text", "pk 2": "decimal"},
        {},
        {"v": "varint", "u": "address", "l": "list<frozen<tuple<int, text>>>", "vec": "vector<frozen<list<int>>, 2>"},
        name="lone",
        types={"address": ADDRESS},
    )


TABLES = (rich_table(), wide_table(), lone_rows())


@dataclass(frozen=True)
class Log:
    """A table whose log holds everything, and what its encoding needs."""

    table: TableSchema
    layout: LogLayout
    groups: list[list[Cells]]


@cache
def log_of(number: int) -> Log:
    of = TABLES[number]
    rules, random = LogRules.of(of, images=ImageOptions("true", True)), Random(number)
    base, found = BaseState(rules.columns), []
    workload = Workload(of, seed=number, keys=2, rows_per_key=4, mix=EVERYTHING, pool=8)
    for at, mutation in enumerate(islice(workload, REQUESTS)):
        now_us = UnixMicros(START_US + 100 * at)
        for group in log_groups(rules, mutation, now_us, base=base):
            time = timeuuid_of(group.timestamp_us, random.randbytes(8))
            found.append(list(raw_rows(of, group, Place(mutation.partition_key, STREAM, time, GENERATION_MS))))
        base.write(mutation, now_us)
    names = log_columns(of)
    keys = ([column.name for column in part] for part in (of.partition_key, of.clustering))
    return Log(of, LogLayout.of(names, *keys), found)


@cache
def codecs(number: int, output: OutputOptions) -> tuple[TableCodec, ReferenceEncoder, Any]:
    of = TABLES[number]
    codec = TableCodec(of, log_columns(of), output)
    reference = ReferenceEncoder(of, log_positions(of, log_columns(of)), output)
    return codec, reference, compile_reader(json.loads(codec.value_avro_schema))


class Damage:
    """Damages groups in every way that the log's own keys (stream, time, number) allow."""

    def __init__(self, random: Random, log: Log) -> None:
        self._random = random
        self._layout = log.layout
        keys = {log.layout.stream_id, log.layout.time, log.layout.batch_seq_no}
        self._cells = [at for at in range(len(log.layout.columns)) if at not in keys]
        self._marks = [log.layout.operation, log.layout.end_of_batch or 0]

    def group(self, rows: list[Cells]) -> list[Cells]:
        random, spoiled = self._random, list(rows)
        for _ in range(random.choice((0, 1, 1, 2, 5))):
            at = random.randrange(len(spoiled))
            match random.randrange(8):
                case 0 if len(spoiled) > 1:
                    del spoiled[at]
                case 1:
                    other = random.randrange(len(spoiled))
                    spoiled[at], spoiled[other] = spoiled[other], spoiled[at]
                case 2:
                    spoiled.append(spoiled[at])
                case _:
                    spoiled[at] = self._row(spoiled[at])
        return spoiled

    def _row(self, row: Cells) -> Cells:
        random, cells = self._random, list(row)
        for _ in range(random.choice((1, 1, 3))):
            at = random.choice(self._marks if random.random() < 0.2 else self._cells)
            full = [each for each in self._cells if cells[each] is not None] or self._cells
            if random.random() < 0.7:
                at = random.choice(full)
            cells[at] = self._cell(cells[at], cells[random.choice(full)])
        return tuple(cells)

    def _cell(self, cell: bytes | None, other: bytes | None) -> bytes | None:
        random = self._random
        raw = cell or b""
        match random.randrange(9):
            case 0:
                return None
            case 1:
                return b""
            case 2:
                return raw[: random.randrange(len(raw) + 1)]
            case 3:
                return raw + random.randbytes(random.randint(1, 9))
            case 4 if raw:
                at = random.randrange(len(raw))
                return raw[:at] + random.randbytes(1) + raw[at + 1 :]
            case 5:
                return random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00")) + raw[4:]
            case 6:
                return other
            case 7:
                return random.randbytes(random.choice((1, 1, 2, 4, 8, 16, 40)))
        return bytes((random.randrange(256),))


def expected(log: Log, change: Change) -> ExpectedChange:
    """Return what the raw cells mean, decoded independently."""
    of, layout = log.table, log.layout
    cells = dict(zip(layout.columns, change.row, strict=True))
    columns: dict[str, LogCell] = {}
    for column in of.values:
        value, flag = cells[column.name], cells[f"cdc$deleted_{column.name}"]
        is_deleted = flag is not None and any(flag)
        if is_multi_cell(column.type):
            removed = cells[f"cdc$deleted_elements_{column.name}"]
            if value is not None or is_deleted or removed is not None:
                columns[column.name] = CollectionDelta(value, is_deleted, removed)
        elif value is not None or is_deleted:
            columns[column.name] = value
    time, ttl = cells["cdc$time"], cells["cdc$ttl"]
    assert time is not None
    return ExpectedChange(
        of.keyspace,
        of.name,
        tuple(cells[column.name] or b"" for column in of.partition_key),
        tuple(cells[column.name] for column in of.clustering),
        change.operation,
        columns,
        None if ttl is None else int.from_bytes(ttl, "big", signed=True),
        STREAM,
        time,
        micros_of(time),
        int.from_bytes(cells["cdc$batch_seq_no"] or b"", "big"),
        change.last_in_group,
        GENERATION_MS,
        _end(log, change.range_end),
        _image(log, change.before),
        _image(log, change.after),
    )


def _end(log: Log, row: Cells | None) -> RangeEnd | None:
    if row is None:
        return None
    operation = row[log.layout.operation]
    assert operation is not None
    return RangeEnd(operation[0], tuple(row[at] for at in log.layout.clustering))


def _image(log: Log, row: Cells | None) -> dict[str, bytes | None] | None:
    if row is None:
        return None
    cells = dict(zip(log.layout.columns, row, strict=True))
    return {
        column.name: cells[column.name]
        for column in log.table.values
        if cells[column.name] is not None or any(cells[f"cdc$deleted_{column.name}"] or b"")
    }


def outcome(encoder: TableCodec | ReferenceEncoder, change: Change) -> object:
    """Return the bytes, or all facts about the error."""
    parts: dict[str, Any] = {"last_in_group": change.last_in_group, "range_end": change.range_end, "more": change.more}
    parts |= {"before": change.before, "after": change.after, "operation": change.operation}
    try:
        if isinstance(encoder, ReferenceEncoder):
            return encoder.encode(LogChange(change.row, generation_ms=GENERATION_MS, **parts))  # type: ignore[arg-type]
        return encoder.encode(change.row, generation_ms=GENERATION_MS, **parts)
    except SchemaError as error:
        return type(error), error.args, vars(error)


def letter_of(log: Log, encoded: EncodedChange) -> Counter[str]:
    """Check a dead letter, and return its rows."""
    assert encoded.value is not None
    letter = json.loads(encoded.value)
    assert (letter["keyspace"], letter["table"]) == (log.table.keyspace, log.table.name)
    assert letter["stream_id"] == STREAM.hex()
    assert STREAM.hex() in letter["error"]
    return Counter(json.dumps(row, sort_keys=True) for row in letter["rows"])


def shown(log: Log, rows: list[Cells]) -> Counter[str]:
    named = (dict(zip(log.layout.columns, row, strict=True)) for row in rows)
    hexed = ({name: cell.hex() for name, cell in row.items() if cell is not None} for row in named)
    return Counter(json.dumps(row, sort_keys=True) for row in hexed)


def members(change: Change) -> list[Cells]:
    others = (change.range_end, change.before, change.after)
    return [change.row, *change.more, *(row for row in others if row is not None)]


def deltas(log: Log, rows: list[Cells]) -> Counter[str]:
    """Return the rows that are not images; an image without a change tells a consumer nothing."""
    return shown(log, [row for row in rows if row[log.layout.operation] not in (b"\x00", b"\x09")])


@given(seed=st.integers(0, 2**48), number=st.sampled_from(range(len(TABLES))), data=st.data())
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
def test_damaged_groups(seed: int, number: int, data: st.DataObject) -> None:
    """Every row leads to a record with its cells or to a dead letter that holds it; nothing is raised."""
    log, random = log_of(number), Random(seed)
    output, form = data.draw(st.sampled_from(OUTPUTS)), data.draw(st.sampled_from(FORMS))
    damage = Damage(random, log)
    written = [damage.group(random.choice(log.groups))]
    codec, reference, read = codecs(number, output)
    form = replace(form, primary_key=form.primary_key and output.shape != "full")
    encoder = GroupEncoder(codec, log.layout, (log.table.keyspace, log.table.name), form)
    incomplete = random.choice(("stop", "deliver"))
    found = list(
        groups(written[0], log.layout, incomplete=incomplete, by_row=shape_of(output.shape).by_row, keep_failures=True)
    )
    assert [row for group in found for row in group.rows] == written[0]
    for group in found:
        check_group(log, group, list(encoder.encode(group, GENERATION_MS)), codec, reference, read, output)


def check_group(
    log: Log,
    group: Group,
    encoded: list[EncodedChange],
    codec: TableCodec,
    reference: ReferenceEncoder,
    read: Any,
    output: OutputOptions,
) -> None:
    if group.failure is not None:
        (letter,) = encoded
        assert letter.is_dead_letter
        assert letter_of(log, letter) == shown(log, list(group.rows))
        return
    delivered = [row for change in group.changes for row in (change.row, *change.more)]
    delivered += [change.range_end for change in group.changes if change.range_end is not None]
    assert deltas(log, delivered) == deltas(log, list(group.rows))
    # A tombstone follows a delete and has no row of its own.
    rest = iter([one for one in encoded if one.value is not None])
    truth = ExpectedRecords(log.table, full=output.shape == "full")
    for change in group.changes:
        one = next(rest)
        result = outcome(codec, change)
        if output.shape in ("delta", "full"):
            assert result == outcome(reference, change)
        if one.is_dead_letter:
            assert letter_of(log, one) == shown(log, members(change))
            continue
        assert one.value is not None
        assert isinstance(result, tuple)
        assert one.value == result[1]
        value = read(one.value)
        if output.shape in ("delta", "full"):
            assert in_order(value) == in_order(truth.value(expected(log, change)))
    assert list(rest) == []


def in_order(record: dict[str, Any]) -> object:
    return frozen(dict(sorted(record.items())))


def test_without_dead_letters_the_error_names_the_place() -> None:
    """The error names table, stream, time, number and column."""
    log = log_of(2)
    rows = next(rows for rows in log.groups if len(rows) == 1)
    at = log.layout.columns.index("v")
    broken = (*rows[0][:at], b"", *rows[0][at + 1 :])
    assert broken != rows[0]
    broken = (*broken[: log.layout.partition_key[0]], None, *broken[log.layout.partition_key[0] + 1 :])
    encoder = GroupEncoder(codecs(2, OUTPUTS[0])[0], log.layout, ("ks", "lone"), RecordForm())
    (group,) = groups([broken], log.layout)
    with pytest.raises(
        UnpublishableError, match=rf"ks\.lone: stream 0x{STREAM.hex()}, \d+ us, batch_seq_no 0: column 'pk'"
    ):
        list(encoder.encode(group, GENERATION_MS))
