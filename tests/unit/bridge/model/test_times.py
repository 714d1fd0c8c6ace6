"""Times in `cdc$time`, checked against pairs that ScyllaDB itself printed."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.times import (
    MAX_MICROS,
    MIN_MICROS,
    UnixMicros,
    UnixMillis,
    lower_bound,
    micros_of,
    millis_to_micros,
    sort_key,
    timeuuid_of,
)

PRINTED = [
    ("b223c55e-6d07-11ea-7654-24e4fb3f20b9", 1_584_969_040_910_883),
    ("c72c7c3e-2fda-11eb-ba1d-e2d8e9bb0299", 1_606_390_225_588_947),
    ("c72c7c48-2fda-11eb-1510-6f4271ad8200", 1_606_390_225_588_948),
    ("c3b85208-6d0c-11ea-d600-dcd1bfc285c9", 1_584_971_217_889_332),
    ("c3b85212-6d0c-11ea-18fd-95fe5b0e6260", 1_584_971_217_889_333),
]
LOW_HALVES_ASCENDING = [
    "8080808080808080",
    "80ffffffffffffff",
    "bf7f7f7f7f7f7f7f",
    "ff00000000000000",
    "0080808080808080",
    "765424e4fb3f20b9",
    "7f7f7f7f7f7f7f7f",
]


@pytest.mark.parametrize(("text", "micros"), PRINTED)
def test_a_timeuuid_holds_its_microseconds_whatever_its_variant_bits(text: str, micros: int) -> None:
    """Microseconds convert to a timeuuid and back; the low half stays unchanged."""
    raw = UUID(text).bytes
    assert micros_of(raw) == micros
    assert timeuuid_of(UnixMicros(micros), raw[8:]) == raw


def test_low_halves_are_ordered_as_signed_bytes() -> None:
    """0x80 is the lowest byte and 0x7f the highest; Python orders UUIDs differently."""
    ids = [timeuuid_of(UnixMicros(1), bytes.fromhex(low)) for low in LOW_HALVES_ASCENDING]
    assert sorted(ids[3:] + ids[:3], key=sort_key) == ids


def test_the_lower_bound_is_below_every_timeuuid_of_its_instant() -> None:
    """A window that starts there has the whole microsecond; one that ends there has none of it."""
    bound = lower_bound(UnixMicros(1_584_969_040_910_883))
    assert UUID(bytes=bound) == UUID("b223c55e-6d07-11ea-8080-808080808080")
    assert sort_key(timeuuid_of(UnixMicros(1_584_969_040_910_882), b"\x7f" * 8)) < sort_key(bound)


@given(st.integers(MIN_MICROS, MAX_MICROS), st.integers(MIN_MICROS, MAX_MICROS), st.binary(min_size=8, max_size=8))
def test_timeuuids_are_ordered_by_time_first(one: int, other: int, low: bytes) -> None:
    """They decode to the time and low half that they were built from, over the whole range."""
    first, second = timeuuid_of(UnixMicros(one), low), timeuuid_of(UnixMicros(other), low)
    assert micros_of(first) == one
    assert UUID(bytes=first).version in (1, None)
    assert (sort_key(first) < sort_key(second)) == (one < other)


@pytest.mark.parametrize("beyond", [MIN_MICROS - 1, MAX_MICROS + 1])
def test_an_instant_that_60_bits_cannot_hold_is_rejected(beyond: int) -> None:
    """It does not wrap round to another time."""
    with pytest.raises(ValueError, match="can't be held by a timeuuid"):
        timeuuid_of(UnixMicros(beyond), b"\x80" * 8)


def test_wrong_lengths_are_rejected() -> None:
    """A low half has 8 bytes, a timeuuid 16."""
    with pytest.raises(ValueError, match="has 8 bytes, not 7"):
        timeuuid_of(UnixMicros(0), b"\x80" * 7)
    with pytest.raises(ValueError, match="has 16 bytes, not 8"):
        micros_of(b"\x00" * 8)


def test_milliseconds_become_microseconds() -> None:
    """The conversion is exact, before the epoch too."""
    assert [millis_to_micros(UnixMillis(ms)) for ms in (1, -1)] == [1000, -1000]
