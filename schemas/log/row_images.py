"""The row before and after a change: from pre- and post-images, or computed from a pre-image and the deltas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from schemas.avro.records import UNKNOWN_OPERATION
from schemas.errors import OperationError
from schemas.log.cell_readers import KeyCell, LogCell, LogRow, require_same_key
from schemas.log.column_cells import Branch, ColumnReader
from schemas.log.log_change import LogChange
from schemas.log.operations import RANGE_DELETE, STATIC_UPDATE, WITH_COLUMNS, WITH_ROW, WITHOUT_ROW, Operation


@dataclass(frozen=True, slots=True)
class ValueColumns:
    """The readers of a table's static and regular columns.

    Attributes:
        values: all of them.
        statics: those of the static columns.
        regulars: those of the regular columns.
    """

    values: Sequence[ColumnReader]
    statics: Sequence[ColumnReader]
    regulars: Sequence[ColumnReader]

    def of_row(self, symbol: str) -> Sequence[ColumnReader]:
        """Return the columns of the row that a change is about; all columns for an unknown operation."""
        if not self.statics or symbol == UNKNOWN_OPERATION:
            return self.values
        return self.statics if symbol == STATIC_UPDATE else self.regulars

    def excluded_by(self, symbol: str) -> Sequence[ColumnReader]:
        """Return the columns that a change with this symbol cannot touch."""
        if symbol not in WITH_COLUMNS:
            return self.values
        if symbol == STATIC_UPDATE:
            return self.regulars
        return self.statics if symbol in WITH_ROW else ()


@dataclass(frozen=True, slots=True)
class Image:
    """The row that a pre- or post-image shows.

    Attributes:
        row: the row's columns as a union branch; None without an image.
        unknown: CQL names of the columns of the row's kind (static or regular) that the image does not show. A
            post-image shows all of them, because a column without a value is null there (spec section 2.6).
        empty: CQL names of the columns whose value is CQL's "empty"; they are null in `row`.
    """

    row: Branch | None
    unknown: list[str]
    empty: list[str]

    @property
    def columns(self) -> dict[str, Branch]:
        """The row's static and regular columns by Avro name; none without an image."""
        return {} if self.row is None else cast("dict[str, Branch]", self.row[1])


NO_IMAGE: Final = Image(None, [], [])


class RowImages:
    """Reads the rows before and after the changes of one table. Threads may share it, because it does not change.

    Every method may raise a CellError that names the column of a malformed cell, or an OperationError for an image that
    does not belong to its change.
    """

    def __init__(self, columns: ValueColumns, keys: Sequence[KeyCell], operation: LogCell, branch: str) -> None:
        """Take what does not depend on a row.

        Args:
            columns: the table's static and regular columns.
            keys: its primary key columns.
            operation: the reader of ``cdc$operation``.
            branch: name of the union branch of a row without its key.
        """
        self._columns = columns
        self._keys = keys
        self._operation = operation
        self._branch = branch

    def before(self, change: LogChange, symbol: str) -> Image:
        """Return the row that the change's pre-image shows."""
        return self._image(change, change.before, symbol, Operation.PREIMAGE)

    def after(self, change: LogChange, symbol: str) -> Image:
        """Return the row that the change's post-image shows: the whole row."""
        return self._image(change, change.after, symbol, Operation.POSTIMAGE)

    def _image(self, change: LogChange, row: LogRow | None, symbol: str, operation: int) -> Image:
        if row is None:
            return NO_IMAGE
        if symbol == RANGE_DELETE:
            raise OperationError(f"cdc$operation {change.operation} ({symbol}) has an image of a row")
        found = self._operation.required(row)
        if found != operation:
            raise OperationError(f"cdc$operation is {found!r}; this image of a row must have {operation}")
        require_same_key(change.row, row, self._keys, "the image of a row")
        record: dict[str, object] = {}
        unknown: list[str] = []
        empty: list[str] = []
        for one in self._columns.of_row(symbol):
            known, value = one.image(row, empty)
            if value is not None:
                record[one.field] = value
            if not known and value is None:
                unknown.append(one.column)
        return Image((self._branch, record), [] if change.after is row else unknown, empty)

    def row_after(self, change: LogChange, symbol: str) -> Image:
        """Return what is known of the row after the change: its post-image, or the pre-image with the deltas applied.

        The effect of an unknown operation is not known, so only a post-image gives the row after it.
        """
        if change.after is not None or symbol == UNKNOWN_OPERATION:
            self.check_cells(change)
            return NO_IMAGE if change.after is None else self.after(change, symbol)
        deltas = change.deltas
        before = self.before(change, symbol) if self._touches_any(deltas, symbol) else NO_IMAGE
        earlier = before.columns
        is_full = self._is_full(before, deltas, symbol)
        record: dict[str, object] = {}
        unknown: list[str] = []
        empty: list[str] = []
        for one in self._columns.of_row(symbol):
            touching = [row for row in deltas if one.is_touched_by(row)]
            known, value = one.value_after(touching, empty) if touching else (False, None)
            if not known and before.row is not None and one.column not in before.unknown:
                if not touching:
                    known, value = True, earlier.get(one.field)
                    empty += [one.column] if one.column in before.empty else []
                elif is_full or one.field in earlier:
                    known, value = one.applied_to(touching, earlier.get(one.field))
            if value is not None:
                record[one.field] = value
            elif not known and one.column not in empty:
                unknown.append(one.column)
                _check_cells(one, touching)
        return Image((self._branch, record), unknown, empty)

    def _is_full(self, before: Image, deltas: Sequence[LogRow], symbol: str) -> bool:
        """Return whether a pre-image was written with 'preimage': 'full', so that its nulls are values.

        A pre-image of 'preimage': 'true' has only the touched columns. For the second and later rows of a batch it may
        lack some of these although they have a value (spec section 2.6).
        """
        if before.row is None:
            return False
        return any(
            one.column not in before.unknown and not any(one.is_touched_by(row) for row in deltas)
            for one in self._columns.of_row(symbol)
        )

    def check_cells(self, change: LogChange) -> None:
        """Decode the deltas' cells that the record does not show, so that a malformed one is an error all the same."""
        for one in self._columns.values:
            _check_cells(one, change.deltas)

    def _touches_any(self, deltas: Sequence[LogRow], symbol: str) -> bool:
        """Return whether the deltas touch a column at all.

        If they touch none, the log may have held keys only, so that untouched columns are not known to be unchanged.
        """
        return any(one.is_touched_by(row) for row in deltas for one in self._columns.of_row(symbol))

    def unavailable(self, row: Image, symbol: str) -> list[str]:
        """Return the CQL names of the columns that are null in a row although they may have a value."""
        if row.row is not None:
            return [*row.unknown, *row.empty]
        return [one.column for one in (self._columns.values if symbol in WITHOUT_ROW else self._columns.of_row(symbol))]


def _check_cells(column: ColumnReader, rows: Sequence[LogRow]) -> None:
    """Raise the CellError that decoding the column's cells raises, if any."""
    for row in rows:
        column.change(row, [])
