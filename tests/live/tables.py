"""The shapes of the tables, and the statements that create them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.live.cql_types import CqlType, Frozen, Map, Tuple, Udt, list_of, set_of
from tests.live.native_types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    DURATION,
    INET,
    INT,
    NATIVES,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMEUUID,
    UUID_,
    VARINT,
)

_LOG_TTL_S: Final = 7 * 86_400
"""Longer than any run: a log row that has expired can't be compared."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `descending` is for clustering columns."""

    name: str
    type: CqlType
    descending: bool = False

    @property
    def quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(slots=True)
class Table:
    """A table as its writer and the comparisons know it. ALTER TABLE changes the columns.

    Attributes:
        keyspace: its keyspace.
        name: its name.
        partition: columns of the partition key.
        clustering: columns of the clustering key.
        statics: static columns.
        regular: regular columns.
        cdc: options besides `enabled` and `ttl`.
        record_shape: the shape of its records.
        types: the user-defined types of its keyspace.
        has_view: whether a materialized view and an index stand beside it.
        dropped_us: when a column was dropped last, by its name.
        retired: columns that were dropped; their types are needed for old records.
    """

    keyspace: str
    name: str
    partition: list[Column]
    clustering: list[Column]
    statics: list[Column]
    regular: list[Column]
    cdc: dict[str, str]
    record_shape: str
    types: list[Udt]
    has_view: bool = False
    dropped_us: dict[str, int] = field(default_factory=dict)
    retired: list[Column] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.keyspace}.{self.name}"

    @property
    def key(self) -> list[Column]:
        return self.partition + self.clustering

    @property
    def values(self) -> list[Column]:
        return self.statics + self.regular

    @property
    def shows_values(self) -> bool:
        """Whether the log has the written values."""
        return self.cdc.get("delta") != "keys"

    def column(self, name: str) -> Column:
        """A column, present or dropped."""
        return next(one for one in (*self.key, *self.values, *reversed(self.retired)) if one.name == name)

    def create(self) -> str:
        """The CREATE TABLE statement."""
        columns = [f"{one.quoted} {one.type.cql}" for one in self.key]
        columns += [f"{one.quoted} {one.type.cql} static" for one in self.statics]
        columns += [f"{one.quoted} {one.type.cql}" for one in self.regular]
        partition = ", ".join(one.quoted for one in self.partition)
        key = ", ".join([f"({partition})", *(one.quoted for one in self.clustering)])
        options = [f"cdc = {self.cdc_option()}"]
        if self.clustering:
            order = ", ".join(f"{one.quoted} {'DESC' if one.descending else 'ASC'}" for one in self.clustering)
            options.append(f"CLUSTERING ORDER BY ({order})")
        return f"CREATE TABLE {self.full_name} ({', '.join(columns)}, PRIMARY KEY ({key})) WITH {' AND '.join(options)}"

    def cdc_option(self, *, enabled: bool = True) -> str:
        """The value of the option `cdc`."""
        options = {"enabled": str(enabled).lower(), "ttl": str(_LOG_TTL_S), **self.cdc}
        return "{" + ", ".join(f"'{name}': '{value}'" for name, value in options.items()) + "}"

    def beside(self) -> Iterator[str]:
        """The statements that create a view and an index of the table."""
        if self.has_view:
            key = [*self.clustering, *self.partition]
            names = ", ".join(one.quoted for one in key)
            there = " AND ".join(f"{one.quoted} IS NOT NULL" for one in key)
            yield (
                f"CREATE MATERIALIZED VIEW {self.full_name}_view AS SELECT * FROM {self.full_name} "
                f"WHERE {there} PRIMARY KEY ({names})"
            )
            yield f"CREATE INDEX ON {self.full_name} ({self.regular[0].quoted})"


def user_types() -> list[Udt]:
    """The types of a keyspace, in an order in which they can be created."""
    near = Udt("near", [("a", INT), ("b", TEXT)])
    far = Udt(
        "far", [("x", BIGINT), ("home", Frozen(near)), ("others", Frozen(list_of(Frozen(near)))), ("w", DURATION)]
    )
    return [near, far]


def create_type(keyspace: str, udt: Udt) -> str:
    """The CREATE TYPE statement."""
    fields = ", ".join(f'"{name}" {kind.cql}' for name, kind in udt.fields)
    return f"CREATE TYPE {keyspace}.{udt.name} ({fields})"


