"""A captured table as a task needs it: a reader of its log, and an encoder for exactly the reader's columns.

The cluster describes the columns in three places: `system_schema` those of the base table, the prepared statement those
of the log, and each page its own. While an ALTER TABLE spreads over the nodes, these may differ. So they are compared,
and read again until they agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from bridge.errors import BridgeError, RefusedError, RetriableError, TableMissingError
from bridge.model.log_rows import LogLayout
from bridge.reading.lane_merge import describe_columns
from bridge.reading.ports import PreparedLog, TableDescriptions
from bridge.reading.stream_probe import EmptyStreamProbe
from schemas.cql.table import LOG_TABLE_SUFFIX, TableSchema
from schemas.cql.table_changes import misfits
from schemas.errors import SchemaError, TableSchemaError, TypeTextError
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.table_codec import TableCodec

AGREE_WITHIN_S: Final = 30.0
"""How long the descriptions of a table may differ, in s: ScyllaDB's nodes agree within a few seconds."""

_RETRY_EVERY_S: Final = 0.2


class UnsettledSchemaError(RetriableError):
    """The cluster's descriptions of a table's columns contradict each other."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas that changes are encoded with.

    Attributes:
        key: Avro schema of the keys, as JSON text.
        value: Avro schema of the values, as JSON text.
    """

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table's log reader, and what was compiled for its columns.

    Attributes:
        schema: the base table's.
        reader: reads the log.
        layout: where the columns lie in a log row.
        codec: encodes the changes.
        probe: finds out which streams are empty; for the one thread that reads the table.
    """

    schema: TableSchema
    reader: PreparedLog
    layout: LogLayout
    codec: TableCodec
    probe: EmptyStreamProbe = field(default_factory=EmptyStreamProbe, compare=False)

    @property
    def schemas(self) -> Schemas:
        """The schemas that the changes are encoded with."""
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
    """Capture a table as the cluster describes it now, once the descriptions agree.

    Args:
        cluster: describes the table.
        keyspace: the table's.
        table: name of the base table.
        output: the shape of the published changes.
        within_s: how long the descriptions may differ, in s.
        clock: monotonic seconds.
        sleep: pauses for that many seconds.

    Raises:
        TableMissingError: there is no such table, or it has no log.
        UnsettledSchemaError: schema and log still differ after `within_s`; the message names the table and both lists
            of columns.
        RetriableError: the cluster does not answer.
        BridgeError: a column's type is not supported, for one.
    """
    deadline_s = clock() + within_s
    while True:
        try:
            return _capture_once(cluster, keyspace, table, output)
        except UnsettledSchemaError as error:
            if clock() >= deadline_s:
                raise UnsettledSchemaError(
                    f"{error} (the same for {within_s:.0f} s; do the cluster's nodes agree on its schema? "
                    "`nodetool describecluster` says so)"
                ) from error
        sleep(_RETRY_EVERY_S)


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
        # The log was dropped after the table was described, or the contacted node does not know it yet.
        raise UnsettledSchemaError(f"table {keyspace}.{table}: {error}") from error
    columns, types = reader.columns, reader.types
    try:
        differences = misfits(schema, columns, types)
        if not differences:
            # Compile the codec before the layout: only the codec distinguishes a log whose key column is being renamed
            # from a table that is no log.
            codec = TableCodec(schema, columns, output)
            keys = ([column.name for column in part] for part in (schema.partition_key, schema.clustering))
            layout = replace(LogLayout.of(columns, *keys), types=types, table=f"{keyspace}.{table}")
            return CapturedTable(schema, reader, layout, codec)
    except TableSchemaError as error:
        differences = [str(error)]
    except SchemaError as error:
        raise BridgeError(f"table {keyspace}.{table}: {error}") from error
    in_table = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
    raise UnsettledSchemaError(
        f"table {keyspace}.{table}: its columns are {in_table}, those of its log {describe_columns(columns, types)}: "
        f"{'; '.join(differences)}"
    )


def describe_missing_table(keyspace: str, table: str) -> str:
    """The message for a table that does not exist, or whose log does not."""
    return (
        f"table {keyspace}.{table}: it or its log {keyspace}.{table}{LOG_TABLE_SUFFIX} does not exist; was the table "
        "dropped? The reading goes on when it is back, or take it out of the configuration"
    )
