"""Workloads repeat with their seed, and hold what their mix says."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import get_args

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import CollectionWrite, Insert, Operation, PartitionDelete, RowDelete, Update
from sandbox.scylla.workload import EVERYTHING, INSERTS_ONLY, Mix, Workload, with_own_timestamps
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.sandbox.scylla.orders import T, table
from tests.unit.sandbox.scylla.profiles import ADDRESS, profiles


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


def test_everything_holds_every_operation_and_every_kind_of_collection_write() -> None:
    """Replaced, nulled, deleted, added to, removed from; an unknown operation is alone."""
    workload = Workload(profiles(), seed=3, keys=5, mix=EVERYTHING, user_types=(ADDRESS,))
    mutations = list(islice(workload, 2000))
    operations = [operation for mutation in mutations for operation in mutation.operations]
    assert {type(operation) for operation in operations} == set(get_args(Operation))
    for name in ("tags", "sizes", "notes", "home", "seen"):
        writes = [each.cells[name] for each in operations if isinstance(each, Insert | Update) and name in each.cells]
        whole = [write for write in writes if isinstance(write, CollectionWrite)]
        assert None in writes
        assert {write.clear for write in whole} == {"no", "overwrite", "delete"}
        assert any(write.put and write.clear == "overwrite" for write in whole)
        assert any(write.put and write.remove for write in whole)


def test_statements_get_timestamps_of_their_own() -> None:
    """Some mutations' do, a little before the clock; the rest are left as they are."""
    timed = [
        (UnixMicros(T + number), mutation) for number, mutation in enumerate(islice(Workload(table(), seed=1), 300))
    ]
    stamped = list(with_own_timestamps(timed, seed=2, share=0.5, back_us=3))
    assert stamped == list(with_own_timestamps(timed, seed=2, share=0.5, back_us=3))
    assert [now_us for now_us, _mutation in stamped] == [now_us for now_us, _mutation in timed]
    back = {
        None if operation.timestamp_us is None else now_us - operation.timestamp_us
        for now_us, mutation in stamped
        for operation in mutation.operations
    }
    assert back == {None, 0, 1, 2, 3}


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
