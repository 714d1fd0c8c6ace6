"""From the log rows of a change to the values of the records that ``schemas.avro.records`` describes.

This module accepts every kind of row that a log can have. For a row that is malformed or contradictory it raises an
error that names the reason.
"""

from __future__ import annotations

from itertools import pairwise

from schemas.avro.names import namespace
from schemas.avro.records import BOUND, COLUMNS, ENVELOPE_VERSION, RANGE, ROW
from schemas.cql.table import TableSchema
from schemas.cql.types import NativeType
from schemas.errors import LostKeyError, OperationError
from schemas.log.cell_readers import LogFormat, LogRow, require_same_key
from schemas.log.column_cells import Branch
from schemas.log.column_readers import column_reader
from schemas.log.columns import BATCH_SEQ_NO, OPERATION, STREAM_ID, TIME, TTL
from schemas.log.log_change import LogChange
from schemas.log.operations import (
    RANGE_DELETE,
    RANGE_ENDS,
    RANGE_STARTS,
    STATIC_UPDATE,
    WITH_COLUMNS,
    Operation,
    symbol_of,
)
from schemas.log.row_images import Image, RowImages, ValueColumns
from schemas.log.timeuuid import TICKS_PER_MICRO, UNIX_EPOCH_TICKS, ticks_of
from schemas.options import OutputOptions


