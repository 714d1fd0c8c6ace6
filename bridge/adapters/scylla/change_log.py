"""The CDC tables of a ScyllaDB cluster as the bridge reads them: schemas, options and log pages.

Knows the server's table names (spec sections 1 and 7); knows no client library.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from bridge.adapters.scylla.session import CqlSession, Prepared, timeuuid_parameter
from bridge.adapters.scylla.stream_metadata import StreamMetadata, stream_metadata
from bridge.errors import BridgeError, RetriableError, StartupError
from bridge.model.cql_names import quoted, shown_table
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.murmur3 import key_with_token
from bridge.model.streams import MAX_TOKEN, StreamId, Token, TokenRange
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from bridge.planning.table_watch import CdcOptions, TableState
from schemas.cql.table import LOG_TABLE_SUFFIX, Column, ColumnKind, TableSchema
from schemas.cql.types import CqlType, parse, resolve, user_types
from schemas.errors import SchemaError

_COLUMNS: Final = (
    "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns "
    "WHERE keyspace_name = ? AND table_name = ?"
)
_TABLE: Final = "SELECT id, extensions FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_VIEW: Final = "SELECT base_table_name FROM system_schema.views WHERE keyspace_name = ? AND view_name = ?"
_FLAGS: Final = "SELECT flags FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_TYPES: Final = "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = ?"
_NOW: Final = "SELECT toTimestamp(now()) FROM system.local WHERE key = 'local'"
_KEYSPACES: Final = "SELECT keyspace_name FROM system_schema.keyspaces"
_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
_SCYLLA_ONLY: Final = ("system_schema", "scylla_tables")
"""A table that every ScyllaDB lists among its own."""
_OF_OTHER_TABLES: Final = frozenset({"compound", "dense"})
"""Flags of which every table has one that is no static compact table."""


class CdcOffError(StartupError):
    """CDC is not enabled on a table."""


class ChangeLog:
    """Reads what one cluster says about its CDC tables. Thread-safe, as its session is.

    Every method raises RetriableError when the cluster does not answer and BridgeError when it refuses.
    """

    def __init__(self, session: CqlSession) -> None:
        self.session = session

    def table_schema(self, keyspace: str, table: str) -> TableSchema:
        """The base table as `system_schema` describes it now.

        Raises:
            StartupError: there is no such keyspace or table.
            TypeTextError: a column's type is not known, or was altered just now.
        """
        rows = self.session.rows(_COLUMNS, (keyspace, table))
        if not rows:
            raise StartupError(f"table {shown_table(keyspace, table)}: {self._missing(keyspace, table)}")
        types = [parse(row["type"]) for row in rows]
        if any(True for one in types for _ in user_types(one)):
            definitions = self._user_types(keyspace)
            types = [resolve(one, definitions) for one in types]
        columns = list(map(_column, rows, types))
        if self._is_static_compact(keyspace, table, columns):
            columns = [
                replace(one, kind=ColumnKind.REGULAR) if one.kind is ColumnKind.STATIC else one
                for one in columns
                if one.kind in (ColumnKind.PARTITION_KEY, ColumnKind.STATIC)
            ]
        return TableSchema(keyspace, table, tuple(columns))

    def _missing(self, keyspace: str, table: str) -> str:
        """What is not there, and what may have been meant: names differ in their case."""
        keyspaces = [row["keyspace_name"] for row in self.session.rows(_KEYSPACES)]
        if keyspace not in keyspaces:
            meant = [f"{quoted(name)}" for name in keyspaces if name.lower() == keyspace.lower()]
            what = f"there is no keyspace {keyspace!r} at {self._address}"
        else:
            names = [row["table_name"] for row in self.session.rows(_TABLES, (keyspace,))]
            meant = [shown_table(keyspace, name) for name in names if name.lower() == table.lower()]
            what = f"there is no such table at {self._address}"
        return f"{what}; did you mean {' or '.join(meant)}?" if meant else what

    def _is_static_compact(self, keyspace: str, table: str, columns: Sequence[Column]) -> bool:
        """Whether a table without clustering columns has COMPACT STORAGE.

        `system_schema` has its columns as static ones then, beside a clustering and a regular column that neither CQL
        nor the log know.
        """
        kinds = Counter(one.kind for one in columns)
        if not kinds[ColumnKind.STATIC] or (kinds[ColumnKind.CLUSTERING], kinds[ColumnKind.REGULAR]) != (1, 1):
            return False
        rows = self.session.rows(_FLAGS, (keyspace, table))
        return bool(rows) and not _OF_OTHER_TABLES & set(rows[0]["flags"] or ())

    def _user_types(self, keyspace: str) -> dict[str, list[tuple[str, CqlType]]]:
        """Fields of the keyspace's user-defined types, by name."""
        return {
            row["type_name"]: list(zip(row["field_names"], map(parse, row["field_types"]), strict=True))
            for row in self.session.rows(_TYPES, (keyspace,))
        }

    def described(self, keyspace: str, table: str) -> TableSchema | None:
        """The base table as `system_schema` describes it now; None when it or its log does not exist."""
        if not self.session.rows(_TABLE, (keyspace, table + LOG_TABLE_SUFFIX)):
            return None
        try:
            return self.table_schema(keyspace, table)
        except StartupError:
            return None

    def table_state(self, keyspace: str, table: str) -> TableState:
        """What may change about a captured table while it is read; costs two or three small queries."""
        rows = self.session.rows(_TABLE, (keyspace, table))
        log = self.session.rows(_TABLE, (keyspace, table + LOG_TABLE_SUFFIX))
        if not rows or not log:
            return TableState(None, None, None)
        blob = dict(rows[0]["extensions"] or {}).get("cdc")
        try:
            schema = self.table_schema(keyspace, table)
        except StartupError:  # dropped between the queries
            return TableState(None, None, None)
        except SchemaError as error:  # altered between the queries, so that they do not fit each other
            raise RetriableError(f"table {keyspace}.{table}: {error}") from error
        return TableState(log[0]["id"], schema, None if blob is None else parse_options(blob))

    def cdc_options(self, keyspace: str, table: str) -> CdcOptions | None:
        """The table's `cdc` option; None when it was never set, or there is no such table."""
        rows = self.session.rows(_TABLE, (keyspace, table))
        extensions: dict[str, Any] = dict(rows[0]["extensions"] or {}) if rows else {}
        blob = extensions.get("cdc")
        return None if blob is None else parse_options(blob)

    def check_captured(self, keyspace: str, table: str, *, even_if_off: bool = False) -> TableSchema:
        """The schema of a table whose changes can be read.

        Args:
            keyspace: the table's.
            table: name of the base table.
            even_if_off: whether a log that is left from when CDC was enabled will do.

        Raises:
            CdcOffError: CDC is not enabled on the table.
            StartupError: there is no such table, or its log table is missing; the message says what to do.
        """
        schema = self.table_schema(keyspace, table)
        options = self.cdc_options(keyspace, table)
        if (options is None or not options.enabled) and not even_if_off:
            never = self._why_never(schema)
            if never is not None:
                raise StartupError(f"table {shown_table(keyspace, table)}: {never}")
            raise CdcOffError(
                f"table {shown_table(keyspace, table)}: CDC is not enabled; enable it with "
                f"ALTER TABLE {quoted(keyspace)}.{quoted(table)} WITH cdc = {{'enabled': true}}"
            )
        log_table = table + LOG_TABLE_SUFFIX
        if not self.session.rows(_TABLE, (keyspace, log_table)):
            advice = "it may still be in the making: try again, or disable and enable CDC"
            if not self.session.rows(_TABLE, _SCYLLA_ONLY):
                advice = (
                    f"the server is no ScyllaDB ({'.'.join(_SCYLLA_ONLY)} is missing), so it makes and writes none. On "
                    "the local stack, write by `scylla-cdc-bridge local cql`: it makes the log and writes it"
                )
            raise StartupError(
                f"table {shown_table(keyspace, table)}: CDC is enabled but the log table "
                f"{shown_table(keyspace, log_table)} does not exist; {advice}"
            )
        return schema

    def _why_never(self, schema: TableSchema) -> str | None:
        """Why a table can't have CDC at all; None when it can, as far as we know."""
        keyspace, table = schema.keyspace, schema.name
        if (base := table.removesuffix(LOG_TABLE_SUFFIX)) != table and self.session.rows(_TABLE, (keyspace, base)):
            return f"is a log itself; name the table that it belongs to, {shown_table(keyspace, base)}"
        views = self.session.rows(_VIEW, (keyspace, table))
        if views:
            base = views[0]["base_table_name"]
            return f"is a materialized view, which has no CDC; name its table, {shown_table(keyspace, base)}"
        if any(str(column.type) == "counter" for column in schema.columns):
            return "has counters, and ScyllaDB has no CDC for these"
        return None

    def check_readable(self, keyspace: str, table: str) -> None:
        """Read a little of everything that the table's changes are read from.

        Raises:
            StartupError: a right is missing; the message names it.
            RetriableError: the server did not answer in time.
        """
        metadata = self.stream_metadata(keyspace, table)
        for newest in metadata.generations()[-1:]:
            with suppress(RetriableError):  # its streams may be on their way
                metadata.streams(newest.start_ms, TokenRange(Token(MAX_TOKEN - 1), MAX_TOKEN))
        log_table = f"{quoted(keyspace)}.{quoted(table + LOG_TABLE_SUFFIX)}"
        # Identifiers can't be bound; these are quoted. No stream has this id.
        self.session.rows(f'SELECT "cdc$time" FROM {log_table} WHERE "cdc$stream_id" = ? LIMIT 1', (bytes(16),))  # noqa: S608

    def node_time_us(self) -> UnixMicros:
        """What one node's clock says, in whole ms; another node each time, as far as there are several."""
        ((cell,),) = self.session.cells(_NOW, consistency="ONE")
        assert cell is not None
        return millis_to_micros(UnixMillis(int.from_bytes(cell, "big", signed=True)))

    def stream_metadata(self, keyspace: str, table: str) -> StreamMetadata:
        """What says which streams a table's log has."""
        return stream_metadata(self.session, keyspace, table)

    def log_reader(self, keyspace: str, table: str) -> LogReader:
        """A reader of one table's log, its statements prepared now."""
        return LogReader(self.session, keyspace, table)

    @property
    def _address(self) -> str:
        return self.session.address


