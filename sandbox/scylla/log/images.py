"""Pre- and post-images (spec section 2.6): the base rows that a mutation touches, as they are before and after. Pure.

Like ScyllaDB, it reads the rows once before the write and applies each group's changes to them, regardless of
timestamps. A write that loses against a newer one in the table is still visible in its own post-image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bridge.model.times import UnixMicros
from sandbox.scylla.base.merging import Cell, CollectionState, Columns, PartitionState, RowState
from sandbox.scylla.base.ranges import covers
from sandbox.scylla.base.state import BaseRow, BaseState
from sandbox.scylla.log.log_rows import LogOperation, LogRow, Piece
from sandbox.scylla.values.ordering import Key

_UPSERTS: Final = frozenset({LogOperation.UPDATE, LogOperation.INSERT})
_ROW_DELETES: Final = frozenset({LogOperation.ROW_DELETE, LogOperation.ROW_EXPIRY})
_PARTITION_DELETES: Final = frozenset({LogOperation.PARTITION_DELETE, LogOperation.PARTITION_EXPIRY})

_Value = bytes | dict[bytes, bytes]
_Row = dict[str, _Value]


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Which images are logged.

    Attributes:
        preimage, postimage: as in the table's cdc option.
        of_partition_deletes: whether the delete of a partition that is one row has a pre-image, as since 2026.1.
    """

    preimage: Literal["false", "true", "full"] = "false"
    postimage: bool = False
    of_partition_deletes: bool = True

    @property
    def wanted(self) -> bool:
        """Whether any images are logged."""
        return self.postimage or self.preimage != "false"


