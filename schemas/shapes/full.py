"""The shape ``full``: the shape ``delta``, and the row before and after the change from the log's images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from schemas.avro.records import Records
from schemas.log.change_records import LogRecords
from schemas.log.log_change import LogChange
from schemas.shapes.base import Effect, LogOptions, Shape, has_images, partial_preimages
from schemas.shapes.delta import DELTA

_NULL: Final = b"\x00"
_NO_NAMES: Final = b"\x00"
_NO_BEFORE: Final = _NULL + _NO_NAMES + _NO_NAMES
_NO_AFTER: Final = _NULL + _NO_NAMES


class FullShape(Shape):
    """The shape ``full``; its value begins with the fields of the shape ``delta``."""

    name = "full"
    summary = "adds the row before and after it from the log's images"
    by_row = False
    default_key = "partition_key"
    bytes_without_images = _NO_BEFORE + _NO_AFTER
    keys_only = "columns is null"
    preimages: ClassVar = {
        "false": Effect("before is null", is_loss=True),
        "true": Effect(
            "before has the columns that the change touches, and in a batch over several rows a null "
            "there is unreliable",
            is_loss=True,
        ),
        "full": Effect("before has the whole row", is_loss=False),
    }
    postimages: ClassVar = {
        False: Effect("after is null", is_loss=True),
        True: Effect("after has the whole row", is_loss=False),
    }

    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's schema, in order."""
        return [*DELTA.fields(records), *records.images()]

    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields."""
        record = DELTA.value(log, change)
        symbol = str(record["op"])
        before, after = log.rows.before(change, symbol), log.rows.after(change, symbol)
        return {
            **record,
            "before": before.row,
            "before_unknown": before.unknown,
            "before_empty": before.empty,
            "after": after.row,
            "after_empty": after.empty,
        }

    def advice(self, options: LogOptions) -> Iterator[str]:
        """Yield which images are missing or unreliable."""
        yield from super().advice(options)
        yield from partial_preimages(options)
        if not has_images(options):
            yield "its log holds no images (cdc options 'preimage' and 'postimage'): before and after will be null"


FULL = FullShape()
