"""The shape ``delta``: what the change did, as the log records it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from schemas.avro.records import Records
from schemas.log.change_records import LogRecords
from schemas.log.log_change import LogChange
from schemas.shapes.base import Effect, LogOptions, Shape, has_images

_UNUSED_IMAGES: Final = Effect("the output shape delta leaves images out", is_loss=False)


class DeltaShape(Shape):
    """The shape ``delta``. ``schemas.record_schemas`` describes its fields."""

    name = "delta"
    summary = "is the change itself"
    by_row = False
    default_key = "partition_key"
    uses_images = False
    bytes_without_images = b""
    keys_only = "columns is null"
    preimages: ClassVar = {"false": _UNUSED_IMAGES, "true": _UNUSED_IMAGES, "full": _UNUSED_IMAGES}
    postimages: ClassVar = {False: _UNUSED_IMAGES, True: _UNUSED_IMAGES}

    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's schema, in order."""
        return [
            records.operation(),
            records.primary_key(),
            *records.range(),
            records.columns(),
            records.empty_columns(),
            records.ttl(),
            records.source(),
        ]

    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields."""
        # Cells are read in the order of the fields, so that an error names the first malformed one.
        symbol = log.symbol(change)
        empty: list[str] = []
        return {
            "op": symbol,
            "key": log.primary_key(change, symbol, empty),
            **log.range(change),
            "columns": log.columns(change.row, symbol, empty),
            "empty_columns": empty,
            "ttl": log.ttl(change.row),
            "source": log.source(change),
        }

    def advice(self, options: LogOptions) -> Iterator[str]:
        """Yield what the shape does not use: images."""
        yield from super().advice(options)
        if has_images(options):
            yield "its log holds images, which the output shape delta leaves out; the shape full has them"


DELTA = DeltaShape()
