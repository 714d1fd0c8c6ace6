"""The tables that are measured: their columns, and mutations that fill every column of them."""

from __future__ import annotations

import string
from collections.abc import Iterator
from random import Random
from typing import Final

from bridge.local.simulator.mutations import Insert, Mutation
from bridge.local.simulator.ordering import Key
from bridge.local.simulator.tables import SimulatedTable
from bridge.local.simulator.values import draw, encode
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema

KEYSPACE: Final = "bench"
DEFAULT_TABLES: Final = ("narrow", "twelve")

_TEN: Final = (
    "text", "int", "bigint", "double", "boolean", "timestamp", "uuid", "text", "decimal", "date",
)  # fmt: skip
_SCALARS: Final = (
    "text", "int", "bigint", "double", "boolean", "timestamp", "uuid", "text", "decimal", "date", "float", "smallint",
    "inet", "time",
)  # fmt: skip
_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "narrow": ("text",),
    "twelve": _TEN,
    "wide": _SCALARS + _SCALARS,
}
TABLES: Final = tuple(_VALUES)
"""Names of all tables there are."""

_TEXT_LETTERS: Final = string.ascii_letters + string.digits + " "
_NARROW_TEXT_CHARACTERS: Final = 50
_TEXT_CHARACTERS: Final = 20
_KEYS: Final = 10_000
_ROWS_PER_KEY: Final = 1000
_POOL: Final = 1024


def table(name: str) -> SimulatedTable:
    """A table: `pk int`, `ck int` and the value columns that its name stands for."""
    columns = [
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        *(Column(f"v{number}", parse(type_name), ColumnKind.REGULAR) for number, type_name in enumerate(_VALUES[name])),
    ]
    return SimulatedTable(TableSchema(KEYSPACE, name, tuple(columns)))


def mutations(simulated: SimulatedTable, *, seed: int) -> Iterator[Mutation]:
    """Single-row inserts of every column without end: a change each, no two alike, no extremes.

    Cells come from pools that are drawn once, because drawing each anew would be most of a load's time.
    """
    schema = simulated.table_schema
    random = Random(f"{seed}/{schema.full_name}")
    characters = _NARROW_TEXT_CHARACTERS if len(schema.values) == 1 else _TEXT_CHARACTERS
    names = [column.name for column in schema.values]
    types = [str(column.type) for column in schema.values]
    rows = [
        {
            name: _text(random, characters) if type_name == "text" else draw(type_name, random, 0.0)
            for name, type_name in zip(names, types, strict=True)
        }
        for _ in range(_POOL)
    ]
    number = parse("int")
    partition_keys: list[Key] = [(encode(number, key),) for key in range(_KEYS)]
    clustering: list[Key] = [(encode(number, row),) for row in range(_ROWS_PER_KEY)]
    pick = random.random
    while True:
        yield Mutation(
            partition_keys[int(pick() * _KEYS)],
            (Insert(clustering[int(pick() * _ROWS_PER_KEY)], rows[int(pick() * _POOL)]),),
        )


def _text(random: Random, characters: int) -> bytes:
    return "".join(random.choices(_TEXT_LETTERS, k=characters)).encode()
