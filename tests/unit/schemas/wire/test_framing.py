from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import FramingError
from schemas.wire.framing import frame, header, unframe


def test_header() -> None:
    """The header is a zero byte and the id, big-endian."""
    assert header(258) == b"\x00\x00\x00\x01\x02"
    assert header(2**31 - 1) == b"\x00\x7f\xff\xff\xff"


@given(st.integers(1, 2**31 - 1), st.binary())
def test_round_trip(schema_id: int, body: bytes) -> None:
    """A framed body is unframed to the same id and body."""
    assert unframe(frame(schema_id, body)) == (schema_id, body)


@pytest.mark.parametrize("schema_id", [0, -1, 2**31])
def test_bad_id(schema_id: int) -> None:
    """An id that no registry uses is refused."""
    with pytest.raises(FramingError, match=str(schema_id)):
        header(schema_id)


@pytest.mark.parametrize(("message", "reason"), [(b"", "0 bytes"), (b"\x00abc", "4 bytes"), (b"{json}", "0x7b")])
def test_bad_message(message: bytes, reason: str) -> None:
    """The error about a message in another format names what was found."""
    with pytest.raises(FramingError, match=reason):
        unframe(message)
