"""A table as the system tables describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession
from bridge.errors import StartupError
from schemas.cql.table import TableSchema
from schemas.errors import TypeTextError
from tests.unit.schemas.example_tables import table

TYPES = [
    {"type_name": "address", "field_names": ["street", "Odd"], "field_types": ["text", 'frozen<list<frozen<"Odd">>>']},
    {"type_name": "Odd", "field_names": ["n"], "field_types": ["int"]},
]


class System:
    """Answers the queries of system_schema, and records the tables that were read."""

    settings = SimpleNamespace(metadata_consistency=None)

    def __init__(
        self,
        columns: Sequence[tuple[str, str, int, str, str]],
        types: Sequence[dict[str, Any]],
        flags: frozenset[str] | None = frozenset({"compound"}),
    ) -> None:
        names = ("column_name", "kind", "position", "type", "clustering_order")
        self._rows = {"columns": [dict(zip(names, column, strict=True)) for column in columns], "types": list(types)}
        self._rows["tables"] = [{"flags": flags}]
        self.asked: list[str] = []

    def rows(self, cql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        name = cql.partition("system_schema.")[2].split()[0]
        assert parameters[0] == "ks"
        self.asked.append(name)
        return self._rows[name]


def described(system: System) -> TableSchema:
    return ChangeLog(cast("CqlSession", system)).table_schema("ks", "t")


@pytest.mark.parametrize("desc", ["DESC", "desc"])
def test_types_and_order(desc: str) -> None:
    """User-defined types have their fields; either server's spelling of the clustering order is read."""
    columns = [
        ("pk", "partition_key", 0, "int", "NONE"),
        ("a", "clustering", 0, "int", "ASC"),
        ("b", "clustering", 1, "frozen<address>", desc),
        ("v", "regular", -1, "list<frozen<address>>", "NONE"),
    ]
    expected = table(
        {"pk": "int"},
        {"a": "int", "b": "frozen<address>"},
        {"v": "list<frozen<address>>"},
        types={"address": {"street": "text", "Odd": 'frozen<list<frozen<"Odd">>>'}, "Odd": {"n": "int"}},
        descending=["b"],
    )
    assert described(System(columns, TYPES)) == expected


def test_user_types_are_read_only_if_needed() -> None:
    """The keyspace's types are not read if no column has one."""
    system = System([("pk", "partition_key", 0, "frozen<map<int, text>>", "NONE")], TYPES)
    assert described(system) == table({"pk": "frozen<map<int, text>>"})
    assert system.asked == ["columns"]


@pytest.mark.parametrize("flags", [frozenset(), None])
def test_compact_storage_without_clustering_columns(flags: frozenset[str] | None) -> None:
    """As the server described table xc2 of the recordings: only the columns of the log and of CQL."""
    columns = [
        ("a", "static", -1, "int", "NONE"),
        ("b", "static", -1, "text", "NONE"),
        ("column1", "clustering", 0, "text", "ASC"),
        ("pk", "partition_key", 0, "int", "NONE"),
        ("value", "regular", -1, "blob", "NONE"),
    ]
    assert described(System(columns, [], flags)) == table({"pk": "int"}, {}, {"a": "int", "b": "text"})
    ordinary = table({"pk": "int"}, {"column1": "text"}, {"value": "blob"}, {"a": "int", "b": "text"})
    assert described(System(columns, [])) == ordinary


@pytest.mark.parametrize(
    ("clustering", "flags", "partial"),
    [
        (2, frozenset({"compound", "dense"}), True),
        (2, frozenset({"compound"}), False),
        (2, None, False),
        (1, frozenset({"dense"}), False),
    ],
)
def test_compact_storage_with_clustering_columns(clustering: int, flags: frozenset[str] | None, partial: bool) -> None:
    """With several clustering columns, rows may lack the last ones."""
    columns = [("pk", "partition_key", 0, "int", "NONE"), ("v", "regular", -1, "int", "NONE")]
    columns += [(f"c{at}", "clustering", at, "int", "ASC") for at in range(clustering)]
    found = described(System(columns, [], flags))
    wanted = table({"pk": "int"}, {f"c{at}": "int" for at in range(clustering)}, {"v": "int"})
    assert found == replace(wanted, partial_clustering=partial)
    assert (found.to_json() == wanted.to_json()) != partial


