"""What a shape of the value record consists of: the base class `Shape`. ``schemas.shapes.catalog`` lists the shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from schemas.avro.records import Records
from schemas.log.change_records import LogRecords
from schemas.log.log_change import LogChange

KeyColumns: TypeAlias = Literal["partition_key", "primary_key"]
"""Which columns a record key holds."""


class LogOptions(Protocol):
    """The `cdc` options of a table that decide what the rows of its log hold."""

    @property
    def delta(self) -> str:
        """`full`, or `keys`: then a delta holds the primary key and no other column."""

    @property
    def preimage(self) -> str:
        """`false`, `true` (the columns that the change touches) or `full` (the whole row)."""

    @property
    def postimage(self) -> bool:
        """Whether a change has a post-image, which holds the whole row."""


class Effect(NamedTuple):
    """What the new value of a `cdc` option means for the records of a shape.

    Attributes:
        text: the meaning, as a clause for a log message.
        is_loss: whether the records tell less than before, or less than they could.
    """

    text: str
    is_loss: bool


class Shape(ABC):
    """One form of the value record, with everything that depends on the form.

    A shape has no state. Its class attributes describe it.

    Attributes:
        name: the value of `output.shape`.
        summary: what a value is, as the end of a sentence that begins with the name.
        record_name: name of the value's Avro record.
        by_row: whether a value describes a row. Then all deltas of one row in a group become one change, and the last
            record of a key is enough, so that the change topic may be compacted. Otherwise each delta becomes a
            change, and a consumer needs all of them.
        default_key: columns of the record key, unless the configuration names others.
        default_tombstones: whether a delete is followed by a tombstone, unless the configuration says otherwise.
        uses_images: whether a value depends on pre- and post-images.
        bytes_without_images: the Avro bytes behind the fields of the shape `delta` in a change that has no images;
            None if the shape does not begin with these fields, which excludes it from the compiled encoders.
        keys_only: the effect of the option 'delta': 'keys'.
        preimages: the effect of each value of the option 'preimage'.
        postimages: the effect of each value of the option 'postimage'.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    record_name: ClassVar[str] = "Envelope"
    by_row: ClassVar[bool]
    default_key: ClassVar[KeyColumns]
    default_tombstones: ClassVar[bool] = False
    uses_images: ClassVar[bool] = True
    bytes_without_images: ClassVar[bytes | None] = None
    keys_only: ClassVar[str]
    preimages: ClassVar[Mapping[str, Effect]]
    postimages: ClassVar[Mapping[bool, Effect]]

    @abstractmethod
    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's Avro schema, in order.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
            OutputError: the table does not fit the shape.
        """

    @abstractmethod
    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields for one change.

        Raises:
            CellError: a cell is malformed.
            OperationError: the change's rows contradict each other.
        """

    def advice(self, options: LogOptions) -> Iterator[str]:
        """Yield what a log with these options lacks for the shape, or holds although the shape does not use it.

        Each item is a clause that continues "table ks.t: ".
        """
        if options.delta == "keys":
            yield (
                "its log holds keys only (cdc option 'delta': 'keys'), so inserts and updates come without their "
                "columns"
            )

    def delta_effect(self, delta: str) -> Effect:
        """Return what a new value of the option 'delta' means for the records."""
        if delta == "keys":
            return Effect(f"the log does not record what a change sets, so {self.keys_only}", is_loss=True)
        return Effect("the log records what a change sets, but not for earlier changes", is_loss=False)

    def preimage_effect(self, preimage: str) -> Effect:
        """Return what a new value of the option 'preimage' means for the records."""
        return self.preimages.get(preimage, self.preimages["true"])

    def postimage_effect(self, postimage: bool) -> Effect:
        """Return what a new value of the option 'postimage' means for the records."""
        return self.postimages[postimage]


def has_images(options: LogOptions) -> bool:
    """Return whether a log with these options holds pre- or post-images."""
    return options.preimage != "false" or options.postimage


def partial_preimages(options: LogOptions) -> Iterator[str]:
    """Yield the advice against pre-images of touched columns, if there are no post-images beside them.

    With post-images ScyllaDB reads all columns, also for the pre-image (spec section 2.6).
    """
    if options.preimage == "true" and not options.postimage:
        yield (
            "its pre-images ('preimage': true) are unreliable in batches over several rows: ScyllaDB reads the columns "
            "that the first row's change touches, so before may have null for a column of another row although it had "
            "a value; 'preimage': 'full' avoids it"
        )


def absent_postimages(shape: str, options: LogOptions) -> Iterator[str]:
    """Yield the advice for a shape that shows the row after a change, if the log has no post-images."""
    if not options.postimage:
        yield (
            f"its log holds no post-images (cdc option 'postimage'), so the shape {shape} lists the columns that a "
            "change does not touch as unavailable, unless 'preimage': 'full' provides them"
        )
