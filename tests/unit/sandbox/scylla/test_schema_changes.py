"""What an ALTER does to a table and to its log (spec section 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.schema_changes import (
    add_column,
    add_field,
    disable,
    drop_column,
    enable,
    rename_key,
    replace_column,
    set_options,
)
from sandbox.scylla.tables import SimulatedTable
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind
from schemas.cql.types import UdtType, parse
from tests.unit.sandbox.scylla.orders import table
from tests.unit.sandbox.scylla.profiles import ADDRESS, profiles
from tests.unit.sandbox.scylla.test_writer import KeepingSession

BASE = 'ALTER TABLE "shop"."orders"'
LOG = 'ALTER TABLE "shop"."orders_scylla_cdc_log"'
ORDERS = SimulatedTable(table(descending=True))
TAGS = Column("tags", parse("set<text>"), ColumnKind.REGULAR)


def names(simulated: SimulatedTable) -> list[str]:
    return [column.name for column in simulated.table_schema.columns]


def test_an_added_column_is_in_the_log_first() -> None:
    """So that the log never lacks what the base table has."""
    change = add_column(ORDERS, TAGS)
    assert change.statements == (
        f'{LOG} ADD ("cdc$deleted_elements_tags" frozen<set<text>>, "cdc$deleted_tags" boolean, '
        '"tags" frozen<set<text>>)',
        f'{BASE} ADD "tags" set<text>',
    )
    assert (change.before, names(change.after)[-1], change.dropped) == (ORDERS, "tags", ())
    static = add_column(ORDERS, Column("city", parse("text"), ColumnKind.STATIC))
    assert static.statements[1] == f'{BASE} ADD "city" text STATIC'


def test_a_dropped_column_leaves_the_log_last() -> None:
    """With its flags."""
    change = drop_column(add_column(ORDERS, TAGS).after, "tags")
    assert change.statements == (
        f'{BASE} DROP "tags"',
        f'{LOG} DROP ("cdc$deleted_elements_tags", "cdc$deleted_tags", "tags")',
    )
    assert (change.after, change.dropped) == (ORDERS, ("tags",))


def test_a_column_comes_back_with_another_type() -> None:
    """Dropped and added, in both tables."""
    change = replace_column(ORDERS, "item", parse("bigint"))
    assert change.statements == (
        f'{BASE} DROP "item"',
        f'{LOG} DROP ("cdc$deleted_item", "item")',
        f'{LOG} ADD ("cdc$deleted_item" boolean, "item" bigint)',
        f'{BASE} ADD "item" bigint',
    )
    assert change.dropped == ("item",)


def test_a_renamed_key_is_another_column_of_the_log() -> None:
    """Which keeps no value of it; the direction goes with the column."""
    change = rename_key(ORDERS, "line", "row")
    assert change.statements == (
        f'{BASE} RENAME "line" TO "row"',
        f'{LOG} DROP ("line")',
        f'{LOG} ADD ("row" int)',
    )
    (row,) = change.after.table_schema.clustering
    assert (row.name, row.descending, change.dropped) == ("row", True, ())


def test_a_type_gains_a_field_and_its_columns_follow() -> None:
    """No column is altered; the new field is null in what is written without it."""
    simulated = SimulatedTable(profiles(), user_types=(ADDRESS,))
    change = add_field(simulated, "address", "zip", parse("text"))
    assert change.statements == ('ALTER TYPE "shop"."address" ADD "zip" text',)
    assert [name for name, _type in change.after.user_types[0].fields] == ["street", "no", "floor", "zip"]
    assert change.after.rules().columns.multi_cell["home"].field_count == 4
    (home,) = (column.type for column in change.after.table_schema.columns if column.name == "home")
    assert home == UdtType("address", change.after.user_types[0].fields)
    with pytest.raises(ValueError, match="no type 'other'"):
        add_field(simulated, "other", "zip", parse("text"))
    with pytest.raises(ValueError, match="has a field 'no' already"):
        add_field(simulated, "address", "no", parse("text"))


def test_a_detached_log_stays_as_it_is_until_it_is_written_again() -> None:
    """Then it has what the base table has become."""
    off = disable(ORDERS)
    assert len(off.statements) == 1
    assert off.statements[0].startswith(f"{BASE} WITH cdc = {{")
    assert "'enabled': 'false'" in off.statements[0]
    added = add_column(off.after, TAGS)
    assert added.statements == (f'{BASE} ADD "tags" set<text>',)
    dropped = drop_column(added.after, "item")
    assert dropped.statements == (f'{BASE} DROP "item"',)
    assert disable(dropped.after).after.detached == ORDERS.table_schema
    again = enable(dropped.after)
    assert again.statements[:2] == (
        f'{LOG} DROP ("cdc$deleted_item", "item")',
        f'{LOG} ADD ("cdc$deleted_elements_tags" frozen<set<text>>, "cdc$deleted_tags" boolean, '
        '"tags" frozen<set<text>>)',
    )
    assert "'enabled': 'true'" in again.statements[2]
    assert (again.after.detached, again.after.options.enabled, again.makes_log) == (None, True, False)


def test_a_log_is_made_when_a_table_is_captured_for_the_first_time() -> None:
    """And marked as one."""
    session = KeepingSession()
    plain = SimulatedTable(table(), CdcOptions(enabled=False))
    change = enable(plain, CdcOptions(ttl_s=7))
    assert change.apply(cast("WritingSession", session)) == replace(plain, options=CdcOptions(ttl_s=7))
    assert session.executed == list(change.statements)
    assert 'CREATE TABLE "shop"."orders_scylla_cdc_log"' in session.executed[1]
    assert len(session.to("system_schema.scylla_tables")) == 1


def test_options_are_changed_whole() -> None:
    """A change of options replaces all of them, but cannot disable CDC."""
    change = set_options(ORDERS, CdcOptions(preimage="full", ttl_s=5))
    assert "'preimage': 'full', 'ttl': '5'" in change.statements[0]
    assert change.after.rules().images.wanted
    with pytest.raises(ValueError, match="switched by `enable`"):
        set_options(ORDERS, CdcOptions(enabled=False))


@pytest.mark.parametrize("name", ["line", "customer", "nowhere"])
def test_only_columns_outside_of_the_key_are_dropped(name: str) -> None:
    """Keys can be renamed, no more."""
    with pytest.raises(ValueError, match=f"no column '{name}' outside of its key"):
        drop_column(ORDERS, name)


def test_only_keys_are_renamed() -> None:
    """As the server has it."""
    with pytest.raises(ValueError, match="no key column 'item'"):
        rename_key(ORDERS, "item", "thing")
    with pytest.raises(ValueError, match="key column 'more' can't be added"):
        add_column(ORDERS, Column("more", parse("int"), ColumnKind.CLUSTERING, 1))
