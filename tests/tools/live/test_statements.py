"""The generated statements: CQL of every kind, decided by the seed."""

from __future__ import annotations

from collections import Counter

import pytest

from sandbox.cql.parser.grammar import statement_of
from tests.live.statements import Stamps, Statements
from tests.live.tables import SHAPES, Table, table_of, user_types

MANY = 3000
KINDS = {
    *("insert", "insert json", "update", "delete columns", "delete row", "delete partition", "delete range"),
    *("delete prefix", "list element", "batch", "unlogged batch", "transaction"),
}


def tables() -> list[Table]:
    types = user_types()
    return [table_of("ks", shape, types) for shape in SHAPES]


def statements(seed: int, *, real_lists: bool = True) -> Statements:
    made = tables()
    return Statements(made, seed, real_lists=real_lists, transactions={one.full_name for one in made})


def test_every_kind_is_generated_and_is_cql() -> None:
    """Each kind occurs on many tables, and a parser of CQL accepts every statement."""
    source, stamps = statements(1), Stamps(oldest_us=1_000_000)
    made = [source.next() for _ in range(MANY)]
    for one in made:
        statement_of(stamps.filled(one.text, 1_790_000_000_000_000))
    kinds = Counter(one.kind for one in made)
    assert kinds.keys() == KINDS
    assert min(kinds.values()) >= 10, kinds
    written = Counter(table for one in made for table in one.tables)
    assert written.keys() == {f"ks.{shape}" for shape in SHAPES}
    assert all(one.resets and all(reset.startswith("DELETE FROM ks.") for reset in one.resets) for one in made)


def test_the_seed_decides() -> None:
    """One seed gives the same statements again, another one gives others."""
    first, again, other = ([source.next() for _ in range(50)] for source in map(statements, (3, 3, 4)))
    assert first == again != other


def test_lists_have_no_timestamps_where_the_server_makes_the_keys() -> None:
    """On the local stack, no statement with a timestamp writes a list, and none writes a single element."""
    source = statements(5, real_lists=False)
    lists = {'"l"', '"l_map"', '"s_list"'}
    for _ in range(MANY):
        one = source.next()
        assert one.kind != "list element"
        parts = [one.text] if "BATCH USING TIMESTAMP" in one.text else one.text.split("; ")
        for part in parts:
            assert "TIMESTAMP" not in part or not any(f"{name} = " in part for name in lists), one.text


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_can_be_created(shape: str) -> None:
    """CREATE TABLE and the user-defined types are CQL."""
    statement_of(table_of("ks", shape, user_types()).create())


def test_a_timestamp_that_occurs_again_is_the_same() -> None:
    """A number is one timestamp until it is too old; no timestamp lies too far back or in a forbidden span."""
    stamps = Stamps(oldest_us=1000)
    assert stamps.filled("a @@1:-5@@ b @@2:7@@", 10_000) == "a 9995 b 10007"
    assert stamps.filled("@@1:300@@", 10_500) == "9995"
    assert stamps.filled("@@1:300@@", 20_000) == "20300"
    assert stamps.filled("@@3:-9999@@", 30_000) == "29000"
    stamps.keep_out(39_000, 41_000)
    assert stamps.filled("@@4:-500@@", 40_500) == "40500"
    assert stamps.latest_us == 40_500
