"""The shapes of the value record: what a change looks like to a consumer.

A shape is one module with two functions: `fields`, the schema's fields, and `value`, the record's
values for one change. Both are made of the parts of ``schemas.avro.records`` and
``schemas.log.change_records``; a shape only chooses and arranges them.
"""

from __future__ import annotations

from typing import Final, Protocol

from schemas.avro.records import Records
from schemas.cql.table import TableSchema
from schemas.errors import OutputError
from schemas.log.change_records import LogChange, LogRecords
from schemas.options import OutputOptions
from schemas.shapes import debezium, delta, flat, full


class Shape(Protocol):
    """What a shape's module has."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """Of the value's record."""

    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's schema, in order."""

    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields."""


_SHAPES: Final[dict[str, Shape]] = {"delta": delta, "full": full, "debezium": debezium, "flat": flat}


def shape_of(output: OutputOptions) -> Shape:
    """Return the wanted shape.

    Raises:
        OutputError: there is no such shape.
    """
    shape = _SHAPES.get(output.shape)
    if shape is None:
        raise OutputError(f"there is no output shape {output.shape!r}; known are {', '.join(_SHAPES)}")
    return shape


def shape_fields(table: TableSchema, output: OutputOptions) -> list[object]:
    """Return the fields of a table's value schema.

    Raises:
        OutputError: as `shape_of`.
        UnsupportedTypeError: names the table, the column and the type.
    """
    return shape_of(output).fields(Records(table, output))
