"""The measured tables are what their names say."""

from __future__ import annotations

from itertools import islice

import pytest

from bench.data import tables
from sandbox.scylla.base.mutations import CollectionWrite, Insert, Mutation, Update

POOL = 200
"""Rows enough for what is looked at; to draw them is what takes the time."""


@pytest.mark.parametrize(("name", "columns"), [("narrow", 3), ("twelve", 12), ("wide", 30)])
def test_a_table_has_its_columns_and_every_mutation_fills_them(name: str, columns: int) -> None:
    """Each mutation is one insert of all value columns, so one change of the log."""
    simulated = tables.table(name)
    assert len(simulated.table_schema.columns) == columns
    for mutation in islice(tables.mutations(simulated, seed=1, pool_size=POOL), 50):
        (operation,) = mutation.operations
        assert isinstance(operation, Insert)
        assert operation.cells.keys() == {column.name for column in simulated.table_schema.values}


def test_half_of_what_collections_get_are_updates_that_mostly_leave_elements() -> None:
    """Deltas are what other connectors can't carry; each statement writes all columns, so it is one change."""
    simulated = tables.table("collections")
    operations = [one.operations[0] for one in islice(tables.mutations(simulated, seed=1, pool_size=POOL), 400)]
    names = {column.name for column in simulated.table_schema.values}
    for operation in operations:
        assert isinstance(operation, Insert | Update)
        assert operation.cells.keys() == names
    updates = [operation for operation in operations if isinstance(operation, Update)]
    assert 150 < len(updates) < 250
    writes = [write for one in updates for write in one.cells.values() if isinstance(write, CollectionWrite)]
    assert len(writes) == 3 * len(updates)
    assert sum(write.clear == "no" for write in writes) > len(writes) / 2
    assert any(write.remove for write in writes)


def test_the_narrow_tables_text_has_fifty_bytes() -> None:
    """Its figures stand beside those of other tools, which were measured with such rows."""
    (mutation,) = islice(tables.mutations(tables.table("narrow"), seed=1, pool_size=POOL), 1)
    (operation,) = mutation.operations
    assert isinstance(operation, Insert)
    assert [len(cell or b"") for cell in operation.cells.values()] == [50]


def test_mutations_are_the_same_for_the_same_seed() -> None:
    """Two runs load the same changes."""

    def drawn(seed: int) -> list[Mutation]:
        return list(islice(tables.mutations(tables.table("twelve"), seed=seed, pool_size=POOL), 20))

    first, second = drawn(3), drawn(3)
    assert first == second
    assert first != drawn(4)
