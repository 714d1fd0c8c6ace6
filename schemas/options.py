"""Options for the records of a table: the shape of the value and the forms of a few types.

The defaults lose nothing. The other choices are for consumers that need another form; `OutputOptions` names the cost of
each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ShapeName: TypeAlias = Literal["delta", "full", "debezium", "flat"]
"""The names in ``schemas.shapes.catalog.SHAPES``."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The choices for one table.

    Attributes:
        shape: the name of the value's shape, a key of ``schemas.shapes.catalog.SHAPES``.
        decimals: the form of `decimal` and `varint`. `record` is scale and unscaled bytes, exact at any size; `string`
            is a text such as ``-1.50`` or ``1E+40``, also exact; `double` is the nearest double, and a number beyond
            the range of doubles is a CellError.
        timestamps: the form of `timestamp`. `millis` is a plain long, because CQL's timestamps exceed the calendars of
            some languages; `timestamp-millis` and `timestamp-micros` are Avro's logical types, and a timestamp whose
            microseconds do not fit in 64 bits is a CellError.
        times: the form of `time`. `nanos` is a plain long; `time-micros` is Avro's logical type, rounded down.
        key: the columns of the record's key. Clustering columns are null in the key of a change that has none.
        name: the job's name, which the shape `debezium` writes to ``source.name``.
    """

    shape: ShapeName = "delta"
    decimals: Literal["record", "string", "double"] = "record"
    timestamps: Literal["millis", "timestamp-millis", "timestamp-micros"] = "millis"
    times: Literal["nanos", "time-micros"] = "nanos"
    key: Literal["partition_key", "primary_key"] = "partition_key"
    name: str = "scylla-cdc-bridge"


DEFAULT_OUTPUT = OutputOptions()


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What the record of a change holds besides its value.

    Attributes:
        primary_key: whether the record key is the whole primary key; otherwise it is the partition key.
        tombstones: whether a tombstone follows a delete that leaves nothing under the record key.
        operation: whether records have the header `cdc.operation`.
        timestamp: whether records have the header `cdc.timestamp`.
        table: whether records have the header `cdc.table`.
        dead_letters: whether a change that can't be encoded becomes a dead letter; otherwise the encoder raises.
    """

    primary_key: bool = False
    tombstones: bool = False
    operation: bool = False
    timestamp: bool = False
    table: bool = False
    dead_letters: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether records hold only the value, the partition key and the position."""
        return not (self.primary_key or self.tombstones or self.operation or self.timestamp or self.table)