class Images:
    """The rows that one mutation touches; `before`, `apply` and `after` are called for each group in turn."""

    def __init__(self, options: ImageOptions, columns: Columns, regulars: frozenset[str]) -> None:
        """Create the images of one mutation; call `read` next."""
        self._options = options
        self._columns = columns
        self._regulars = regulars
        self._static: _Row = {}
        self._rows: dict[Key, _Row] = {}

    def read(
        self,
        base: BaseState,
        partition_key: Key,
        now_us: UnixMicros,
        state: PartitionState,
        rows: Sequence[RowState],
    ) -> None:
        """Read the rows that a merged mutation touches; `rows` are its rows in clustering order."""
        statics, regulars = self._fetched(state, rows)
        if state.static.is_written:
            self._static = _visible_values(base.static(partition_key, now_us), statics)
        touched = [row.clustering for row in rows]
        if state.deleted_us is not None and self._is_row_delete:
            touched.append(())
        for clustering in touched:
            known = base.row(partition_key, clustering, now_us)
            if known is not None:
                self._rows[clustering] = _visible_values(known, regulars)

    @property
    def _is_row_delete(self) -> bool:
        """Whether a partition delete is the delete of its only row."""
        return not self._columns.clustering_count and self._options.of_partition_deletes

    def _fetched(self, state: PartitionState, rows: Sequence[RowState]) -> tuple[frozenset[str], frozenset[str]]:
        """Return the static and the regular columns that ScyllaDB reads with its one query."""
        deletes = any(row.deleted_us is not None for row in rows) or (
            state.deleted_us is not None and self._is_row_delete
        )
        if self._options.postimage or self._options.preimage == "full":
            return self._columns.statics, self._regulars
        statics = frozenset({*state.static.cells, *state.static.collections})
        if deletes or not rows:
            return statics, self._regulars
        # A known weakness of ScyllaDB: the first row decides for all rows, so values of the others can be missing.
        return statics, frozenset({*rows[0].cells, *rows[0].collections})

    def before(self, pieces: Sequence[Piece]) -> Iterator[LogRow]:
        """Yield a group's pre-images: of the static row, then of the others in clustering order."""
        if self._options.preimage == "false":
            return
        full = self._options.preimage == "full"
        static_touched: set[str] = set()
        touched: dict[Key, set[str]] = {}
        for piece in pieces:
            if piece.is_static:
                static_touched.update(piece.cells)
            elif piece.operation in _UPSERTS:
                touched.setdefault(piece.clustering, set()).update(piece.cells)
            elif piece.operation in _ROW_DELETES:
                touched.setdefault(piece.clustering, set()).update(self._regulars)
            elif piece.operation in _PARTITION_DELETES and self._is_row_delete:
                touched.setdefault((), set()).update(self._regulars)
        if static_touched and self._static:
            names = self._columns.statics if full else static_touched
            yield self._image(LogOperation.PRE_IMAGE, (), self._static, frozenset(names))
        for clustering in self._columns.order.sorted(touched, key=lambda key: key):
            if clustering in self._rows:
                names = self._regulars if full else touched[clustering]
                yield self._image(LogOperation.PRE_IMAGE, clustering, self._rows[clustering], frozenset(names))

    def apply(self, pieces: Sequence[Piece]) -> None:
        """Apply a group's changes to the rows."""
        for piece in pieces:
            if piece.is_static:
                self._apply_piece(self._static, piece)
            elif piece.operation in _UPSERTS:
                self._apply_piece(self._rows.setdefault(piece.clustering, {}), piece)
            elif piece.operation in _ROW_DELETES:
                self._rows.pop(piece.clustering, None)
            elif piece.operation in _PARTITION_DELETES:
                self._rows.clear()
                self._static.clear()
            elif piece.deleted_range is not None:
                order = self._columns.order
                for clustering in [
                    key for key in self._rows if covers(piece.deleted_range, order.position(key), order)
                ]:
                    del self._rows[clustering]

    def after(self, pieces: Sequence[Piece]) -> Iterator[LogRow]:
        """Yield a group's post-images, after `apply`: of the static row, then of the others in clustering order."""
        if not self._options.postimage:
            return
        deleted = any(piece.operation in _PARTITION_DELETES for piece in pieces)
        if any(piece.is_static for piece in pieces) and not deleted:
            yield self._image(LogOperation.POST_IMAGE, (), self._static)
        written = {piece.clustering for piece in pieces if piece.operation in _UPSERTS and not piece.is_static}
        for clustering in self._columns.order.sorted(written, key=lambda key: key):
            if clustering in self._rows:
                yield self._image(LogOperation.POST_IMAGE, clustering, self._rows[clustering])

    def _image(
        self, operation: LogOperation, clustering: Key, row: _Row, names: frozenset[str] | None = None
    ) -> LogRow:
        """Return an image; `names` are the columns of a pre-image, which flags those that are null."""
        cells: dict[str, bytes | None] = {}
        for name in row if names is None else names - {self._columns.hidden}:
            value = row.get(name)
            cells[name] = self._columns.multi_cell[name].pack(value) if isinstance(value, dict) else value
        return LogRow(operation, clustering, cells)

    def _apply_piece(self, row: _Row, piece: Piece) -> None:
        for name, state in piece.cells.items():
            if isinstance(state, CollectionState):
                value = self._apply_collection(name, row.get(name), state)
            else:
                value = _value(state, name == self._columns.hidden)
            if value is None:
                row.pop(name, None)
            else:
                row[name] = value

    def _apply_collection(self, name: str, known: _Value | None, state: CollectionState) -> _Value | None:
        kept = dict(known) if isinstance(known, dict) and state.deleted_us is None else None
        live = {key: cell.value for key, cell in state.elements.items() if cell.value is not None}
        # A UDT that was touched is never null, and a collection whose last element is removed is empty, not null.
        if kept is None and not live and self._columns.multi_cell[name].kind != "udt":
            return None
        found = (kept or {}) | live
        for key, cell in state.elements.items():
            if cell.value is None:
                found.pop(key, None)
        return found


def _visible_values(row: BaseRow, names: frozenset[str]) -> _Row:
    values: _Row = {name: value for name, value in row.cells.items() if name in names}
    values.update((name, dict(elements)) for name, elements in row.collections.items() if name in names)
    return values


def _value(cell: Cell, is_hidden: bool) -> bytes | None:
    return None if is_hidden else cell.value
