"""Encodes groups of changes: from raw cells to Avro bodies, record keys, headers and dead letters. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

from bridge.encoding.dead_letter import dead_letter
from bridge.encoding.error_hints import likely_cause
from bridge.encoding.partitioner import placement
from bridge.errors import UnpublishableError
from bridge.model.log_rows import Cells, Change, Group, LogLayout
from bridge.model.position import Position, timeuuid_in
from bridge.model.times import UnixMillis, micros_of
from schemas.compiled.page_loop import PlainChange
from schemas.errors import SchemaError
from schemas.log.operations import OPERATION_SYMBOLS, Operation
from schemas.options import RecordForm
from schemas.table_codec import TableCodec

POSITION_HEADER: Final = "cdc.position"
"""Name of the record header with the change's position (36 bytes)."""

OPERATION_HEADER: Final = "cdc.operation"
TIMESTAMP_HEADER: Final = "cdc.timestamp"
TABLE_HEADER: Final = "cdc.table"

_DELETES_OF_ROWS: Final = frozenset({Operation.ROW_DELETE, Operation.ROW_EXPIRY})
_DELETES_OF_PARTITIONS: Final = frozenset({Operation.PARTITION_DELETE, Operation.PARTITION_EXPIRY})


class EncodedChange(NamedTuple):
    """A record's contents, without the registry's framing.

    Attributes:
        key: Avro body of the record key; empty for a dead letter.
        value: Avro body of the value; None for a tombstone, JSON for a dead letter.
        position: the change's position (36 bytes, `bridge.model.position`).
        last_in_group: whether this is the last record of its group.
        headers: further headers as a JSON object of strings; None for none.
        placement: decides the partition (`bridge.encoding.partitioner.placement`); None if the record key decides.
        is_dead_letter: whether the record goes to the dead-letter topic.
    """

    key: bytes
    value: bytes | None
    position: bytes
    last_in_group: bool
    headers: str | None = None
    placement: int | None = None
    is_dead_letter: bool = False


class EncodedRun(NamedTuple):
    """A run of changes in lane order, each a group of its own, as the page encoder returns them.

    In place of an `EncodedChange`, each has only key, value and position. Its `last_in_group` is true, and the rest has
    the default.

    Attributes:
        records: sort key of `cdc$time`, key body, value body and position of each change.
    """

    records: list[PlainChange]

    def changes(self) -> Iterator[EncodedChange]:
        """Yield the changes one by one."""
        for _, key, value, position in self.records:
            yield EncodedChange(key, value, position, last_in_group=True)

    def pieces(self, most: int, most_bytes: int) -> Iterator[EncodedRun]:
        """Yield runs of at most `most` changes and of about `most_bytes` bytes of keys and values."""
        at, end = 0, len(self.records)
        while at < end:
            until = min(end, at + most)
            sizes = [len(key) + len(value) for _, key, value, _ in self.records[at:until]]
            if sum(sizes) >= most_bytes:
                # The piece ends with the change that reaches the limit.
                until = at + 1 + sum(1 for _ in takewhile(most_bytes.__gt__, accumulate(sizes)))
            yield EncodedRun(self.records[at:until])
            at = until


class GroupEncoder:
    """Encodes the groups of one table that is read with one log layout.

    Attributes:
        unknown_operations: number of changes so far whose `cdc$operation` this release does not know.
    """

    def __init__(self, codec: TableCodec, layout: LogLayout, table: tuple[str, str], form: RecordForm) -> None:
        """Create an encoder.

        Args:
            codec: encodes the table's keys and values.
            layout: the layout of the log rows.
            table: keyspace and name of the base table.
            form: what a record holds besides its value.
        """
        self._codec = codec
        self._layout = layout
        self._table = table
        self._form = form
        self._is_plain = form.is_plain
        self.unknown_operations = 0
        # A tombstone follows only a delete that leaves no row under the record key.
        if not layout.clustering:
            self._clears_key = _DELETES_OF_ROWS | _DELETES_OF_PARTITIONS
        else:
            self._clears_key = _DELETES_OF_ROWS if form.primary_key else _DELETES_OF_PARTITIONS

    def encode(self, group: Group, generation_ms: UnixMillis) -> Iterator[EncodedChange]:
        """Yield the records of a group.

        Args:
            group: the group.
            generation_ms: the generation of its stream (start in ms).

        Raises:
            UnpublishableError: a cell does not fit its type, or a row contradicts itself, and dead letters are off.
        """
        group_bytes = group.stream_id + group.timeuuid
        if group.failure is not None:
            position = group_bytes + (group.rows[0][self._layout.batch_seq_no] or b"")
            yield self._make_dead_letter(
                group.rows, generation_ms, group.failure, position, last=True, whole_group=True
            )
            return
        for change in group.changes:
            row, operation = change.row, change.operation
            position = group_bytes + (row[self._layout.batch_seq_no] or b"")
            if operation not in OPERATION_SYMBOLS:
                self.unknown_operations += 1
            try:
                key, value = self._codec.encode(
                    row,
                    operation=operation,
                    generation_ms=generation_ms,
                    last_in_group=change.last_in_group,
                    range_end=change.range_end,
                    before=change.before,
                    after=change.after,
                    more=change.more,
                )
                if self._is_plain:
                    yield EncodedChange(key, value, position, change.last_in_group)
                    continue
                formed = list(self._add_form(change, key, value, position))
            except SchemaError as error:
                place = Position.from_bytes(position).describe()
                failure = UnpublishableError(f"{'.'.join(self._table)}: {place}: {error}{likely_cause(error)}")
                if not self._form.dead_letters:
                    raise failure from error
                formed = [
                    self._make_dead_letter(
                        _rows_of(change), generation_ms, failure, position, last=change.last_in_group
                    )
                ]
            yield from formed

    def _add_form(self, change: Change, key: bytes, value: bytes, position: bytes) -> Iterator[EncodedChange]:
        form, row = self._form, change.row
        headers = self._make_headers(change, position)
        place = None
        if form.primary_key:
            place = placement(key)
            key = self._codec.encode_primary_key(row, change.operation, change.range_end)
        tombstone = form.tombstones and change.operation in self._clears_key
        yield EncodedChange(key, value, position, change.last_in_group and not tombstone, headers, place)
        if tombstone:
            yield EncodedChange(key, None, position, change.last_in_group, headers, place)

    def _make_headers(self, change: Change, position: bytes) -> str | None:
        form = self._form
        headers: dict[str, str] = {}
        if form.operation:
            headers[OPERATION_HEADER] = self._codec.symbol(change.row, change.operation, change.range_end)
        if form.timestamp:
            headers[TIMESTAMP_HEADER] = str(micros_of(timeuuid_in(position)))
        if form.table:
            headers[TABLE_HEADER] = ".".join(self._table)
        return json.dumps(headers) if headers else None

    def _make_dead_letter(
        self,
        rows: Sequence[Cells],
        generation_ms: UnixMillis,
        failure: UnpublishableError,
        position: bytes,
        *,
        last: bool,
        whole_group: bool = False,
    ) -> EncodedChange:
        letter = dead_letter(self._table, self._layout, rows, generation_ms, str(failure), whole_group=whole_group)
        return EncodedChange(b"", letter, position, last, is_dead_letter=True)


def _rows_of(change: Change) -> list[Cells]:
    others = (change.range_end, change.before, change.after)
    return [change.row, *change.more, *(row for row in others if row is not None)]
