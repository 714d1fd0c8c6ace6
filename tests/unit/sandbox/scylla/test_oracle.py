"""What was written is kept, and survives a file."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.recordings.expected import expected_changes
from sandbox.recordings.recording import Recording
from sandbox.scylla.oracle import ExpectedChange, Oracle

CHANGE = ExpectedChange(
    keyspace="shop",
    table="orders",
    partition_key=(b"\0\0\0\1",),
    clustering=(None, b""),
    operation=1,
    columns={"note": None, "größe": b"\xff"},
    ttl_s=None,
    stream_id=b"s" * 16,
    time=timeuuid_of(UnixMicros(5_000_001), b"\x80" * 8),
    timestamp_us=UnixMicros(5_000_001),
    batch_seq_no=0,
    last_in_group=True,
    generation_ms=UnixMillis(4000),
)


def test_changes_survive_a_file(tmp_path: Path) -> None:
    """Null, empty and absent stay three things; changes with collections, images and ranges come back equal too."""
    oracle = Oracle()
    oracle.append(CHANGE)
    for scenario in ("collections_nonfrozen_post_pre", "deletes_pre_post", "native_types"):
        recording = Recording.load(scenario)
        for table in recording.tables:
            oracle.extend(expected_changes(recording, table))
    oracle.dump(tmp_path / "oracle.jsonl")
    assert list(Oracle.load(tmp_path / "oracle.jsonl")) == list(oracle)
    assert len(oracle) > 150


def test_a_sink_takes_changes_instead_of_memory() -> None:
    """Only their number is kept."""
    sink = StringIO()
    oracle = Oracle(sink)
    oracle.extend([CHANGE, CHANGE])
    assert (len(oracle), list(oracle)) == (2, [])
    assert [ExpectedChange.from_json(line) for line in sink.getvalue().splitlines()] == [CHANGE, CHANGE]


def test_a_keys_changes_are_ordered_by_generation_then_time_then_number() -> None:
    """The order does not depend on the order of acknowledgement; other keys are separate."""
    late = CHANGE._replace(generation_ms=UnixMillis(9000), time=timeuuid_of(UnixMicros(1), b"\x80" * 8))
    second = CHANGE._replace(batch_seq_no=1)
    higher = CHANGE._replace(time=timeuuid_of(UnixMicros(5_000_001), b"\x00" * 8))
    other = CHANGE._replace(partition_key=(b"\0\0\0\2",))
    oracle = Oracle()
    oracle.extend([late, higher, other, second, CHANGE])
    assert oracle.by_key() == {CHANGE.key: [CHANGE, second, higher, late], other.key: [other]}
