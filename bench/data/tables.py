"""The measured tables: their columns, and mutations that fill every column."""

from __future__ import annotations

import string
from collections.abc import Iterator
from random import Random
from typing import Final

from sandbox.scylla.base.element_pools import ElementPool
from sandbox.scylla.base.mutations import Cells, ColumnWrite, Insert, Mutation, Update
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.native import encode
from sandbox.scylla.values.nested import is_multi_cell
from sandbox.scylla.values.nested_values import Draw
from sandbox.scylla.values.ordering import Key
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

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
    "collections": ("list<int>", "set<text>", "map<text, bigint>", "frozen<list<text>>"),
}
TABLES: Final = tuple(_VALUES)
"""Names of all tables there are."""

_TEXT_LETTERS: Final = string.ascii_letters + string.digits + " "
_NARROW_TEXT_CHARACTERS: Final = 50
_TEXT_CHARACTERS: Final = 20
_KEYS: Final = 10_000
_ROWS_PER_KEY: Final = 1000
_POOL: Final = 1024
_REPLACED: Final = 0.3
"""Share of updates that replace a collection."""


def table(name: str) -> SimulatedTable:
    """Return a table: `pk int`, `ck int` and the value columns of its name."""
    columns = [
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        *(Column(f"v{number}", parse(type_name), ColumnKind.REGULAR) for number, type_name in enumerate(_VALUES[name])),
    ]
    return SimulatedTable(TableSchema(KEYSPACE, name, tuple(columns)))


def mutations(simulated: SimulatedTable, *, seed: int, pool_size: int = _POOL) -> Iterator[Mutation]:
    """Yield single-row writes of all columns without end, each one change, without extreme values.

    All are inserts, except that half of the writes to a table with collections are updates. Most updates add and remove
    elements. Cells come from a pool of random rows, because drawing each row would dominate the time of a load.
    """
    schema = simulated.table_schema
    random = Random(f"{seed}/{schema.full_name}")
    characters = _NARROW_TEXT_CHARACTERS if len(schema.values) == 1 else _TEXT_CHARACTERS
    pool = [_operation(schema, number % 2 == 1, random, characters) for number in range(pool_size)]
    number = parse("int")
    partition_keys: list[Key] = [(encode(number, key),) for key in range(_KEYS)]
    clustering: list[Key] = [(encode(number, row),) for row in range(_ROWS_PER_KEY)]
    pick = random.random
    while True:
        write, cells = pool[int(pick() * pool_size)]
        yield Mutation(
            partition_keys[int(pick() * _KEYS)],
            (write(clustering[int(pick() * _ROWS_PER_KEY)], cells),),
        )


def _operation(
    schema: TableSchema, may_update: bool, random: Random, characters: int
) -> tuple[type[Insert] | type[Update], Cells]:
    is_update = may_update and any(is_multi_cell(column.type) for column in schema.values)
    values = Draw(random, extremes=0.0, most=5, nulls=0.0)
    cells: dict[str, ColumnWrite] = {}
    for column in schema.values:
        if is_multi_cell(column.type):
            pool = ElementPool(column.type, values)
            cells[column.name] = pool.write(is_update, nulls=0.0, replaced=_REPLACED)
        elif str(column.type) == "text":
            cells[column.name] = _text(random, characters)
        else:
            cells[column.name] = values.value(column.type)
    return (Update if is_update else Insert), cells


def _text(random: Random, characters: int) -> bytes:
    return "".join(random.choices(_TEXT_LETTERS, k=characters)).encode()