SHAPES: Final = (
    *("natives", "composite", "collections", "udts", "single", "typed_keys", "keys_only", "delta_keys"),
    *("full_images", "plain_images", "viewed"),
)
"""What each table is called; `table_of` has what it means."""


def table_of(keyspace: str, shape: str, types: list[Udt]) -> Table:
    """A table of one of the shapes."""
    near, far = types
    partition, clustering = [Column("pk", INT)], [Column("ck", INT)]
    statics: list[Column] = []
    cdc: dict[str, str] = {}
    record_shape, has_view = "delta", False
    match shape:
        case "natives":
            regular = [Column(f"c_{one.cql}", one) for one in NATIVES]
            clustering = [Column("ck", TEXT, descending=True)]
        case "composite":
            partition = [Column("pk", TEXT), Column("part", BIGINT)]
            clustering = [Column("c1", INT, descending=True), Column("c2", TEXT), Column("c3", TIMEUUID)]
            statics = [Column("s", TEXT), Column("s_set", set_of(INT)), Column("s_udt", near)]
            regular = [Column("v", INT), Column("w", TEXT), Column("first name", TEXT)]
        case "collections":
            statics = [Column("s_map", Map(TEXT, INT)), Column("s_list", list_of(INT))]
            regular = _collections(near)
        case "udts":
            regular = _udts(near, far)
        case "single":
            clustering = []
            regular = [Column("v", INT), Column("w", TEXT), Column("m", Map(INT, TEXT)), Column("u", near)]
        case "typed_keys":
            partition = [Column("p1", UUID_), Column("p2", INET), Column("p3", DATE), Column("p4", BOOLEAN)]
            clustering = _typed_clustering()
            statics = [Column("s", VARINT)]
            regular = [Column("v", DOUBLE), Column("w", Frozen(Map(TEXT, INT)))]
        case "keys_only":
            clustering = [Column("ck", INT), Column("c2", BIGINT, descending=True)]
            regular = []
        case "delta_keys":
            regular = [Column("v", INT), Column("m", Map(INT, TEXT))]
            statics, cdc = [Column("s", INT)], {"delta": "keys"}
        case "full_images":
            regular = [Column("v", INT), Column("w", TEXT), *_collections(near)[:4], Column("u", near)]
            statics, record_shape = [Column("s", INT), Column("s_set", set_of(TEXT))], "full"
            cdc = {"preimage": "full", "postimage": "true"}
        case "plain_images":
            regular = [Column("v", INT), Column("w", TEXT), Column("m", Map(INT, TEXT))]
            record_shape, cdc = "full", {"preimage": "true"}
        case "viewed":
            regular, has_view = [Column("v", INT), Column("w", TEXT), Column("tags", set_of(TEXT))], True
        case _:
            raise ValueError(f"no such shape: {shape} (choose from {', '.join(SHAPES)})")
    return Table(keyspace, shape, partition, clustering, statics, regular, cdc, record_shape, types, has_view)


def _udts(near: Udt, far: Udt) -> list[Column]:
    return [
        *(Column("u", near), Column("fu", Frozen(near)), Column("deep", far), Column("fdeep", Frozen(far))),
        Column("t", Tuple((INT, TEXT, Frozen(set_of(INT))))),
        Column("t_deep", Tuple((Frozen(near), Tuple((DECIMAL, DATE))))),
        Column("us", set_of(Frozen(near))),
    ]


def _typed_clustering() -> list[Column]:
    return [
        Column("c1", TIMESTAMP, descending=True),
        Column("c2", DECIMAL),
        Column("c3", BLOB, descending=True),
        Column("c4", SMALLINT),
    ]


def _collections(near: Udt) -> list[Column]:
    return [
        Column("m", Map(INT, TEXT)),
        Column("st", set_of(TEXT)),
        Column("l", list_of(INT)),
        Column("m_near", Map(TEXT, Frozen(near))),
        Column("m_uuid", Map(TIMEUUID, Frozen(list_of(INT)))),
        Column("s_list_of", set_of(Frozen(list_of(INT)))),
        Column("l_map", list_of(Frozen(Map(INT, TEXT)))),
        Column("fm", Frozen(Map(TEXT, INT))),
        Column("fs", Frozen(set_of(INT))),
        Column("fl", Frozen(list_of(Frozen(Map(TEXT, Frozen(set_of(INT))))))),
    ]


def counter_table(keyspace: str) -> str:
    """A statement that the server must refuse."""
    return f"CREATE TABLE {keyspace}.counted (pk int PRIMARY KEY, n counter) WITH cdc = {{'enabled': 'true'}}"
