"""No value of a row leaves the process but in its record or its dead letter: not by errors, logs, reports or pages."""

from __future__ import annotations

import base64
import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.encoding.group_encoder import GroupEncoder
from bridge.encoding.grouping import groups
from bridge.errors import BridgeError, UnpublishableError
from bridge.model.log_rows import Cells
from bridge.monitoring import health
from bridge.monitoring.exposition import Exposition
from bridge.monitoring.page import document
from bridge.monitoring.snapshot import Message
from schemas.avro.codec import compile_reader, compile_writer
from schemas.errors import DecodeError, EncodeError, SchemaError
from schemas.options import RecordForm
from schemas.shapes.catalog import shape_of
from tests.unit.any_tables import examples
from tests.unit.bridge.encoding.test_damaged_logs import GENERATION_MS, OUTPUTS, TABLES, Damage, codecs, log_of
from tests.unit.bridge.monitoring import jobs

MARK = bytes.fromhex("c3a17fe2e8d4b95c0d96f3aa")
"""Bytes of a value; neither UTF-8 nor a sensible length or count."""
WINDOW = 4
"""So many successive bytes of the mark give it away."""


def given_away() -> Iterator[str]:
    """Yield every text form of a part of the mark: its bytes as they are, in hex, escaped, in base64, as a number."""
    whole = MARK + MARK
    for at in range(len(MARK)):
        part = whole[at : at + WINDOW]
        yield from (part.hex(), part.hex().upper(), part.hex(" "), part.decode("latin-1"), repr(part)[2:-1])
        for order in ("big", "little"):
            yield str(int.from_bytes(part, order))
            yield str(int.from_bytes(part, order, signed=True))
        # Six bytes have eight characters of base64, whatever precedes them.
        yield base64.b64encode(whole[at : at + 6]).decode()
        yield base64.urlsafe_b64encode(whole[at : at + 6]).decode()


FORBIDDEN = tuple(given_away())


class Marking(Random):
    """Random numbers as usual; random bytes are parts of the mark."""

    def randbytes(self, n: int) -> bytes:
        begin = self.randrange(len(MARK))
        return ((MARK * 5)[begin:])[:n]


class MarkedDamage(Damage):
    """Damages groups in every known way, with parts of the mark wherever a cell gets other bytes."""

    def _cell(self, cell: bytes | None, other: bytes | None) -> bytes | None:
        raw = cell or b""
        match self._random.randrange(6):
            case 0:
                return MARK
            case 1:
                return raw[:4] + MARK
            case 2:
                return (1).to_bytes(4, "big") + MARK
            case 3:
                return (1).to_bytes(4, "big") + len(MARK).to_bytes(4, "big") + MARK
        return super()._cell(cell, other)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error with its causes and contexts, also those that a traceback does not print."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in seen:
            seen.append(one)
            left += [one.__cause__, one.__context__]
    yield from seen


def texts_of(error: BaseException) -> Iterator[str]:
    yield "".join(traceback.format_exception(error))
    for one in chain(error):
        yield str(one)
        yield repr(one)
        yield repr(vars(one))
        if isinstance(one, BridgeError | SchemaError):
            yield pickle.dumps(one).decode("latin-1")


def require_silence(text: str) -> None:
    found = [form for form in FORBIDDEN if form in text]
    assert not found, f"{found} in {text!r}"


def failure_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except (UnpublishableError, SchemaError) as error:
        return error
    return None


def shown_of(reason: str) -> Iterator[str]:
    """Yield everything that a job shows of a table that stopped for a reason."""
    job = jobs.running()
    stopped = replace(job.tables[0], state="stopped", reason=reason)
    job = replace(job, tables=(stopped, *job.tables[1:]), messages=(Message(jobs.NOW_S, "error", reason),))
    yield document.render(job)
    yield health.ready_answer(job)[1]
    _, body = Exposition(lambda: job).answer("")
    yield body.decode()


