r"""Compiles one function for each table: from a log row straight to its Avro key and value.

The function is generated as Python source, because a loop over the columns would spend most of its time on calls and on
looking up facts that the table fixes (measured: functions for each column take 1.4 to 2 times as long). The function of
``ks.t (pk int, ck int, v text, primary key (pk, ck))`` reads, shortened::

    def encode(row, operation, generation_ms, last_in_group):
        c0, c1, c2, c3, _, _, c6, c7, c8, c9 = row        # the log's columns in their order
        if c8 is None or ...: decline()
        op, kind, number = operations[operation]
        low, middle, high = unpack_time(c1)
        ...
        if kind == 0 and (c7 is None): decline()          # a row needs its clustering key
        ...
        (c8,) = unpack_int_0(c8)                          # the partition key
        c8 = c8 << 1 if c8 >= 0 else ~(c8 << 1)
        c8 = whole_0[c8] if c8 < 0x4000 else ...
        key = c8
        ...
        if kind in without_columns:                       # range, columns: null
            return key, join((op, key, c7, b'\x00', b'\x00', b'\x00', c6, source, c0, c1, ...))
        if c9 is None:                                    # a column: untouched, set to null, or set
            c9 = b'\x00' if c3 is None else deleted[c3]
        else:
            ...
        return key, join((op, key, c7, b'\x00', b'\x02', c9, b'\x00', c6, source, c0, c1, ...))

Only numbers and names that this package makes enter the source: it names columns by their place in the row. The
function declines what it cannot encode: malformed cells and CQL's "empty" values, contradictions, images, range
deletes, times before 1970 and other shapes. ``schemas.compiled.reference_encoder`` encodes those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from schemas.compiled.cell_source import EMPTY_ARRAY, NULL, SOME, Lines, shared_helpers
from schemas.compiled.container_source import CellSource, array_writer, udt_change_writer
from schemas.compiled.envelope_bytes import PARTITION_DELETE, ROW_CHANGE, ROW_DELETE, envelope_helpers
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, NativeType, UdtType, is_multi_cell
from schemas.log.cell_readers import LogRow
from schemas.log.columns import (
    BATCH_SEQ_NO,
    STREAM_ID,
    TIME,
    TTL,
    deleted_elements,
    deleted_elements_type,
    deleted_flag,
    value_type,
)
from schemas.log.operations import Operation
from schemas.log.timeuuid import TICKS_PER_MICRO, UNIX_EPOCH_TICKS
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.shapes.catalog import shape_of

KeyEncoder: TypeAlias = Callable[[LogRow], bytes]
"""Row -> key body; raises one of `schemas.compiled.cell_source.DECLINED`."""

ChangeEncoder: TypeAlias = Callable[[LogRow, int, int, bool], tuple[bytes, bytes]]
"""Row, operation, generation_ms, last_in_group -> key body, value body; raises as `KeyEncoder`."""

INDENT: Final = "    "
_ID_BYTES: Final = 16


def compile_encoders(
    table: TableSchema, positions: dict[str, int], output: OutputOptions = DEFAULT_OUTPUT
) -> tuple[KeyEncoder, ChangeEncoder]:
    """Return the table's two functions: the encoder of keys and the encoder of changes.

    Args:
        table: the base table.
        positions: name -> index of the log's columns in a row; a row has as many cells.
        output: the shape and the forms of the values. In a shape without `Shape.bytes_without_images` every change is
            declined.

    Raises:
        UnsupportedTypeError: a column's type has no Avro form.
    """
    code = RowSource(table, positions, output)
    source = "\n".join((*code.key_function(), *code.change_function()))
    scope = {**shared_helpers(), **envelope_helpers(table), **code.helpers}
    exec(source, scope)  # noqa: S102 - the package schemas.compiled makes every word of it
    return cast("KeyEncoder", scope["encode_key"]), cast("ChangeEncoder", scope["encode"])


class RowSource:
    """Makes the source of one table's functions. A cell's variable is named after its place in the row.

    Attributes:
        helpers: name -> helpers that the lines made so far use.
    """

    def __init__(self, table: TableSchema, positions: dict[str, int], output: OutputOptions) -> None:
        self.helpers: dict[str, object] = {}
        self._positions = positions
        self._output = output
        self._partition_key, self._clustering, self._values = table.partition_key, table.clustering, table.values
        self._statics = table.statics
        self._key_cells = [self._variable_of(column.name) for column in self._partition_key]
        self._meta = [self._variable_of(name) for name in (STREAM_ID, TIME, BATCH_SEQ_NO, TTL)]
        self._used = {*self._key_cells, *self._meta}
        self._used |= {self._variable_of(column.name) for column in self._clustering}
        self._used |= {cell for column in self._values for cell in self._variables_of(column)}
        cells = (f"c{place}" for place in range(len(positions)))
        self._unpack_row = f"{', '.join(cell if cell in self._used else '_' for cell in cells)}, = row"

    def key_function(self) -> Lines:
        """Return the source of ``encode_key(row)``, a `KeyEncoder`."""
        reading = [f"{cell} = row[{cell[1:]}]" for cell in self._key_cells]
        return block(
            "def encode_key(row):", [*reading, _decline_null(self._key_cells), *self._key_lines(), "return key"]
        )

    def change_function(self) -> Lines:
        """Return the source of ``encode(row, operation, generation_ms, last_in_group)``, a `ChangeEncoder`."""
        head = "def encode(row, operation, generation_ms, last_in_group):"
        no_images = shape_of(self._output.shape).bytes_without_images
        if no_images is None:
            return block(head, ["decline()"])
        stream_id, time, batch_seq_no, ttl = self._meta
        clustering = [self._variable_of(column.name) for column in self._clustering]
        values = [self._variable_of(column.name) for column in self._values]
        no_range = [repr(NULL)] if clustering else []
        before = ["op", "key", *clustering, *no_range]
        after = [ttl, "source", stream_id, time, *TIMESTAMP_PARTS, batch_seq_no, "number", "last"]
        after += [repr(no_images)] if no_images else []
        without_columns = [_return_lines([*before, repr(NULL + EMPTY_ARRAY), *after])]
        body = [
            self._unpack_row,
            _decline_null([stream_id, time, batch_seq_no, *self._key_cells]),
            f"if len({stream_id}) != {_ID_BYTES}: decline()",
            "op, kind, number = operations[operation]",
            "source = source_of(generation_ms)",
            "last = b'\\x01' if last_in_group is True else b'\\x00' if last_in_group is False else decline()",
            *_timestamp_lines(time),
            *self._encode_lines(batch_seq_no, NativeType("int"), unions=0),
            *self._check_lines(clustering),
            *self._nullable_lines(ttl, NativeType("bigint")),
            *self._key_lines(),
        ]
        for column, cell in zip(self._clustering, clustering, strict=True):
            body += self._nullable_lines(cell, column.type)
        body += block(f"if kind == {ROW_DELETE} or kind == {PARTITION_DELETE}:", without_columns)
        if self._values:
            body += block(f"if {self._untouched_expression()}:", without_columns)
        for column in self._values:
            body += self._value_lines(column)
        body.append(_return_lines([*before, repr(SOME), *values, repr(EMPTY_ARRAY), *after]))
        return block(head, body)

    def _variable_of(self, column: str) -> str:
        return f"c{self._positions[column]}"

    def _variables_of(self, column: Column) -> list[str]:
        """Return the variables of a static or regular column: value, flag, and deleted elements if it has them."""
        names = [column.name, deleted_flag(column.name)]
        if is_multi_cell(column.type):
            names.append(deleted_elements(column.name))
        return [self._variable_of(name) for name in names]

    def _all_null_expression(self, columns: Sequence[Column]) -> str:
        """Return an expression: all cells of the columns are null.

        A flag that is false counts as not null, because no server writes one.
        """
        cells = [cell for column in columns for cell in self._variables_of(column)]
        return " and ".join(f"{cell} is None" for cell in cells) or "True"

    def _untouched_expression(self) -> str:
        """Return an expression: the row touches no column."""
        cells = [self._variables_of(column) for column in self._values]
        parts = [f"{cell} is None" for value, _flag, *removed in cells for cell in (value, *removed)]
        return " and ".join([*parts, *(f"not is_set[{flag}]" for _value, flag, *_removed in cells)]) or "True"

    def _check_lines(self, clustering: Lines) -> Lines:
        """Return lines that decline rows whose cells do not fit their operation.

        ``schemas.log.operations.symbol_of`` has the same rules for the reference encoder, which alone takes rows
        without trailing clustering columns (`TableSchema.partial_clustering`).
        """
        row_kinds = f"kind == {ROW_CHANGE} or kind == {ROW_DELETE}"
        lines: Lines = []
        if clustering:
            incomplete = " or ".join(f"{cell} is None" for cell in clustering)
            no_key = " and ".join(f"{cell} is None" for cell in clustering)
            given = [f"if not ({no_key}): decline()"]
            static: Lines = ["decline()"]
            if self._statics:
                regulars = [column for column in self._values if column not in self._statics]
                is_static = f"{no_key} and {self._all_null_expression(regulars)}"
                static = [
                    f"if operation != {Operation.UPDATE:d} or not ({is_static}): decline()",
                    "op = static_update",
                ]
                row = block(f"elif not ({self._all_null_expression(self._statics)}):", ["decline()"])
            else:
                row = []
            lines += block(f"if {row_kinds}:", [*block(f"if {incomplete}:", static), *row])
            lines += block(f"elif kind == {PARTITION_DELETE}:", given)
        nothing = f"if not ({self._all_null_expression(self._values)}): decline()"
        return [*lines, *block(f"if kind == {ROW_DELETE} or kind == {PARTITION_DELETE}:", [nothing])]

    def _encode_lines(self, cell: str, cql_type: CqlType, *, unions: int) -> Lines:
        code = CellSource(cell, unions, self._output)
        lines = code.of(cql_type)
        self.helpers.update(code.helpers)
        return lines

    def _key_lines(self) -> Lines:
        lines: Lines = []
        for column, cell in zip(self._partition_key, self._key_cells, strict=True):
            lines += self._encode_lines(cell, column.type, unions=0)
        return [*lines, f"key = {' + '.join(self._key_cells)}"]

    def _nullable_lines(self, cell: str, cql_type: CqlType) -> Lines:
        """Return the lines for a clustering column or the TTL: null or a value."""
        return [
            *block(f"if {cell} is None:", [f"{cell} = {NULL!r}"]),
            *block("else:", self._encode_lines(cell, cql_type, unions=1)),
        ]

    def _value_lines(self, column: Column) -> Lines:
        """Return the lines for a static or regular column."""
        if is_multi_cell(column.type):
            return self._multi_cell_lines(column)
        cell, flag = self._variables_of(column)
        return [
            *block(f"if {cell} is None:", [f"{cell} = {NULL!r} if {flag} is None else deleted[{flag}]"]),
            *block("else:", [f"if {flag} is not None: decline()", *self._encode_lines(cell, column.type, unions=2)]),
        ]

    def _multi_cell_lines(self, column: Column) -> Lines:
        """Return the lines for a column of many cells: untouched, or any combination of cleared, added and removed."""
        cell, flag, removed = self._variables_of(column)
        untouched = f"if {cell} is None and {removed} is None and not is_set[{flag}]:"
        if isinstance(column.type, UdtType):
            write = self._add_helper(f"change_{cell}", udt_change_writer(column.type, self._output))
            change = f"{SOME!r} + cleared[{flag}] + {write}({cell}, {removed})"
        else:
            add = self._add_helper(f"added_{cell}", array_writer(value_type(column.type), self._output))
            remove = self._add_helper(f"removed_{cell}", array_writer(deleted_elements_type(column.type), self._output))
            change = (
                f"{SOME!r} + cleared[{flag}] + {_array_expression(add, cell)} + {_array_expression(remove, removed)}"
            )
        return [*block(untouched, [f"{cell} = {NULL!r}"]), *block("else:", [f"{cell} = {change}"])]

    def _add_helper(self, name: str, helper: object) -> str:
        self.helpers[name] = helper
        return name


def _array_expression(writer: str, cell: str) -> str:
    return f"({EMPTY_ARRAY!r} if {cell} is None else {writer}({cell}))"


def _decline_null(cells: Lines) -> str:
    return f"if {' or '.join(f'{cell} is None' for cell in cells)}: decline()"


TIMESTAMP_PARTS: Final = (
    "head_0[us & 0x3FFF]",
    "head_0[us >> 14 & 0x3FFF]",
    "head_0[us >> 28 & 0x3FFF]",
    "whole_0[us >> 42]",
)


def _timestamp_lines(time: str) -> Lines:
    """Return the lines that make ``us`` of a timeuuid: zigzag µs since 1970, within the range of 8 Avro bytes.

    The range ends in the year 3111. The version nibble is ignored, because old servers' timeuuids break the RFC.
    """
    ticks = "((high & 0xFFF) << 48 | middle << 32 | low)"
    return [
        f"low, middle, high = unpack_time({time})",
        f"us = ({ticks} - {UNIX_EPOCH_TICKS}) // {TICKS_PER_MICRO} << 1",
        f"if not {1 << 42} <= us < {1 << 56}: decline()",
    ]


def block(head: str, body: Lines) -> Lines:
    """Return a compound statement: its head, then its body indented."""
    return [head, *(INDENT + line for line in body)]


def _return_lines(parts: list[str]) -> str:
    return f"return key, join(({', '.join(parts)}))"
