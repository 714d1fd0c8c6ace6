"""Reads the schemas, options and logs of the CDC tables of a ScyllaDB cluster."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from bridge.adapters.scylla.log_reader import LogReader
from bridge.adapters.scylla.session import CqlSession
from bridge.adapters.scylla.stream_metadata import StreamMetadata, stream_metadata
from bridge.errors import BridgeError, RetriableError, StartupError
from bridge.model.streams import MAX_TOKEN, Token, TokenRange
from bridge.model.times import millis_of, millis_to_micros
from bridge.planning.server_clock import NodeTime
from bridge.planning.table_watch import CdcOptions, TableState
from schemas.cql.names import quoted, shown_table
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
_REPLICATION: Final = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"
_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
_SCYLLA_ONLY: Final = ("system_schema", "scylla_tables")
"""A system table that every ScyllaDB has, and no other server."""
_DENSE: Final = "dense"
"""The flag of COMPACT STORAGE in a table with clustering columns."""
_NOT_STATIC_COMPACT: Final = frozenset({"compound", _DENSE})
"""Every table that is not a static compact table has one of these flags."""


class CdcOffError(StartupError):
    """CDC is not enabled on a table."""


class ChangeLog:
    """Reads the descriptions of one cluster's CDC tables. Thread-safe, as its session is.

    Every method raises RetriableError if the cluster does not answer, and BridgeError if it refuses the request.

    Args:
        session: connected to the cluster.
    """

    def __init__(self, session: CqlSession) -> None:
        self.session = session
        self._clock_turns: dict[str, int] = {}

    def table_schema(self, keyspace: str, table: str) -> TableSchema:
        """The base table as `system_schema` describes it now.

        Args:
            keyspace: the table's.
            table: name of the base table.

        Raises:
            StartupError: there is no such keyspace or table.
            TypeTextError: a column's type is not known, or has just been altered.
        """
        rows = self.session.rows(_COLUMNS, (keyspace, table))
        if not rows:
            raise StartupError(f"table {shown_table(keyspace, table)}: {self._describe_missing(keyspace, table)}")
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
        return TableSchema(keyspace, table, tuple(columns), self._has_partial_clustering(keyspace, table, columns))

    def _describe_missing(self, keyspace: str, table: str) -> str:
        """The message for a missing keyspace or table, with existing names that differ only in case."""
        keyspaces = [row["keyspace_name"] for row in self.session.rows(_KEYSPACES)]
        if keyspace not in keyspaces:
            similar = [f"{quoted(name)}" for name in keyspaces if name.lower() == keyspace.lower()]
            what = f"there is no keyspace {keyspace!r} at {self._address}"
        else:
            names = [row["table_name"] for row in self.session.rows(_TABLES, (keyspace,))]
            similar = [shown_table(keyspace, name) for name in names if name.lower() == table.lower()]
            what = f"there is no such table at {self._address}"
        return f"{what}; did you mean {' or '.join(similar)}?" if similar else what

    def _is_static_compact(self, keyspace: str, table: str, columns: Sequence[Column]) -> bool:
        """Whether a table without clustering columns has COMPACT STORAGE.

        `system_schema` lists the columns of such a table as static ones. It adds a clustering and a regular column
        that neither CQL nor the log have.
        """
        kinds = Counter(one.kind for one in columns)
        if not kinds[ColumnKind.STATIC] or (kinds[ColumnKind.CLUSTERING], kinds[ColumnKind.REGULAR]) != (1, 1):
            return False
        flags = self._flags(keyspace, table)
        return flags is not None and not _NOT_STATIC_COMPACT & flags

    def _has_partial_clustering(self, keyspace: str, table: str, columns: Sequence[Column]) -> bool:
        """Whether rows may lack trailing clustering columns: with COMPACT STORAGE and several clustering columns."""
        if sum(one.kind is ColumnKind.CLUSTERING for one in columns) < 2:
            return False
        return _DENSE in (self._flags(keyspace, table) or ())

    def _flags(self, keyspace: str, table: str) -> set[str] | None:
        """The table's flags in `system_schema`; None if there is no such table."""
        rows = self.session.rows(_FLAGS, (keyspace, table))
        return set(rows[0]["flags"] or ()) if rows else None

    def _user_types(self, keyspace: str) -> dict[str, list[tuple[str, CqlType]]]:
        """The fields of the keyspace's user-defined types, by the types' names."""
        return {
            row["type_name"]: list(zip(row["field_names"], map(parse, row["field_types"]), strict=True))
            for row in self.session.rows(_TYPES, (keyspace,))
        }

    def describe_table(self, keyspace: str, table: str) -> TableSchema | None:
        """The base table as `system_schema` describes it now; None if it or its log does not exist.

        Args:
            keyspace: the table's.
            table: name of the base table.

        Raises:
            TypeTextError: a column's type is not known, or has just been altered.
        """
        if not self.session.rows(_TABLE, (keyspace, table + LOG_TABLE_SUFFIX)):
            return None
        try:
            return self.table_schema(keyspace, table)
        except StartupError:
            return None

    def table_state(self, keyspace: str, table: str) -> TableState:
        """The properties of a captured table that may change while it is read; costs two to four small queries.

        Args:
            keyspace: the table's.
            table: name of the base table.

        Returns:
            The state; all of it None if the table or its log does not exist.
        """
        rows = self.session.rows(_TABLE, (keyspace, table))
        log = self.session.rows(_TABLE, (keyspace, table + LOG_TABLE_SUFFIX))
        if not rows or not log:
            return TableState(None, None, None)
        blob = dict(rows[0]["extensions"] or {}).get("cdc")
        try:
            schema = self.table_schema(keyspace, table)
        except StartupError:  # dropped between the queries
            return TableState(None, None, None)
        except SchemaError as error:  # altered between the queries, so the answers do not match
            raise RetriableError(f"table {keyspace}.{table}: {error}") from error
        return TableState(log[0]["id"], schema, None if blob is None else parse_options(blob))

    def cdc_options(self, keyspace: str, table: str) -> CdcOptions | None:
        """The table's `cdc` option; None if it was never set, or if there is no such table."""
        rows = self.session.rows(_TABLE, (keyspace, table))
        extensions: dict[str, Any] = dict(rows[0]["extensions"] or {}) if rows else {}
        blob = extensions.get("cdc")
        return None if blob is None else parse_options(blob)

    def check_captured(self, keyspace: str, table: str, *, even_if_off: bool = False) -> TableSchema:
        """Check that a table's changes can be read, and return its schema.

        Args:
            keyspace: the table's.
            table: name of the base table.
            even_if_off: True accepts a table whose CDC is disabled, if its log still exists.

        Raises:
            CdcOffError: CDC is not enabled on the table.
            StartupError: there is no such table, or its log table is missing; the message names the remedy.
        """
        schema = self.table_schema(keyspace, table)
        options = self.cdc_options(keyspace, table)
        if (options is None or not options.enabled) and not even_if_off:
            reason = self._why_not_capturable(schema)
            if reason is not None:
                raise StartupError(f"table {shown_table(keyspace, table)}: {reason}")
            raise CdcOffError(
                f"table {shown_table(keyspace, table)}: CDC is not enabled; enable it with "
                f"ALTER TABLE {quoted(keyspace)}.{quoted(table)} WITH cdc = {{'enabled': true}}"
            )
        log_table = table + LOG_TABLE_SUFFIX
        if not self.session.rows(_TABLE, (keyspace, log_table)):
            advice = "ScyllaDB may still be creating it: try again, or disable and enable CDC"
            if not self.session.rows(_TABLE, _SCYLLA_ONLY):
                advice = (
                    f"the server is no ScyllaDB ({'.'.join(_SCYLLA_ONLY)} is missing), so it writes no log. On the "
                    "local stack, write by `scylla-cdc-bridge local cql`: it creates the log and writes it"
                )
            raise StartupError(
                f"table {shown_table(keyspace, table)}: CDC is enabled but the log table "
                f"{shown_table(keyspace, log_table)} does not exist; {advice}"
            )
        return schema

    def _why_not_capturable(self, schema: TableSchema) -> str | None:
        """Why a table can never have CDC; None if no reason is known."""
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
        """Check that the user has the rights to read the table's changes, by one small query of each kind.

        Raises:
            StartupError: a right is missing; the message names it.
            RetriableError: the server did not answer in time.
        """
        metadata = self.stream_metadata(keyspace, table)
        for newest in metadata.generations()[-1:]:
            with suppress(RetriableError):  # its streams may not be published yet
                metadata.streams(newest.start_ms, TokenRange(Token(MAX_TOKEN - 1), MAX_TOKEN))
        log_table = f"{quoted(keyspace)}.{quoted(table + LOG_TABLE_SUFFIX)}"
        # Identifiers can't be bound, so they are quoted. No stream has this id.
        self.session.rows(f'SELECT "cdc$time" FROM {log_table} WHERE "cdc$stream_id" = ? LIMIT 1', (bytes(16),))  # noqa: S608

    def replicas_by_data_center(self, keyspace: str) -> dict[str, int]:
        """How many replicas a keyspace has in each data center; empty if its strategy does not know data centers."""
        rows = self.session.rows(_REPLICATION, (keyspace,))
        options = dict(rows[0]["replication"]) if rows else {}
        if not options.pop("class", "").endswith("NetworkTopologyStrategy"):
            return {}
        return {name: int(count) for name, count in sorted(options.items()) if count.isdecimal() and int(count)}

    def node_time(self) -> NodeTime:
        """The time of one node's clock; each call asks another node of the data center, in turn."""
        nodes = self.session.nodes
        turns = {node: self._clock_turns.get(node, 0) for node in nodes}
        chosen = min(turns, key=turns.__getitem__, default=None)
        if chosen is not None:
            self._clock_turns = turns | {chosen: max(turns.values()) + 1}
        try:
            answer = self.session.node_rows(_NOW, consistency="ONE", node=chosen)
        except RetriableError:
            # The driver does not know yet that the node is down.
            answer = self.session.node_rows(_NOW, consistency="ONE")
        ((now,),) = (row.values() for row in answer.rows)
        return NodeTime(answer.node, millis_to_micros(millis_of(now)), {answer.node, *nodes})

    def stream_metadata(self, keyspace: str, table: str) -> StreamMetadata:
        """The stream metadata of a table's log."""
        return stream_metadata(self.session, keyspace, table)

    def log_reader(self, keyspace: str, table: str) -> LogReader:
        """A reader of one table's log; it prepares its statements in this call."""
        return LogReader(self.session, keyspace, table)

    @property
    def _address(self) -> str:
        return self.session.address


def parse_options(blob: bytes) -> CdcOptions:
    """Parse the `cdc` option of a table.

    Args:
        blob: `extensions['cdc']`: a count (uint32, little-endian), then each key and value with its length (uint32,
            little-endian).

    Raises:
        BridgeError: the bytes have another form.
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
    # ScyllaDB writes the order in upper case, Cassandra in lower case.
    descending = row["clustering_order"].lower() == "desc"
    return Column(row["column_name"], cql_type, ColumnKind(row["kind"]), row["position"], descending)