def test_unknown_type_is_named() -> None:
    """For example a type that was dropped."""
    with pytest.raises(TypeTextError, match="'gone'"):
        described(System([("pk", "partition_key", 0, "frozen<gone>", "NONE")], TYPES))


class Names:
    """A server with the table `Shop."LineItems"`; its CDC is enabled, but it has no log."""

    settings = SimpleNamespace(metadata_consistency=None)
    address = "s:1"

    def __init__(self, *, is_scylla: bool) -> None:
        self.is_scylla = is_scylla

    def rows(self, cql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        if "system_schema.keyspaces" in cql:
            return [{"keyspace_name": "Shop"}, {"keyspace_name": "system"}]
        if cql.endswith("tables WHERE keyspace_name = ?"):
            return [{"table_name": "LineItems"}, {"table_name": "orders"}]
        if tuple(parameters) == ("system_schema", "scylla_tables"):
            return [{"id": 1}] if self.is_scylla else []
        if tuple(parameters) != ("Shop", "LineItems"):
            return []
        if "system_schema.columns" in cql:
            column = ("pk", "partition_key", 0, "int", "NONE")
            return [dict(zip(("column_name", "kind", "position", "type", "clustering_order"), column, strict=True))]
        return [{"id": 1, "extensions": {"cdc": b"\x01\0\0\0\x07\0\0\0enabled\x04\0\0\0true"}}]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (("shop", "orders"), "table shop.orders: there is no keyspace 'shop' at s:1; did you mean \"Shop\"?"),
        (("nothing", "orders"), "table nothing.orders: there is no keyspace 'nothing' at s:1"),
        (
            ("Shop", "lineitems"),
            'table "Shop".lineitems: there is no such table at s:1; did you mean "Shop"."LineItems"?',
        ),
        (("Shop", "others"), 'table "Shop".others: there is no such table at s:1'),
    ],
)
def test_missing_names_that_differ_in_case_are_suggested(name: tuple[str, str], words: str) -> None:
    """They are quoted as in the configuration file."""
    with pytest.raises(StartupError) as caught:
        ChangeLog(cast("CqlSession", Names(is_scylla=True))).table_schema(*name)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("is_scylla", "words"),
    [(True, "disable and enable CDC"), (False, "is missing.*scylla-cdc-bridge local cql")],
)
def test_server_without_logs_is_distinguished_from_scylladb(is_scylla: bool, words: str) -> None:
    """Only with ScyllaDB it helps to wait for the log."""
    with pytest.raises(StartupError, match='"LineItems_scylla_cdc_log" does not exist; .*' + words):
        ChangeLog(cast("CqlSession", Names(is_scylla=is_scylla))).check_captured("Shop", "LineItems")


class NeverCaptured:
    """A server whose table `shop.t` has no CDC and is of the given kind."""

    settings = SimpleNamespace(metadata_consistency=None)
    address = "s:1"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.table = "t_scylla_cdc_log" if kind == "log" else "t"

    def rows(self, cql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        if "system_schema.columns" in cql:
            names = ("column_name", "kind", "position", "type", "clustering_order")
            value = "counter" if self.kind == "counters" else "int"
            columns = (("pk", "partition_key", 0, "int", "NONE"), ("v", "regular", -1, value, "NONE"))
            return [dict(zip(names, column, strict=True)) for column in columns]
        if "system_schema.views" in cql:
            return [{"base_table_name": "orders"}] if self.kind == "view" else []
        return [{"id": 1, "extensions": {}}]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("log", "shop.t_scylla_cdc_log: is a log itself; name the table that it belongs to, shop.t"),
        ("view", "shop.t: is a materialized view, which has no CDC; name its table, shop.orders"),
        ("counters", "shop.t: has counters, and ScyllaDB has no CDC for these"),
    ],
)
def test_table_that_can_never_have_cdc_is_explained(kind: str, words: str) -> None:
    """The advice is not to enable CDC, which would be refused too."""
    server = NeverCaptured(kind)
    with pytest.raises(StartupError) as caught:
        ChangeLog(cast("CqlSession", server)).check_captured("shop", server.table)
    assert str(caught.value) == f"table {words}"
