"""The simulator's base table in the terms of the replica: is the copy what was written?"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from bridge.model.times import UnixMicros, sort_key
from sandbox.scylla.base.state import BaseRow, BaseState
from sandbox.scylla.values.ordering import Key
from sandbox.verify.expectations import reader
from schemas.avro.names import avro_name
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, UdtType
from tests.replica import Replica, RowKey, SeenRow, frozen


def sorts(table: TableSchema) -> Any:
    """How clustering values sort: as they are, but for texts and timeuuids."""
    types = {avro_name(column.name): str(column.type) for column in table.clustering}

    def compare(name: str, value: Any) -> Any:
        match types[name]:
            case "text" | "ascii":
                return value.encode()
            case "timeuuid":
                return sort_key(UUID(value).bytes)
        return value

    return compare


def seen(table: TableSchema, row: BaseRow) -> SeenRow:
    """A row of the base table in the terms of the replica."""
    columns = {column.name: column for column in table.values}
    cells = {avro_name(name): value(columns[name], cell) for name, cell in row.cells.items()}
    collections = {
        avro_name(name): dict(element(columns[name].type, *one) for one in elements.items())
        for name, elements in row.collections.items()
    }
    return SeenRow(cells, collections, row.has_marker)


def value(column: Column, cell: bytes) -> Any:
    if not cell and isinstance(column.type, NativeType) and not column.type.empty_is_value:
        return "EMPTY"
    return frozen(reader(column.type)(cell))


def element(cql_type: CqlType, key: bytes, raw: bytes) -> tuple[Any, Any]:
    match cql_type:
        case SetType(inner):
            return frozen(reader(inner)(key)), True
        case MapType(name, inner):
            return frozen(reader(name)(key)), frozen(reader(inner)(raw))
        case ListType(inner):
            return str(UUID(bytes=key)), frozen(reader(inner)(raw))
        case UdtType():
            field, inner = cql_type.fields[int.from_bytes(key, "big")]
            return avro_name(field), frozen(reader(inner)(raw))
    raise AssertionError(cql_type)


def decoded(columns: tuple[Column, ...], key: Key) -> dict[str, Any]:
    return {avro_name(column.name): reader(column.type)(cell) for column, cell in zip(columns, key, strict=True)}


def content(table: TableSchema, base: BaseState, partition: Key, now_us: UnixMicros) -> dict[RowKey, SeenRow]:
    return {
        tuple(frozen(one) for one in decoded(table.clustering, clustering).values()): seen(table, row)
        for clustering, row in base.rows(partition, now_us)
    }


def assert_same(table: TableSchema, replica: Replica, base: BaseState, now_us: UnixMicros) -> None:
    """Hold every partition that was ever written against the copy, its rows and its static row."""
    for partition in base.partitions:
        key = decoded(table.partition_key, partition)
        rows, wanted = replica.rows(key), content(table, base, partition, now_us)
        assert rows == wanted
        static, wanted_static = replica.static(key), seen(table, base.static(partition, now_us))
        assert static == wanted_static
        for one, other in [(static, wanted_static), *((rows[name], wanted[name]) for name in wanted)]:
            assert lists(table, one) == lists(table, other)


def lists(table: TableSchema, row: SeenRow) -> list[list[Any]]:
    """The keys of lists in the order of the elements, which equal mappings need not share."""
    names = [avro_name(column.name) for column in table.values if isinstance(column.type, ListType)]
    return [list(row.collections.get(name, ())) for name in names]
