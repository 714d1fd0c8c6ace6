"""Workloads repeat with their seed, and hold what their mix says."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from bridge.local.simulator.mutations import Insert, PartitionDelete, RowDelete, Update
from bridge.local.simulator.workload import INSERTS_ONLY, Mix, Workload
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema
from tests.unit.bridge.simulator.orders import table


def test_the_same_seed_gives_the_same_mutations() -> None:
    """And another seed gives others."""
    one, same, other = (list(islice(Workload(table(), seed=seed), 500)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_mix_holds_every_kind() -> None:
    """Inserts, updates, both deletes, batches, nulls, TTLs and static columns."""
    mutations = list(islice(Workload(table(), seed=3, keys=20), 3000))
    operations = [operation for mutation in mutations for operation in mutation.operations]
    kinds = Counter(map(type, operations))
    assert set(kinds) == {Insert, Update, RowDelete, PartitionDelete}
    assert kinds[Insert] > kinds[RowDelete] > kinds[PartitionDelete]
    assert {len(mutation.operations) for mutation in mutations} == {1, 2, 3, 4, 5}
    written = [operation for operation in operations if isinstance(operation, Insert | Update)]
    assert any(None in operation.cells.values() for operation in written)
    assert any("tier" in operation.cells for operation in written)
    assert any(operation.ttl_s for operation in written)
    assert len({mutation.partition_key for mutation in mutations}) == 20


def test_inserts_only_write_every_regular_column() -> None:
    """One row each, no nulls."""
    for mutation in islice(Workload(table(), seed=3, mix=INSERTS_ONLY), 200):
        (operation,) = mutation.operations
        assert isinstance(operation, Insert)
        assert operation.cells.keys() == {"item", "note"}
        assert None not in operation.cells.values()


def test_a_table_of_keys_alone_is_inserted_into_and_deleted_from() -> None:
    """There is nothing to update in it."""
    keys = TableSchema("shop", "seen", (Column("id", parse("uuid"), ColumnKind.PARTITION_KEY, 0),))
    kinds = {type(mutation.operations[0]) for mutation in islice(Workload(keys, seed=1, mix=Mix(batches=0)), 500)}
    assert kinds == {Insert, RowDelete, PartitionDelete}


def test_a_key_type_of_few_values_gives_fewer_keys() -> None:
    """A boolean has two; an empty partition key is none."""
    flags = TableSchema("shop", "flags", (Column("on", parse("boolean"), ColumnKind.PARTITION_KEY, 0),))
    assert sorted(Workload(flags, seed=1, keys=10).partition_keys) == [(b"\0",), (b"\1",)]
    texts = TableSchema("shop", "texts", (Column("name", parse("text"), ColumnKind.PARTITION_KEY, 0),))
    assert (b"",) not in Workload(texts, seed=1, keys=300).partition_keys
