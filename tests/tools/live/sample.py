"""A small table with log rows, records and rows as the three sources show them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.live.cql_types import Map, list_of, set_of
from tests.live.log import LogChange, Position
from tests.live.native_types import INT, TEXT
from tests.live.tables import Column, Table
from tests.live.topics import Record

START_US = 1_790_000_000_000_000
_TICKS_AT_1970 = 0x01B21DD213814000
_OPERATIONS = {"insert": 2, "update": 1, "static_update": 1, "row_delete": 3, "partition_delete": 4, "range_delete": 5}

TABLE = Table(
    "ks",
    "t",
    [Column("pk", INT)],
    [Column("ck", INT, descending=True)],
    [Column("s", INT)],
    [Column("v", INT), Column("m", Map(INT, TEXT)), Column("st", set_of(TEXT)), Column("l", list_of(INT))],
    {},
    "delta",
    [],
)


def _collection(name: str, cql: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", {"type": "record", "name": f"{name}_change", "cqlType": cql, "fields": []}]}


SCHEMA: dict[str, Any] = {
    "fields": [
        {
            "name": "key",
            "type": {
                "fields": [
                    {"name": "pk", "type": "int"},
                    {"name": "ck", "type": ["null", "int"], "clusteringOrder": "desc"},
                ]
            },
        },
        {
            "name": "columns",
            "type": [
                "null",
                {
                    "fields": [
                        {"name": "s", "type": ["null", "int"]},
                        {"name": "v", "type": ["null", "int"]},
                        _collection("m", "map<int, text>"),
                        _collection("st", "set<text>"),
                        _collection("l", "list<int>"),
                    ]
                },
            ],
        },
    ]
}
"""What a consumer looks at in the schema of a value."""


def position(at_us: int, batch_seq_no: int = 0, low: int = 0x80 << 56) -> Position:
    ticks = (START_US + at_us) * 10 + _TICKS_AT_1970
    fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000)
    raw = UUID(int=fields[0] << 96 | fields[1] << 80 | fields[2] << 64 | low).bytes
    return Position(b"stream of 16 byt", raw, batch_seq_no)


def record(
    op: str, at_us: int, key: tuple[int, int | None], ttl: int | None = None, *, partition: int = 0, **columns: Any
) -> Record:
    """A record with the change `op` at a time, of a row, with changes of columns."""
    place = position(at_us)
    value = {
        "op": op,
        "key": {"pk": key[0], "ck": key[1]},
        "range": columns.pop("range", None),
        "columns": dict.fromkeys(["s", "v", "m", "st", "l"]) | columns or None,
        "empty_columns": [],
        "ttl": ttl,
        "source": {
            "stream_id": place.stream,
            "time": place.time,
            "batch_seq_no": 0,
            "timestamp_us": START_US + at_us,
            "operation": _OPERATIONS[op],
            "generation_ms": 1,
        },
    }
    return Record(partition, str(key[0]).encode(), place, {"pk": key[0]}, value, SCHEMA)


def logged(records: list[Record]) -> dict[Position, LogChange]:
    """The log for which these records are right."""
    return {one.position: LogChange((one.key["pk"],), one.value["source"]["operation"]) for one in records}
