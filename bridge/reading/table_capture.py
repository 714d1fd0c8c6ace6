"""A captured table as a task needs it: a reader of its log, and the encoder for exactly the columns that this gives.

The schema comes from three answers of the cluster: `system_schema` describes the base table, the prepared statement
the log's columns, and each page its own. While an ALTER TABLE spreads over the nodes these may be of different times,
so they are compared, and asked for anew until they agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from bridge.errors import BridgeError, RefusedError, RetriableError, TableMissingError
from bridge.model.log_rows import LogLayout
from bridge.reading.lane_merge import describe_columns
from bridge.reading.stream_probe import EmptyStreamProbe, Log
from schemas.cql.table import LOG_TABLE_SUFFIX, TableSchema
from schemas.cql.table_changes import misfits
from schemas.cql.types import CqlType
from schemas.errors import SchemaError, TableSchemaError, TypeTextError
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.table_codec import TableCodec

AGREE_WITHIN_S: Final = 30.0
"""For how long the answers about a table may contradict each other: ScyllaDB's nodes agree within a few seconds."""

_ASK_EVERY_S: Final = 0.2


class PreparedLog(Log, Protocol):
    """A log: its pages, which streams have rows, and what its statement said of the columns when it was prepared."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the order of a row's cells."""
        ...

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns`, as `Page.types`."""
        ...


class TableDescriptions(Protocol):
    """What a cluster says about a table; see `bridge.adapters.scylla.change_log.ChangeLog`."""

    def describe_table(self, keyspace: str, table: str) -> TableSchema | None:
        """The base table; None when it or its log does not exist."""
        ...

    def log_reader(self, keyspace: str, table: str) -> PreparedLog:
        """A reader of the log, its statements prepared now."""
        ...


class UnsettledSchemaError(RetriableError):
    """The cluster's answers about a table's columns contradict each other."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """Under which schemas changes are encoded.

    Attributes:
        key: Avro schema of the keys, as JSON text.
        value: Avro schema of the values, as JSON text.
    """

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table's reader, what was compiled for its columns, and what reading it has taught.

    Attributes:
        schema: the base table's.
        reader: asks for what its log has.
        layout: of the log's rows.
        codec: encodes its changes.
        probe: knows which of its streams are worth reading, for the one thread that reads.
    """

    schema: TableSchema
    reader: PreparedLog
    layout: LogLayout
    codec: TableCodec
    probe: EmptyStreamProbe = field(default_factory=EmptyStreamProbe, compare=False)

    @property
    def schemas(self) -> Schemas:
        """What its changes are encoded under."""
        return Schemas(self.codec.key_avro_schema, self.codec.value_avro_schema)


def capture(
    cluster: TableDescriptions,
    keyspace: str,
    table: str,
    output: OutputOptions = DEFAULT_OUTPUT,
    *,
    within_s: float = AGREE_WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> CapturedTable:
    """A table as the cluster describes it now, once its answers agree.

    Args:
        cluster: who is asked.
        keyspace: the table's.
        table: name of the base table.
        output: what its changes are to look like.
        within_s: for how long the answers may contradict each other.
        clock: monotonic seconds.
        sleep: pauses for so many seconds.

    Raises:
        TableMissingError: there is no such table, or it has no log.
        UnsettledSchemaError: schema and log still differ after `within_s`; names the table and both lists of columns.
        RetriableError: the cluster does not answer.
        BridgeError: a column's type can't be carried, for one.
    """
    until_s = clock() + within_s
    while True:
        try:
            return _capture_once(cluster, keyspace, table, output)
        except UnsettledSchemaError as error:
            if clock() >= until_s:
                raise UnsettledSchemaError(
                    f"{error} (the same for {within_s:.0f} s; do the cluster's nodes agree on its schema? "
                    "`nodetool describecluster` says so)"
                ) from error
        sleep(_ASK_EVERY_S)


def _capture_once(cluster: TableDescriptions, keyspace: str, table: str, output: OutputOptions) -> CapturedTable:
    try:
        schema = cluster.describe_table(keyspace, table)
    except (TableSchemaError, TypeTextError) as error:
        # The rows of `system_schema` are read one after the other, so a user-defined type may be missing, for one.
        raise UnsettledSchemaError(f"table {keyspace}.{table}: {error}") from error
    if schema is None:
        raise TableMissingError(describe_missing_table(keyspace, table))
    try:
        reader = cluster.log_reader(keyspace, table)
    except RefusedError as error:
        # Dropped after it was described, or not known to the node that was asked.
        raise UnsettledSchemaError(f"table {keyspace}.{table}: {error}") from error
    columns, types = reader.columns, reader.types
    try:
        wrong = misfits(schema, columns, types)
        if not wrong:
            # First, for it tells a log whose key column is being renamed from what is no log at all.
            codec = TableCodec(schema, columns, output)
            keys = ([column.name for column in part] for part in (schema.partition_key, schema.clustering))
            layout = replace(LogLayout.of(columns, *keys), types=types, table=f"{keyspace}.{table}")
            return CapturedTable(schema, reader, layout, codec)
    except TableSchemaError as error:
        wrong = [str(error)]
    except SchemaError as error:
        raise BridgeError(f"table {keyspace}.{table}: {error}") from error
    in_table = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
    raise UnsettledSchemaError(
        f"table {keyspace}.{table}: its columns are {in_table}, those of its log {describe_columns(columns, types)}: "
        f"{'; '.join(wrong)}"
    )


def describe_missing_table(keyspace: str, table: str) -> str:
    """That a table or its log is not there."""
    return (
        f"table {keyspace}.{table}: it or its log {keyspace}.{table}{LOG_TABLE_SUFFIX} does not exist; was the table "
        "dropped? The reading goes on when it is back, or take it out of the configuration"
    )
