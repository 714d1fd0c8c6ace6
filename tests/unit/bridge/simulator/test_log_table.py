"""The DDL of base and log tables."""

from __future__ import annotations

import pytest

from bridge.local.recorded.recording import Recording, scenarios
from bridge.local.simulator.log_table import CdcOptions, base_ddl, log_columns, log_ddl
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema
from tests.unit.bridge.simulator.orders import table


@pytest.mark.parametrize("scenario", scenarios())
def test_log_columns_are_those_of_a_real_log(scenario: str) -> None:
    """Names, types and order, for every recorded table without collections."""
    for recorded in Recording.load(scenario).tables:
        if not recorded.has_collections:
            assert log_columns(recorded.table_schema("rec")) == recorded.log_columns[3:]


def test_a_base_table_is_made_with_its_cdc_option() -> None:
    """Names are quoted, statics and the clustering order are said."""
    assert base_ddl(table(), CdcOptions(ttl_s=60), descending=frozenset({"line"})) == (
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


def test_a_collection_is_not_simulated() -> None:
    """Its log column is no plain copy."""
    columns = (
        Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("tags", parse("set<text>"), ColumnKind.REGULAR),
    )
    with pytest.raises(ValueError, match=r"shop.t: column 'tags' of type set<text> is not simulated"):
        log_columns(TableSchema("shop", "t", columns))


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
