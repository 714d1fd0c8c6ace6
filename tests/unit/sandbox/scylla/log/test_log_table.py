"""The DDL of base and log tables."""

from __future__ import annotations

import pytest

from sandbox.recordings.recording import Recording, scenarios
from sandbox.scylla.log.log_table import CdcOptions, base_ddl, columns_of, log_columns, log_ddl, type_ddl
from sandbox.scylla.values.nested import UserType
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.sandbox.scylla.orders import table


@pytest.mark.parametrize("scenario", scenarios())
def test_log_columns_are_those_of_a_real_log(scenario: str) -> None:
    """The log's columns have the names, types and order of every recorded table."""
    for recorded in Recording.load(scenario).tables:
        assert log_columns(recorded.table_schema("rec")) == recorded.log_columns[3:]


def test_a_base_table_is_made_with_its_cdc_option() -> None:
    """Names are quoted, statics and the clustering order are said."""
    assert base_ddl(table(descending=True), CdcOptions(ttl_s=60)) == (
        'CREATE TABLE "shop"."orders" ("customer" int, "line" int, "tier" int STATIC, "item" int, "note" int, '
        'PRIMARY KEY (("customer"), "line")) WITH CLUSTERING ORDER BY ("line" DESC) AND cdc = '
        "{'delta': 'full', 'enabled': 'true', 'postimage': 'false', 'preimage': 'false', 'ttl': '60'}"
    )


def test_a_table_without_clustering_key_has_no_clustering_order() -> None:
    """CQL would refuse it."""
    assert 'PRIMARY KEY (("customer"))) WITH cdc = {' in base_ddl(table(clustering=False), CdcOptions())


@pytest.mark.parametrize(
    ("ttl_s", "window", "check", "grace"),
    [(10, 1, 1, 0), (3600, 3, 75, 0), (86_400, 60, 1800, 0), (604_800, 420, 12_600, 0)],
)
def test_a_logs_compaction_follows_its_ttl(ttl_s: int, window: int, check: int, grace: int) -> None:
    """Some 24 windows to a TTL, as ScyllaDB computes them."""
    ddl = log_ddl(table(), CdcOptions(ttl_s=ttl_s))
    assert f"'compaction_window_size': '{window}'" in ddl
    assert f"'expired_sstable_check_frequency_seconds': '{check}'" in ddl
    assert f"gc_grace_seconds = {grace}" in ddl
    assert 'CREATE TABLE "shop"."orders_scylla_cdc_log" ("cdc$stream_id" blob, ' in ddl


def test_a_log_without_ttl_keeps_everything() -> None:
    """No windows are set, and tombstones have the usual grace."""
    ddl = log_ddl(table(), CdcOptions(ttl_s=0))
    assert "compaction = {'class': 'TimeWindowCompactionStrategy'}" in ddl
    assert "gc_grace_seconds = 864000" in ddl


@pytest.mark.parametrize(
    ("column_type", "value_type", "elements_type"),
    [
        ("list<int>", "frozen<map<timeuuid, int>>", "frozen<set<timeuuid>>"),
        ("set<text>", "frozen<set<text>>", "frozen<set<text>>"),
        ("map<int, frozen<set<text>>>", "frozen<map<int, frozen<set<text>>>>", "frozen<set<int>>"),
        ("address", "frozen<address>", "frozen<set<smallint>>"),
        ("frozen<list<int>>", "frozen<list<int>>", None),
        ("tuple<int, text>", "tuple<int, text>", None),
    ],
)
def test_a_columns_log_columns(column_type: str, value_type: str, elements_type: str | None) -> None:
    """A multi-cell column has a third one, and its own type is frozen there; a list's keys are shown."""
    column = Column("tags", parse(column_type), ColumnKind.REGULAR)
    elements = [] if elements_type is None else [("cdc$deleted_elements_tags", elements_type)]
    assert columns_of(column) == [("tags", value_type), ("cdc$deleted_tags", "boolean"), *elements]


def test_a_type_is_made_field_by_field() -> None:
    """In the order given, which is that of the fields' indices."""
    address = UserType("Address", (("street", parse("text")), ("no", parse("frozen<set<int>>"))))
    assert type_ddl("shop", address) == ('CREATE TYPE "shop"."Address" ("street" text, "no" frozen<set<int>>)')


def test_a_hidden_column_has_no_place_in_the_log() -> None:
    """COMPACT STORAGE tables may have one."""
    columns = (
        Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("value", parse("empty"), ColumnKind.REGULAR),
    )
    assert [name for name, _ in log_columns(TableSchema("shop", "t", columns))] == [
        "cdc$end_of_batch",
        "cdc$operation",
        "cdc$ttl",
        "id",
    ]