class LogReader:
    """Asks for pages of one log table, a stream and a window at a time."""

    def __init__(self, session: CqlSession, keyspace: str, table: str) -> None:
        self._session = session
        log_table = f"{quoted(keyspace)}.{quoted(table + LOG_TABLE_SUFFIX)}"
        session.learn_replication(keyspace)
        # Identifiers can't be bound; these are quoted.
        start = f'SELECT * FROM {log_table} WHERE "cdc$stream_id" = ? AND "cdc$time" >= ?'  # noqa: S608
        # Anew, so that `columns` are those of this moment.
        self._bounded: Prepared = session.prepare(f'{start} AND "cdc$time" < ? BYPASS CACHE', anew=True)
        self._unbounded: Prepared = session.prepare(f"{start} BYPASS CACHE", anew=True)
        self._columns, self._types = self._bounded.columns, self._bounded.types
        # No PER PARTITION LIMIT: ScyllaDB takes one in a paged query for a filter, and says "more" after a second row.
        self._streams_of_rows = (
            f'SELECT "cdc$stream_id" FROM {log_table} WHERE "cdc$stream_id" IN ? '  # noqa: S608
            'AND "cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns in the order of a row's cells, as they were when this reader was made."""
        return self._columns

    @property
    def types(self) -> tuple[CqlType, ...]:
        """Types of `columns`, as `Page.types`."""
        return self._types

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """One page of a stream's rows in a window, in the server's order."""
        parameters: list[object] = [stream.raw, timeuuid_parameter(window.lower_timeuuid)]
        upper = window.upper_timeuuid
        prepared = self._unbounded
        if upper is not None:
            parameters.append(timeuuid_parameter(upper))
            prepared = self._bounded
        # The log's partitioner is not the cluster's, of which alone the driver knows (spec section 6).
        return self._session.page(
            prepared,
            parameters,
            page_rows=page_rows,
            paging_state=paging_state,
            routing_key=key_with_token(stream.token),
        )

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """The first page of some streams' rows in a window, of which it has no more than the streams' ids.

        The owner of the first stream is asked.

        Args:
            streams: as many as the server takes in one `IN`.
            window: one that has an end.
            page_rows: most rows in the page.
        """
        lower, upper = window.lower_timeuuid, window.upper_timeuuid
        assert upper is not None
        # Prepared only when it is needed: a table that is written to steadily never asks so.
        return self._session.page(
            self._session.prepare(self._streams_of_rows),
            [[stream.raw for stream in streams], timeuuid_parameter(lower), timeuuid_parameter(upper)],
            page_rows=page_rows,
            routing_key=key_with_token(streams[0].token),
        )


def parse_options(blob: bytes) -> CdcOptions:
    """The options in `extensions['cdc']`: uint32 LE count, then each key and value with a uint32 LE length.

    Raises:
        BridgeError: the bytes are of another form.
    """
    try:
        (count,) = struct.unpack_from("<I", blob, 0)
        at = 4
        texts: list[str] = []
        for _ in range(2 * count):
            (length,) = struct.unpack_from("<I", blob, at)
            at += 4
            texts.append(blob[at : at + length].decode())
            at += length
        values = dict(zip(texts[::2], texts[1::2], strict=True))
        return CdcOptions(
            enabled=values.get("enabled") == "true",
            preimage=values.get("preimage", "false"),
            postimage=values.get("postimage") == "true",
            delta=values.get("delta", "full"),
            ttl_s=int(values.get("ttl", "86400")),
        )
    except (struct.error, ValueError) as error:
        raise BridgeError(f"extensions['cdc'] is not as ScyllaDB writes it: 0x{blob.hex()}") from error


def _column(row: Mapping[str, Any], cql_type: CqlType) -> Column:
    # ScyllaDB spells the order in capitals, Cassandra does not.
    descending = row["clustering_order"].lower() == "desc"
    return Column(row["column_name"], cql_type, ColumnKind(row["kind"]), row["position"], descending)
