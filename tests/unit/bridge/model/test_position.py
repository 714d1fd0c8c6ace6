"""Positions of changes and groups, and the slices of their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.position import GROUP_BYTES, POSITION_BYTES, Position, group_of, sort_key_of, timeuuid_in
from bridge.model.times import sort_key
from tests.unit.schemas.example_tables import STREAM, TIME


def test_the_header_of_a_position() -> None:
    """A position is stream id, timeuuid and batch_seq_no, which is signed."""
    position = Position.from_header(STREAM + TIME + b"\xff\xff\xff\xff")
    assert position == Position(STREAM, TIME, -1)
    assert Position.from_header(b"") is None


def test_texts_of_a_position() -> None:
    """One text for documents, and one for error messages."""
    position = Position(STREAM, TIME, 3)
    assert str(position) == "0xc0a8000000000000000000000000c0a1/b223c55e-6d07-11ea-7654-24e4fb3f20b9/3"
    assert position.describe() == "stream 0xc0a8000000000000000000000000c0a1, 1584969040910883 us, batch_seq_no 3"


@given(st.binary(min_size=POSITION_BYTES, max_size=POSITION_BYTES))
def test_slices_and_value_agree(raw: bytes) -> None:
    """The functions for bytes return what the value's attributes hold."""
    position, group = Position.from_bytes(raw), group_of(raw)
    assert (group.stream_id, group.timeuuid) == (position.stream_id, position.timeuuid)
    assert raw[:GROUP_BYTES] == position.stream_id + position.timeuuid
    assert timeuuid_in(raw) == position.timeuuid
    assert sort_key_of(raw) == (sort_key(position.timeuuid), position.stream_id, raw[GROUP_BYTES:])