def check_silence(seed: int, number: int, output: Any, *, shown: bool) -> None:
    """Encode a damaged group, and search what its failure leaves behind.

    Args:
        seed: decides the damage.
        number: of the table.
        output: the form of the records.
        shown: whether to search what a job shows of the failure, too.
    """
    log, random = log_of(number), Marking(seed)
    rows = MarkedDamage(random, log).group(random.choice(log.groups))
    codec, _, _ = codecs(number, output)
    by_row = shape_of(output.shape).by_row
    name = (log.table.keyspace, log.table.name)
    incomplete = random.choice(("stop", "deliver"))

    def publish(dead_letters: bool) -> list[str]:
        encoder = GroupEncoder(codec, log.layout, name, RecordForm(dead_letters=dead_letters))
        found = groups(rows, log.layout, incomplete=incomplete, by_row=by_row, keep_failures=dead_letters)
        encoded = [one for group in found for one in encoder.encode(group, GENERATION_MS)]
        return [json.loads(one.value or b"")["error"] for one in encoded if one.is_dead_letter]

    for reason in publish(True):
        require_silence(reason)
    error = failure_of(lambda: publish(False))
    for text in () if error is None else texts_of(error):
        require_silence(text)
    for text in () if error is None or not shown else shown_of(str(error)):
        require_silence(text)


DAMAGED = given(st.integers(0, 2**48), st.sampled_from(range(len(TABLES))), st.sampled_from(OUTPUTS))


@DAMAGED
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
def test_damaged_rows_give_nothing_away(seed: int, number: int, output: object) -> None:
    """Whatever is wrong with a row, no part of its cells is in the error, its chain or a letter's reason."""
    check_silence(seed, number, output, shown=False)


@DAMAGED
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
def test_page_and_probes_give_nothing_away(seed: int, number: int, output: object) -> None:
    """The page, the probe and the metrics show the message of an error; they take most of the test's time."""
    check_silence(seed, number, output, shown=True)


def test_forms_are_found() -> None:
    """The search finds the mark in each form in which errors have shown bytes."""
    for text in (
        f"0x{MARK.hex()}",
        repr(MARK),
        repr(UnicodeDecodeError("utf-8", MARK, 0, 1, "bad")),
        base64.b64encode(b"ab" + MARK).decode(),
        str(int.from_bytes(MARK[2:6], "big", signed=True)),
        MARK.decode("latin-1"),
    ):
        with pytest.raises(AssertionError):
            require_silence(text)


RECORD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "int"}]}


@pytest.mark.parametrize(
    "value", [{"a": MARK, "b": 1}, {"a": "x", "b": MARK}, {"a": "x", "b": repr(MARK)}, {"a": MARK}]
)
def test_fastavro_gives_no_value_away(value: object) -> None:
    """Its errors hold the value or its key; ours name the kind of the error."""
    with pytest.raises(EncodeError, match=r"does not fit its Avro schema \(\w+\)") as caught:
        compile_writer(RECORD)(value)
    for text in texts_of(caught.value):
        require_silence(text)


@pytest.mark.parametrize("body", [b"\x18" + MARK + b"\x02", b"\x90\x03" + MARK, MARK * 3])
def test_unreadable_bodies_give_no_value_away(body: bytes) -> None:
    """A text that is not UTF-8, one that ends early, and one that is nothing at all."""
    with pytest.raises(DecodeError) as caught:
        compile_reader(RECORD)(body)
    for text in texts_of(caught.value):
        require_silence(text)


def test_damaged_operation_is_described_by_its_length() -> None:
    """The cell of `cdc$operation` is not shown either, since a damaged row may have anything there."""
    log = log_of(2)
    row: list[bytes | None] = list(next(rows for rows in log.groups if len(rows) == 1)[0])
    row[log.layout.operation] = MARK
    cells: Cells = tuple(row)
    with pytest.raises(UnpublishableError, match=r"cdc\$operation is 12 bytes long, not 1 byte long") as caught:
        list(groups([cells], log.layout))
    for text in texts_of(caught.value):
        require_silence(text)
