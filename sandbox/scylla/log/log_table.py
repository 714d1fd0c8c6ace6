"""The DDL of a captured table and of its CDC log as ScyllaDB makes it (spec sections 1.1 to 1.4). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sandbox.scylla.log.images import ImageOptions
from sandbox.scylla.values.multi_cell import log_types
from sandbox.scylla.values.nested import UserType
from schemas.cql.names import quoted
from schemas.cql.table import LOG_TABLE_SUFFIX, Column, TableSchema
from schemas.log.columns import END_OF_BATCH, OPERATION, TTL, deleted_elements, deleted_flag

CDC_PARTITIONER: Final = "com.scylladb.dht.CDCPartitioner"
"""The partitioner that `system_schema.scylla_tables` shows for log tables only."""

_META: Final = (
    (OPERATION, "tinyint"),
    (TTL, "bigint"),
    (END_OF_BATCH, "boolean"),
)


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """The `cdc` option of a base table.

    Attributes:
        ttl_s: TTL of log rows in seconds; 0 for none.
        preimage, postimage, delta: as in ScyllaDB.
        enabled: false for a table that is not captured.
        images_of_partition_deletes: not an option, but a property of the server's version: whether the delete of a
            partition with a single row has a pre-image, as since 2026.1.
    """

    ttl_s: int = 86_400
    preimage: Literal["false", "true", "full"] = "false"
    postimage: bool = False
    delta: Literal["full", "keys"] = "full"
    enabled: bool = True
    images_of_partition_deletes: bool = True

    @property
    def images(self) -> ImageOptions:
        """Which images are logged."""
        return ImageOptions(self.preimage, self.postimage, self.images_of_partition_deletes)

    def __str__(self) -> str:
        """Return the options as a map literal of CQL."""
        options = {
            "delta": self.delta,
            "enabled": str(self.enabled).lower(),
            "postimage": str(self.postimage).lower(),
            "preimage": self.preimage,
            "ttl": str(self.ttl_s),
        }
        return "{" + ", ".join(f"'{name}': '{value}'" for name, value in options.items()) + "}"


def log_columns(table_schema: TableSchema) -> tuple[tuple[str, str], ...]:
    """Return names and types of the log's regular columns, sorted by the bytes of the names as on the server."""
    columns = list(_META)
    for column in table_schema.columns:
        if column.is_hidden:
            continue
        columns += columns_of(column)
    return tuple(sorted(columns, key=lambda column: column[0].encode()))


def columns_of(column: Column) -> list[tuple[str, str]]:
    """Return names and types of the log's columns for one base column (spec section 1.2)."""
    if column.position >= 0:
        return [(column.name, str(column.type))]
    value, elements = log_types(column.type)
    found = [(column.name, value), (deleted_flag(column.name), "boolean")]
    return found if elements is None else [*found, (deleted_elements(column.name), elements)]


def type_ddl(keyspace: str, user_type: UserType) -> str:
    """Return the `CREATE TYPE` of a UDT."""
    fields = ", ".join(f"{quoted(name)} {cql_type}" for name, cql_type in user_type.fields)
    return f"CREATE TYPE {quoted(keyspace)}.{quoted(user_type.name)} ({fields})"


def base_ddl(table_schema: TableSchema, options: CdcOptions) -> str:
    """Return the `CREATE TABLE` of the base table with its cdc option."""
    columns = [
        f"{quoted(column.name)} {column.type}{' STATIC' if column in table_schema.statics else ''}"
        for column in table_schema.columns
        if not column.is_hidden
    ]
    clustering = [quoted(column.name) for column in table_schema.clustering]
    key = ", ".join([f"({_names(table_schema.partition_key)})", *clustering])
    properties = [f"cdc = {options}"]
    if clustering:
        directions = (
            f"{quoted(column.name)} {'DESC' if column.descending else 'ASC'}" for column in table_schema.clustering
        )
        properties.insert(0, f"CLUSTERING ORDER BY ({', '.join(directions)})")
    return (
        f"CREATE TABLE {quoted(table_schema.keyspace)}.{quoted(table_schema.name)} "
        f"({', '.join(columns)}, PRIMARY KEY ({key})) WITH {' AND '.join(properties)}"
    )


def log_ddl(table_schema: TableSchema, options: CdcOptions) -> str:
    """Return the `CREATE TABLE` of a table's log, as `log_ddl_of` does."""
    return log_ddl_of(table_schema.keyspace, table_schema.name, log_columns(table_schema), options)


def log_ddl_of(keyspace: str, table: str, columns: Sequence[tuple[str, str]], options: CdcOptions) -> str:
    """Return the `CREATE TABLE` of a log with these regular columns, with the options that Cassandra has, too."""
    regulars = ", ".join(f"{quoted(name)} {type_text}" for name, type_text in columns)
    comment = f"CDC log for {keyspace}.{table}".replace("'", "''")
    return (
        f"CREATE TABLE {quoted(keyspace)}.{quoted(table + LOG_TABLE_SUFFIX)} ("
        f'"cdc$stream_id" blob, "cdc$time" timeuuid, "cdc$batch_seq_no" int, {regulars}, '
        'PRIMARY KEY ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")) '
        'WITH CLUSTERING ORDER BY ("cdc$time" ASC, "cdc$batch_seq_no" ASC) '
        f"AND compaction = {_compaction(options.ttl_s)} "
        "AND caching = {'keys': 'NONE', 'rows_per_partition': 'NONE'} "
        f"AND comment = '{comment}' "
        f"AND default_time_to_live = 0 AND gc_grace_seconds = {0 if options.ttl_s else 864_000} "
        "AND bloom_filter_fp_chance = 0.01"
    )


def _compaction(ttl_s: int) -> str:
    options = {"class": "TimeWindowCompactionStrategy"}
    if ttl_s:
        # About 24 windows in a TTL (spec section 1.3).
        slice_s = -(-ttl_s // 24)
        options["compaction_window_unit"] = "MINUTES"
        options["compaction_window_size"] = str(-(-slice_s // 60))
        options["expired_sstable_check_frequency_seconds"] = str(max(1, slice_s // 2))
    return "{" + ", ".join(f"'{name}': '{value}'" for name, value in options.items()) + "}"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(quoted(column.name) for column in columns)
