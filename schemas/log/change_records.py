"""Log rows as the records of which an envelope is made: the values for what ``schemas.avro.records`` describes.

Made once for a table. Knows every row there can be, and says what is wrong with a bad one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, cast

from schemas.avro.names import namespace
from schemas.avro.records import BOUND, COLUMNS, ENVELOPE_VERSION, RANGE, ROW, UNKNOWN_OPERATION
from schemas.cql.table import TableSchema
from schemas.cql.types import NativeType
from schemas.errors import LostKeyError, OperationError
from schemas.log.cell_readers import KeyCell, LogFormat, LogRow
from schemas.log.column_readers import Branch, ColumnReader, column_reader
from schemas.log.columns import BATCH_SEQ_NO, OPERATION, STREAM_ID, TIME, TTL
from schemas.log.operations import (
    RANGE_DELETE,
    RANGE_ENDS,
    RANGE_STARTS,
    STATIC_UPDATE,
    WITH_COLUMNS,
    WITH_ROW,
    WITHOUT_ROW,
    Operation,
    symbol_of,
)
from schemas.log.timeuuid import TICKS_PER_MICRO, UNIX_EPOCH_TICKS, ticks_of
from schemas.options import OutputOptions


@dataclass(frozen=True, slots=True)
class LogChange:
    """One change with all its log rows, which are raw cells in the order of the log's columns.

    Attributes:
        row: the delta; of a range delete its start.
        operation: the delta's ``cdc$operation``.
        generation_ms: start of the generation, ms since the Unix epoch.
        last_in_group: whether no change of the same (stream, time) follows.
        range_end: the end row of a range delete.
        before: the pre-image of the same row, if there is one.
        after: the post-image of the same row, if there is one.
        more: further deltas of the same row in its group, where these are joined into one change.
    """

    row: LogRow
    operation: int
    generation_ms: int
    last_in_group: bool
    range_end: LogRow | None = None
    before: LogRow | None = None
    after: LogRow | None = None
    more: Sequence[LogRow] = ()

    @property
    def deltas(self) -> Sequence[LogRow]:
        """All rows that say what the change did."""
        return (self.row, *self.more)


@dataclass(frozen=True, slots=True)
class Image:
    """What a pre- or post-image shows.

    Attributes:
        row: the row's columns, for a union.
        unknown: CQL names of the columns of its kind (static or regular) that it says nothing of; none in a
            post-image, where a column without a value is null (spec section 2.6).
        empty: CQL names of the columns whose value is CQL's "empty"; they are null in `row`.
    """

    row: Branch | None
    unknown: list[str]
    empty: list[str]


NO_IMAGE: Final = Image(None, [], [])


class LogRecords:
    """Reads the changes of one table; immutable once made, threads may share it.

    Attributes:
        job: the job's name.

    Methods raise CellError for a malformed cell, naming its column, and OperationError for a row
    whose operation and cells contradict each other.
    """

    def __init__(self, table: TableSchema, positions: dict[str, int], output: OutputOptions) -> None:
        """Resolve everything that does not depend on a row; see `schemas.table_codec.TableCodec`."""
        space = namespace(table.keyspace, table.name)
        log = LogFormat(positions, space, output)
        self.job = output.name
        self._space = space
        self._columns_branch, self._row_branch = f"{space}.{COLUMNS}", f"{space}.{ROW}"
        self._range_branch, self._bound_branch = f"{space}.{RANGE}", f"{space}.{BOUND}"
        self._partition_key = tuple(map(log.key, table.partition_key))
        self._clustering = tuple(map(log.key, table.clustering))
        statics = {column.name for column in table.statics}
        self._values = tuple(column_reader(column, log) for column in table.values)
        self._statics = tuple(one for one in self._values if one.column in statics)
        self._regulars = tuple(one for one in self._values if one.column not in statics)
        self._stream_id = log.cell(STREAM_ID, NativeType("blob"))
        self._time = log.cell(TIME, NativeType("timeuuid"))
        self._batch_seq_no = log.cell(BATCH_SEQ_NO, NativeType("int"))
        self._operation = log.cell(OPERATION, NativeType("tinyint"))
        self._ttl = log.cell(TTL, NativeType("bigint"))
        self._source = {"version": ENVELOPE_VERSION, "keyspace": table.keyspace, "table": table.name}

    def partition_key(self, row: LogRow) -> dict[str, object]:
        """Return the fields of the partition key."""
        return {key.field: key.cell.required(row) for key in self._partition_key}

    def symbol(self, change: LogChange) -> str:
        """Return the symbol of ``op``, after checking that the change's rows fit it and each other."""
        clustering = [change.row[key.cell.index] for key in self._clustering]
        symbol = symbol_of(change.operation, clustering, has_statics=bool(self._statics))
        if (symbol == RANGE_DELETE) != (change.range_end is not None):
            what = "without the end of its range" if symbol == RANGE_DELETE else "with the end of a range"
            raise OperationError(f"cdc$operation {change.operation} ({symbol}) {what}")
        foreign = self._foreign(symbol)
        touched = next((one.column for row in change.deltas for one in foreign if one.touched(row)), None)
        if touched is not None:
            # A regular column and no clustering key: the key may be what is wrong.
            kind = LostKeyError if symbol == STATIC_UPDATE else OperationError
            raise kind(f"cdc$operation {change.operation} ({symbol}) says something of column {touched!r}")
        return symbol

    def _foreign(self, symbol: str) -> Sequence[ColumnReader]:
        """Return the columns that a change of this kind cannot touch."""
        if symbol not in WITH_COLUMNS:
            return self._values
        if symbol == STATIC_UPDATE:
            return self._regulars
        return self._statics if symbol in WITH_ROW else ()

    def primary_key(self, change: LogChange, symbol: str, empty: list[str]) -> dict[str, object]:
        """Return the fields of the primary key, without a clustering key for range deletes."""
        record = self.partition_key(change.row)
        if symbol != RANGE_DELETE:
            self._add_clustering(record, change.row, empty)
        return record

    def record_key(self, change: LogChange, symbol: str) -> dict[str, object]:
        """Return the fields of a record key of the primary key.

        Raises:
            CellError: as all methods; and a clustering column is CQL's "empty". It reads as null, and a key with null
                is that of the static row and of deletes of partitions and ranges.
        """
        empty: list[str] = []
        record = self.primary_key(change, symbol, empty)
        for key in self._clustering:
            if key.cell.column in empty:
                raise key.cell.error(
                    "has zero length, which a record key of the primary key can't tell from none "
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
        """Return the field ``range``; none in a table without clustering columns."""
        if not self._clustering:
            return {}
        if change.range_end is None:
            return {"range": None}
        self._require_same(change.row, change.range_end, self._partition_key, "the end of a range")
        ends = self._operation.required(change.range_end)
        if ends not in RANGE_ENDS:
            raise OperationError(f"cdc$operation {ends!r} where the end of a range must be")
        start = self._bound(change.row, inclusive=RANGE_STARTS[change.operation], side="start")
        end = self._bound(change.range_end, inclusive=RANGE_ENDS[ends], side="end")
        return {"range": (self._range_branch, {"start": start, "end": end})}

    def _bound(self, row: LogRow, *, inclusive: bool, side: str) -> Branch | None:
        given = [row[key.cell.index] is not None for key in self._clustering]
        if any(later and not earlier for earlier, later in pairwise(given)):
            raise LostKeyError(f"the {side} of a range has a clustering column but not the one before it")
        if not any(given):
            if not inclusive:
                raise LostKeyError(f"the {side} of a range has no clustering column and yet excludes its bound")
            return None
        key: dict[str, object] = {}
        empty: list[str] = []
        self._add_clustering(key, row, empty)
        return self._bound_branch, {"inclusive": inclusive, "key": key, "empty_columns": empty}

    def columns(self, row: LogRow, symbol: str, empty: list[str]) -> Branch | None:
        """Return what the change did to the static and regular columns; None where the row does not say it.

        A row that touches no column is the same whether the change touched none (an INSERT of the key alone), or its
        log held keys only when it was written, or what it touched was dropped since. What the option is now does not
        count: it says nothing of the time of the write, and whoever encodes the row again may see another one.
        """
        if symbol not in WITH_COLUMNS:
            return None
        if self._values and not any(one.touched(row) for one in self._values):
            return None
        record = {one.field: change for one in self._values if (change := one.change(row, empty)) is not None}
        return self._columns_branch, record

    def before(self, change: LogChange, symbol: str) -> Image:
        """Return what the pre-image shows."""
        return self._image(change, change.before, symbol, Operation.PREIMAGE)

    def after(self, change: LogChange, symbol: str) -> Image:
        """Return what the post-image shows; all of the row."""
        return self._image(change, change.after, symbol, Operation.POSTIMAGE)

    def _image(self, change: LogChange, row: LogRow | None, symbol: str, operation: int) -> Image:
        if row is None:
            return NO_IMAGE
        if symbol == RANGE_DELETE:
            raise OperationError(f"cdc$operation {change.operation} ({symbol}) with an image of a row")
        found = self._operation.required(row)
        if found != operation:
            raise OperationError(f"cdc$operation {found!r} where the image of a row ({operation}) must be")
        self._require_same(change.row, row, (*self._partition_key, *self._clustering), "the image of a row")
        record: dict[str, object] = {}
        unknown: list[str] = []
        empty: list[str] = []
        for one in self._of_row(symbol):
            known, value = one.image(row, empty)
            if value is not None:
                record[one.field] = value
            if not known and value is None:
                unknown.append(one.column)
        return Image((self._row_branch, record), [] if change.after is row else unknown, empty)

    def outcome(self, change: LogChange, symbol: str) -> Image:
        """Return what is known of the row after the change: its post-image, or what pre-image and deltas give.

        What an unknown operation makes of its row would be a guess, so that only a post-image tells it.
        """
        if change.after is not None or symbol == UNKNOWN_OPERATION:
            self.check(change)
            return NO_IMAGE if change.after is None else self.after(change, symbol)
        deltas = change.deltas
        before = self.before(change, symbol) if self._says_all(deltas, symbol) else NO_IMAGE
        earlier = self.columns_of(before)
        is_full = self._is_full(before, deltas, symbol)
        record: dict[str, object] = {}
        unknown: list[str] = []
        empty: list[str] = []
        for one in self._of_row(symbol):
            touching = [row for row in deltas if one.touched(row)]
            known, value = one.outcome(touching, empty) if touching else (False, None)
            if not known and before.row is not None and one.column not in before.unknown:
                if not touching:
                    known, value = True, earlier.get(one.field)
                    empty += [one.column] if one.column in before.empty else []
                elif is_full or one.field in earlier:
                    known, value = one.laid_over(touching, earlier.get(one.field))
            if value is not None:
                record[one.field] = value
            elif not known and one.column not in empty:
                unknown.append(one.column)
                _check(one, touching)
        return Image((self._row_branch, record), unknown, empty)

    def _is_full(self, before: Image, deltas: Sequence[LogRow], symbol: str) -> bool:
        """Whether it is a pre-image of 'preimage': 'full', in which null is null.

        One of 'true' has the touched columns only, and of the rows of a batch but the first may lack some that have a
        value (spec section 2.6).
        """
        if before.row is None:
            return False
        return any(
            one.column not in before.unknown and not any(one.touched(row) for row in deltas)
            for one in self._of_row(symbol)
        )

    def check(self, change: LogChange) -> None:
        """Read the deltas' cells of which the record shows nothing, so that a malformed one is not passed over."""
        for one in self._values:
            _check(one, change.deltas)

    def _says_all(self, deltas: Sequence[LogRow], symbol: str) -> bool:
        """Whether the columns that the deltas do not touch are those that were not changed.

        Those that touch none may be of a log that held keys only, see `columns`.
        """
        return any(one.touched(row) for row in deltas for one in self._of_row(symbol))

    def unavailable(self, row: Image, symbol: str) -> list[str]:
        """Return the CQL names of the columns that a row of the change's kind lacks although they may have a value."""
        if row.row is not None:
            return [*row.unknown, *row.empty]
        return [one.column for one in (self._values if symbol in WITHOUT_ROW else self._of_row(symbol))]

    def _of_row(self, symbol: str) -> Sequence[ColumnReader]:
        """Return the columns that a row of the change's kind has; of an unknown kind all of them."""
        if not self._statics or symbol == UNKNOWN_OPERATION:
            return self._values
        return self._statics if symbol == STATIC_UPDATE else self._regulars

    @staticmethod
    def _require_same(row: LogRow, other: LogRow, keys: Sequence[KeyCell], what: str) -> None:
        for key in keys:
            if row[key.cell.index] != other[key.cell.index]:
                raise OperationError(f"{what} has another value of key column {key.cell.column!r} than the change")

    def ttl(self, row: LogRow) -> Branch | None:
        """Return the field ``ttl``."""
        ttl = row[self._ttl.index]
        return None if ttl is None else ("long", self._ttl.value(ttl))

    def ttl_of(self, change: LogChange) -> tuple[Branch | None, bool]:
        """Return the TTL of what the change's deltas write, and whether they have several; then it is None.

        ScyllaDB logs what a statement deletes, the old content of a collection for one, apart from what it writes, and
        without its TTL (spec section 2.5).
        """
        found = [self.ttl(row) for row in change.deltas if self._writes(row)]
        is_mixed = any(one != found[0] for one in found)
        return (None if is_mixed or not found else found[0]), is_mixed

    def _writes(self, row: LogRow) -> bool:
        """Whether a delta writes anything that lives: the row's marker or a value; only what lives has a TTL."""
        if row[self._ttl.index] is not None or self._operation.required(row) == Operation.INSERT:
            return True
        return any(one.writes(row) for one in self._values)

    def whole_row(self, name: str, key: dict[str, object], row: Image) -> Branch:
        """Return the record of a row with its key, for a union; `name` is the record's."""
        return f"{self._space}.{name}", {**key, **self.columns_of(row)}

    @staticmethod
    def columns_of(row: Image) -> dict[str, Branch]:
        """Return the static and regular columns that a row holds."""
        return {} if row.row is None else cast("dict[str, Branch]", row.row[1])

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


def _check(column: ColumnReader, rows: Sequence[LogRow]) -> None:
    for row in rows:
        column.change(row, [])
