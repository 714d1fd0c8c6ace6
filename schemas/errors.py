"""The errors of this layer, grouped by what a caller can do about them.

There is no recovery policy here: ``bridge`` decides what is retried, dead-lettered or fatal.
"""

from __future__ import annotations

from collections.abc import Callable

_SHOWN_BYTES = 32
"""How much of a cell a message shows: enough to recognise it, too little to leak a document."""


class SchemaError(Exception):
    """Root of everything that ``schemas`` raises on purpose.

    Errors survive pickling with their attributes: they cross from tasks to the driver.
    """

    def __reduce__(self) -> tuple[Callable[..., SchemaError], tuple[type[SchemaError], tuple[object, ...]], object]:
        """Rebuild from message and attributes, whatever a subclass's __init__ asks for."""
        return _rebuilt, (type(self), self.args), self.__dict__


class TypeTextError(SchemaError):
    """A CQL type text that is not understood (see ``schemas.cql.types.parse``)."""


class TableSchemaError(SchemaError):
    """A table description that contradicts itself, or does not fit its CDC log table."""


class UnsupportedTypeError(SchemaError):
    """A column has a CQL type that has no Avro form yet.

    Attributes:
        cql_type: the type's text.
        table: ``keyspace.table``, or None where only the type is known.
        column: the column's CQL name, or None where only the type is known.
    """

    def __init__(self, cql_type: str, *, table: str | None = None, column: str | None = None) -> None:
        """Name the type and, if known, where it stands."""
        self.cql_type = cql_type
        self.table = table
        self.column = column
        where = "" if column is None else f" of column {column!r} of table {table}"
        super().__init__(f"CQL type {cql_type}{where} is not supported")

    def located(self, table: str, column: str) -> UnsupportedTypeError:
        """Return the same error with the table and the column named."""
        return UnsupportedTypeError(self.cql_type, table=table, column=column)


class CellError(SchemaError):
    """One cell cannot be serialized; the record that holds it is poison, others are not.

    Attributes:
        column: CQL name of the column, or None where only the type is known.
        cql_type: text of the cell's type.
        reason: what is wrong, without the bytes.
        raw: the cell's bytes, or None for a null cell.
    """

    def __init__(self, cql_type: str, reason: str, raw: bytes | None, *, column: str | None = None) -> None:
        """Describe the cell; the message shows at most 32 of its bytes."""
        self.column = column
        self.cql_type = cql_type
        self.reason = reason
        self.raw = raw
        where = "cell" if column is None else f"column {column!r}"
        super().__init__(f"{where} of type {cql_type}: {reason} ({_shown(raw)})")

    def located(self, column: str, cql_type: str) -> CellError:
        """Return the same error with the column and its type named; `raw` may be a part of its cell."""
        inside = "" if cql_type == self.cql_type else f"inside it, {self.cql_type}: "
        return CellError(cql_type, inside + self.reason, self.raw, column=column)


class OperationError(SchemaError):
    """A log row whose operation and cells contradict each other, or that is no change where one is due."""


class LostKeyError(OperationError):
    """A log row lacks clustering columns that its operation needs."""


class OutputError(SchemaError):
    """The wanted output is one that there is not."""


class EncodeError(SchemaError):
    """A value does not fit the Avro schema it was to be written with."""


class DecodeError(SchemaError):
    """Bytes are not a body of the Avro schema they were to be read with."""


class FramingError(SchemaError):
    """A message is not in the registry's wire format."""


class RegistryError(SchemaError):
    """The schema registry could not answer, or refused.

    Attributes:
        retriable: whether the same request may succeed later without anyone's help.
    """

    def __init__(self, message: str, *, retriable: bool) -> None:
        """Keep the message and whether to try again."""
        self.retriable = retriable
        super().__init__(message)


class RegistryAccessError(RegistryError):
    """The registry does not let us in, or is not the one that we trust: credentials, permissions or certificates.

    Never retriable by itself, but a rotated secret or a renewed certificate mends it from outside.
    """

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message, retriable=False)


class UnregisteredSchemaError(RegistryError):
    """A schema that must be registered beforehand is not there; not retriable until somebody registers it.

    Attributes:
        subject: the subject that lacks it.
    """

    def __init__(self, message: str, *, subject: str) -> None:
        """Keep the subject."""
        self.subject = subject
        super().__init__(message, retriable=False)


class IncompatibleSchemaError(RegistryError):
    """The subject's compatibility rule refuses the schema; never retriable.

    Attributes:
        subject: the subject that refused it.
        rule: the subject's compatibility level, as in "BACKWARD"; None where the registry does not tell.
        reason: the registry's own words.
    """

    def __init__(self, message: str, *, subject: str, rule: str | None, reason: str) -> None:
        """Keep the subject, its rule and the registry's reason."""
        self.subject = subject
        self.rule = rule
        self.reason = reason
        super().__init__(message, retriable=False)


def _shown(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    if not raw:
        return "zero bytes"
    more = "..." if len(raw) > _SHOWN_BYTES else ""
    return f"{len(raw)} bytes: 0x{raw[:_SHOWN_BYTES].hex()}{more}"


def _rebuilt(kind: type[SchemaError], args: tuple[object, ...]) -> SchemaError:
    error = kind.__new__(kind)
    error.args = args
    return error
