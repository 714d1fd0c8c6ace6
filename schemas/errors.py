"""The errors of this layer, grouped by what a caller can do about them.

``bridge`` decides which of them it retries, sends to the dead-letter topic, or treats as fatal.
"""

from __future__ import annotations

from collections.abc import Callable


class SchemaError(Exception):
    """Base class of the errors that ``schemas`` raises on purpose.

    Errors keep their attributes when they are pickled, because they travel from tasks to the driver.
    """

    def __reduce__(self) -> tuple[Callable[..., SchemaError], tuple[type[SchemaError], tuple[object, ...]], object]:
        """Rebuild the error from its message and attributes, without a call of the subclass's __init__."""
        return _rebuild_error, (type(self), self.args), self.__dict__


class TypeTextError(SchemaError):
    """A text is not a CQL type."""


class TableSchemaError(SchemaError):
    """A table description contradicts itself, or does not fit its CDC log table."""


class UnsupportedTypeError(SchemaError):
    """A column has a CQL type that has no Avro form.

    Attributes:
        cql_type: the type's text.
        table: ``keyspace.table``, or None where only the type is known.
        column: the column's CQL name, or None where only the type is known.
    """

    def __init__(self, cql_type: str, *, table: str | None = None, column: str | None = None) -> None:
        """Describe the type, and name its table and column if they are known."""
        self.cql_type = cql_type
        self.table = table
        self.column = column
        where = "" if column is None else f" of column {column!r} of table {table}"
        super().__init__(f"CQL type {cql_type}{where} is not supported")

    def located(self, table: str, column: str) -> UnsupportedTypeError:
        """Return a copy of the error that names the table and the column."""
        return UnsupportedTypeError(self.cql_type, table=table, column=column)


class CellError(SchemaError):
    """One cell cannot be encoded, so the change that holds it cannot be published.

    It holds no part of the cell, because errors go to logs and to the status page, which needs no login.

    Attributes:
        column: CQL name of the column, or None where only the type is known.
        cql_type: text of the cell's type.
        reason: what is wrong with the cell, without its bytes and without numbers that were read from them.
        size: the cell's length in bytes, or None for a null cell.
    """

    def __init__(self, cql_type: str, reason: str, size: int | None, *, column: str | None = None) -> None:
        """Describe the cell by its column, type and length."""
        self.column = column
        self.cql_type = cql_type
        self.reason = reason
        self.size = size
        where = "cell" if column is None else f"column {column!r}"
        super().__init__(f"{where} of type {cql_type}: {reason} ({_describe_size(size)})")

    def located(self, column: str, cql_type: str) -> CellError:
        """Return a copy of the error that names the column and its type; `size` may be that of a part of the cell."""
        inside = "" if cql_type == self.cql_type else f"inside it, {self.cql_type}: "
        return CellError(cql_type, inside + self.reason, self.size, column=column)


class OperationError(SchemaError):
    """A log row's operation and cells contradict each other, or the row is not a change where a change is expected."""


class LostKeyError(OperationError):
    """A log row lacks clustering columns that its operation needs."""


class OutputError(SchemaError):
    """The configured output does not exist, or the table does not fit it."""


class EncodeError(SchemaError):
    """A value does not fit its Avro schema."""


class DecodeError(SchemaError):
    """Bytes are not a record of their Avro schema."""


class FramingError(SchemaError):
    """A message is not in the schema registry's wire format."""


class RegistryError(SchemaError):
    """The schema registry did not answer, or refused a request.

    Attributes:
        retriable: whether the same request may succeed later without a change by a person.
    """

    def __init__(self, message: str, *, retriable: bool) -> None:
        """Keep the message and whether a retry can help."""
        self.retriable = retriable
        super().__init__(message)


class RegistryAccessError(RegistryError):
    """The registry refuses our credentials or permissions, or we do not trust its certificate.

    A retry alone does not help. A rotated secret or a renewed certificate does.
    """

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message, retriable=False)


class UnregisteredSchemaError(RegistryError):
    """A schema that must be registered in advance is missing; a retry does not help until it is registered.

    Attributes:
        subject: the subject that lacks the schema.
    """

    def __init__(self, message: str, *, subject: str) -> None:
        """Keep the message and the subject."""
        self.subject = subject
        super().__init__(message, retriable=False)


class IncompatibleSchemaError(RegistryError):
    """The subject's compatibility rule refuses the schema; a retry does not help.

    Attributes:
        subject: the subject that refused the schema.
        rule: the subject's compatibility level, such as "BACKWARD"; None if the registry does not name it.
        reason: the registry's own text.
    """

    def __init__(self, message: str, *, subject: str, rule: str | None, reason: str) -> None:
        """Keep the message, the subject, its rule and the registry's reason."""
        self.subject = subject
        self.rule = rule
        self.reason = reason
        super().__init__(message, retriable=False)


def _describe_size(size: int | None) -> str:
    if size is None:
        return "null"
    return {0: "zero bytes", 1: "1 byte"}.get(size, f"{size} bytes")


def _rebuild_error(kind: type[SchemaError], args: tuple[object, ...]) -> SchemaError:
    error = kind.__new__(kind)
    error.args = args
    return error
