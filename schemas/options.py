"""How a table's changes are written: the shape of the envelope and the forms of a few types.

The defaults lose nothing. Every other choice is for consumers that want a form of their own, and
says what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ShapeName: TypeAlias = Literal["delta", "full", "debezium", "flat"]
"""The names in ``schemas.shapes.SHAPES``."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The choices for one table.

    Attributes:
        shape: `delta`, what the change did; `full`, that and the row before and after it, from the
            log's images; `debezium`, before, after, op and source as Debezium's connectors give them;
            `flat`, the row with a few fields that begin with ``__``.
        decimals: `decimal` and `varint` as a `record` of scale and unscaled bytes, exact whatever
            the size; as a `string` such as ``-1.50`` or ``1E+40``, exact as well; as a `double`, the
            nearest one (a number beyond its range is a CellError).
        timestamps: `millis`, a plain long, since CQL's timestamps go beyond what the calendars of
            some languages hold; `timestamp-millis` and `timestamp-micros`, Avro's logical types
            (a timestamp whose microseconds do not fit in 64 bits is a CellError).
        times: `nanos`, a plain long; `time-micros`, Avro's logical type: less than a microsecond is cut off.
        key: the columns of the record's key; clustering columns are null in it where the change has none.
        name: the job's, as `debezium` tells it in ``source.name``.
    """

    shape: ShapeName = "delta"
    decimals: Literal["record", "string", "double"] = "record"
    timestamps: Literal["millis", "timestamp-millis", "timestamp-micros"] = "millis"
    times: Literal["nanos", "time-micros"] = "nanos"
    key: Literal["partition_key", "primary_key"] = "partition_key"
    name: str = "scylla-cdc-bridge"


DEFAULT_OUTPUT = OutputOptions()
