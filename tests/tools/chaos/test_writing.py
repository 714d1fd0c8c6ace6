"""What the chaos run writes, as the witness reads it: no run is needed to see that the two agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.log.log_groups import log_groups
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.verify.expectations import ExpectedRecords
from tests.chaos.witness import Witness
from tests.chaos.writing import MIX, TABLES, schema_of

GENERATION = UnixMillis(1_700_000_000_000)


def changes(name: str, count: int) -> Iterator[ExpectedChange]:
    table = SimulatedTable(schema_of(name, TABLES[name]))
    captured = CapturedTable.of(table.table_schema, keys_only=False)
    workload = Workload(table.table_schema, seed=1, keys=5, mix=MIX)
    for number in range(count):
        mutation, now_us = workload.next(), UnixMicros(GENERATION * 1000 + number)
        for group in log_groups(table.rules(), mutation, now_us, base=None, now_us=now_us):
            time = timeuuid_of(group.timestamp_us, number.to_bytes(8, "big"))
            yield from expected_changes(captured, group, Place(mutation.partition_key, bytes(16), time, GENERATION))


@pytest.mark.parametrize("name", TABLES)
def test_witness_reads_what_is_written(name: str) -> None:
    """Records as they must be, of every operation that the run writes, are clean."""
    written = list(changes(name, 300))
    assert {change.operation for change in written} == {1, 2, 3, 4}
    witness = Witness(TABLES, [change.to_json() for change in written])
    records = ExpectedRecords(schema_of(name, TABLES[name]))
    for change in written:
        witness.see(f"topic.{name}", 0, repr(change.partition_key).encode(), records.value(change))
    counts = witness.close()
    assert counts.clean, f"{counts}\n{counts.examples}"
