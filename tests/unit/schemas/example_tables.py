"""Tables and log rows that several tests use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import is_multi_cell, parse, resolve
from schemas.log.columns import META_COLUMNS, deleted_elements, deleted_flag

NATIVE = [
    *("ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet"),
    *("int", "smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint"),
]

STREAM = bytes.fromhex("c0a8000000000000000000000000c0a1")
TIME = bytes.fromhex("b223c55e6d0711ea765424e4fb3f20b9")
TIME_US = 1584969040910883


def table(
    partition: dict[str, str],
    clustering: dict[str, str] | None = None,
    regular: dict[str, str] | None = None,
    static: dict[str, str] | None = None,
    *,
    keyspace: str = "ks",
    name: str = "t",
    types: Mapping[str, dict[str, str]] | None = None,
    descending: Collection[str] = (),
) -> TableSchema:
    """Make a table from column name -> type text; `types` are the user-defined types, as field -> type text."""
    known = {udt: [(field, parse(text)) for field, text in fields.items()] for udt, fields in (types or {}).items()}
    columns = [
        Column(
            column,
            resolve(parse(text), known) if types else parse(text),
            kind,
            position if kind in KEYS else -1,
            column in descending,
        )
        for kind, group in (
            (ColumnKind.PARTITION_KEY, partition),
            (ColumnKind.CLUSTERING, clustering or {}),
            (ColumnKind.REGULAR, regular or {}),
            (ColumnKind.STATIC, static or {}),
        )
        for position, (column, text) in enumerate(group.items())
    ]
    return TableSchema(keyspace, name, tuple(columns))


KEYS = {ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING}


def log_columns(of: TableSchema) -> list[str]:
    """The columns of the table's log, in the server's order."""
    regular = [column.name for column in of.columns if not column.is_hidden]
    regular += [deleted_flag(column.name) for column in of.values]
    regular += [deleted_elements(column.name) for column in of.values if is_multi_cell(column.type)]
    return list(META_COLUMNS[:3]) + sorted(regular + list(META_COLUMNS[3:]), key=str.encode)


def row(of: TableSchema, cells: dict[str, bytes | None], ttl: bytes | None = None) -> tuple[bytes | None, ...]:
    """One log row from cells by column name, with default cells for the log's own columns."""
    meta = {"cdc$stream_id": STREAM, "cdc$time": TIME, "cdc$batch_seq_no": bytes(4), "cdc$ttl": ttl}
    known = {**meta, **cells}
    return tuple(known.get(column) for column in log_columns(of))


def wide_table() -> TableSchema:
    """A table with every native type that a CDC table can have, and with awkward names."""
    return table(
        {"pk": "int", "pk2": "text"},
        {"ck": "timestamp", "ck2": "decimal"},
        {**{f"c_{name}": name for name in NATIVE if name != "counter"}, "first name": "text", "Größe": "int"},
        {"s": "decimal"},
        keyspace="my ks",
        name="Wide",
    )


def counted(*parts: bytes, of: int = 1) -> bytes:
    """A collection's cell from its elements, or from the keys and values of its entries if `of` is 2."""
    return (len(parts) // of).to_bytes(4, "big") + sized(*parts)


def sized(*parts: bytes | None) -> bytes:
    """A tuple's cell: each part behind its length; None is a null part."""
    return b"".join(b"\xff" * 4 if part is None else len(part).to_bytes(4, "big") + part for part in parts)


ADDRESS = {"street": "text", "zip": "int", "tags": "frozen<set<text>>"}


def rich_table() -> TableSchema:
    """A table with every kind of column and with awkward names."""
    return table(
        {"pk": "int"},
        {"ck": "int", "when": "frozen<tuple<int, text>>"},
        {
            "atomic": "text",
            "frozen list": "frozen<list<decimal>>",
            "l": "list<duration>",
            "m": "map<text, frozen<list<int>>>",
            "nested": "frozen<map<uuid, frozen<tuple<int, frozen<address>, frozen<set<inet>>>>>>",
            "s": "set<text>",
            "u": "address",
            "uf": 'frozen<"Odd Type">',
            "vec": "vector<float, 3>",
            "vec2": "vector<text, 2>",
        },
        {"st": "set<int>", "sv": "timestamp"},
        name="rich",
        types={"address": ADDRESS, "Odd Type": {"a b": "frozen<address>", "n": "varint"}},
        descending=["when"],
    )