class LogRecords:
    """Reads the changes of one table. Threads may share it, because it does not change.

    Every method may raise a CellError that names the column of a malformed cell, or an OperationError for a row whose
    operation and cells contradict each other.

    Attributes:
        job: the job's name.
        rows: reads the rows before and after a change.
    """

    def __init__(self, table: TableSchema, positions: dict[str, int], output: OutputOptions) -> None:
        """Prepare everything that does not depend on a row.

        Args:
            table: the base table.
            positions: name -> index of the log's columns in a row.
            output: the forms of the values.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
        """
        space = namespace(table.keyspace, table.name)
        log = LogFormat(positions, space, output)
        self.job = output.name
        self._space = space
        self._columns_branch = f"{space}.{COLUMNS}"
        self._range_branch, self._bound_branch = f"{space}.{RANGE}", f"{space}.{BOUND}"
        self._partial_clustering = table.partial_clustering
        self._partition_key = tuple(map(log.key, table.partition_key))
        self._clustering = tuple(map(log.key, table.clustering))
        statics = {column.name for column in table.statics}
        values = tuple(column_reader(column, log) for column in table.values)
        self._columns = ValueColumns(
            values=values,
            statics=tuple(one for one in values if one.column in statics),
            regulars=tuple(one for one in values if one.column not in statics),
        )
        self._stream_id = log.cell(STREAM_ID, NativeType("blob"))
        self._time = log.cell(TIME, NativeType("timeuuid"))
        self._batch_seq_no = log.cell(BATCH_SEQ_NO, NativeType("int"))
        self._operation = log.cell(OPERATION, NativeType("tinyint"))
        self._ttl = log.cell(TTL, NativeType("bigint"))
        keys = (*self._partition_key, *self._clustering)
        self.rows = RowImages(self._columns, keys, self._operation, f"{space}.{ROW}")
        self._source = {"version": ENVELOPE_VERSION, "keyspace": table.keyspace, "table": table.name}

    def partition_key(self, row: LogRow) -> dict[str, object]:
        """Return the fields of the partition key."""
        return {key.field: key.cell.required(row) for key in self._partition_key}

    def symbol(self, change: LogChange) -> str:
        """Return the symbol of ``op``, after a check that the change's rows fit the symbol and each other."""
        clustering = [change.row[key.cell.index] for key in self._clustering]
        symbol = symbol_of(
            change.operation,
            clustering,
            has_statics=bool(self._columns.statics),
            partial_clustering=self._partial_clustering,
        )
        if (symbol == RANGE_DELETE) != (change.range_end is not None):
            what = "lacks the end of its range" if symbol == RANGE_DELETE else "has the end of a range"
            raise OperationError(f"cdc$operation {change.operation} ({symbol}) {what}")
        excluded = self._columns.excluded_by(symbol)
        touched = next((one.column for row in change.deltas for one in excluded if one.is_touched_by(row)), None)
        if touched is not None:
            # Such a row may be a regular change that lost its clustering key.
            kind = LostKeyError if symbol == STATIC_UPDATE else OperationError
            raise kind(f"cdc$operation {change.operation} ({symbol}) cannot touch column {touched!r}, but its row does")
        return symbol

    def primary_key(self, change: LogChange, symbol: str, empty: list[str]) -> dict[str, object]:
        """Return the fields of the primary key; a range delete has no clustering key here.

        Args:
            change: the change.
            symbol: its symbol.
            empty: receives the names of clustering columns whose value is CQL's "empty".
        """
        record = self.partition_key(change.row)
        if symbol != RANGE_DELETE:
            self._add_clustering(record, change.row, empty)
        return record

    def record_key(self, change: LogChange, symbol: str) -> dict[str, object]:
        """Return the fields of a record key with the primary key's columns.

        Raises:
            CellError: a cell is malformed, or a clustering column is CQL's "empty". That would read as null, and keys
                with null belong to the static row and to deletes of partitions and ranges.
        """
        empty: list[str] = []
        record = self.primary_key(change, symbol, empty)
        for key in self._clustering:
            if key.cell.column in empty:
                raise key.cell.error(
                    "has zero length, which a record key of the primary key cannot tell from null "
                    "(`output.key: partition_key` can carry it)",
                    b"",
                )
        return record

    def _add_clustering(self, record: dict[str, object], row: LogRow, empty: list[str]) -> None:
        for key in self._clustering:
            cell = key.cell
            raw = row[cell.index]
            if raw is None:
                continue
            if cell.is_empty(raw):
                empty.append(cell.column)
            else:
                record[key.field] = (key.branch, cell.value(raw))

    def range(self, change: LogChange) -> dict[str, object]:
        """Return the field ``range``; no field in a table without clustering columns."""
        if not self._clustering:
            return {}
        if change.range_end is None:
            return {"range": None}
        require_same_key(change.row, change.range_end, self._partition_key, "the end of a range")
        ends = self._operation.required(change.range_end)
        if ends not in RANGE_ENDS:
            raise OperationError(f"cdc$operation is {ends!r}; the end of a range must have 7 or 8")
        start = self._bound(change.row, inclusive=RANGE_STARTS[change.operation], side="start")
        end = self._bound(change.range_end, inclusive=RANGE_ENDS[ends], side="end")
        return {"range": (self._range_branch, {"start": start, "end": end})}

    def _bound(self, row: LogRow, *, inclusive: bool, side: str) -> Branch | None:
        given = [row[key.cell.index] is not None for key in self._clustering]
        if any(later and not earlier for earlier, later in pairwise(given)):
            raise LostKeyError(f"the {side} of a range has a clustering column but not the one before it")
        if not any(given):
            if not inclusive:
                raise LostKeyError(f"the {side} of a range has no clustering column but excludes its bound")
            return None
        key: dict[str, object] = {}
        empty: list[str] = []
        self._add_clustering(key, row, empty)
        return self._bound_branch, {"inclusive": inclusive, "key": key, "empty_columns": empty}

    def columns(self, row: LogRow, symbol: str, empty: list[str]) -> Branch | None:
        """Return what the change did to the static and regular columns; None if the row touches no column.

        There are three reasons for a row that touches no column, and the row does not tell which one holds: the change
        touched none (an INSERT of the key alone), the log held keys only at the time of the write, or the touched
        columns were dropped since. The present value of the option 'delta' cannot decide this, because it may have
        changed since the write, and a replay must give the same record.

        Args:
            row: the delta.
            symbol: the change's symbol.
            empty: receives the names of columns whose value is CQL's "empty".
        """
        if symbol not in WITH_COLUMNS:
            return None
        if self._columns.values and not any(one.is_touched_by(row) for one in self._columns.values):
            return None
        record = {one.field: change for one in self._columns.values if (change := one.change(row, empty)) is not None}
        return self._columns_branch, record

    def ttl(self, row: LogRow) -> Branch | None:
        """Return the field ``ttl``."""
        ttl = row[self._ttl.index]
        return None if ttl is None else ("long", self._ttl.value(ttl))

    def ttl_of(self, change: LogChange) -> tuple[Branch | None, bool]:
        """Return the field ``ttl`` for all deltas of a change, and whether their TTLs differ; then the field is null.

        Deltas that only delete do not count. ScyllaDB logs what a statement deletes (for example the old content of a
        collection) apart from what it writes, and without its TTL (spec section 2.5).
        """
        found = [self.ttl(row) for row in change.deltas if self._writes(row)]
        is_mixed = any(one != found[0] for one in found)
        return (None if is_mixed or not found else found[0]), is_mixed

    def _writes(self, row: LogRow) -> bool:
        """Return whether a delta writes the row's marker or a value; only these can have a TTL."""
        if row[self._ttl.index] is not None or self._operation.required(row) == Operation.INSERT:
            return True
        return any(one.writes(row) for one in self._columns.values)

    def whole_row(self, name: str, key: dict[str, object], row: Image) -> Branch:
        """Return the record of a row with its key, as a union branch.

        Args:
            name: the record's name.
            key: the fields of the primary key.
            row: the row's other columns.
        """
        return f"{self._space}.{name}", {**key, **row.columns}

    def source(self, change: LogChange) -> dict[str, object]:
        """Return the field ``source``."""
        row = change.row
        time = self._time.sixteen_bytes(row)
        return {
            **self._source,
            "generation_ms": change.generation_ms,
            "stream_id": self._stream_id.sixteen_bytes(row),
            "time": time,
            "timestamp_us": (ticks_of(time) - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO,
            "batch_seq_no": self._batch_seq_no.required(row),
            "operation": change.operation,
            "last_in_group": change.last_in_group,
        }
