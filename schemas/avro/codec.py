"""Writers and readers of Avro bodies with fastavro. A schema is parsed once and used for every record.

This is the only module that imports fastavro. Two things that fastavro does not check:

- For a boolean outside of a union it writes false or true for any value, also for null. `Writer` finds the booleans of
  a schema once and checks their values before it writes a record.
- For an Avro ``int`` beyond 32 bits it writes a long. Callers keep the range: our ints come from cells of at most
  4 bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.types import NamedSchemas, Schema

from schemas.errors import DecodeError, EncodeError

_Guard: TypeAlias = Callable[[object, str], None]
"""Checks one value, given its path in the record; raises EncodeError."""

_WRITE_FAILURES: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
_READ_FAILURES: Final = (
    EOFError,
    IndexError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    SchemaResolutionError,
)


class Writer:
    """Writes the unframed bodies of one schema. Threads may share it, because it has no state between calls."""

    __slots__ = ("_guard", "_parsed")

    def __init__(self, avro_schema: Mapping[str, object]) -> None:
        """Parse the schema."""
        names: NamedSchemas = {}
        self._parsed: Schema = parse_schema(cast("Schema", dict(avro_schema)), names)
        self._guard = _guard(self._parsed, names)

    def __call__(self, value: object) -> bytes:
        """Return the Avro body of a value.

        In a union a value may be (branch name, value), so that fastavro need not try the branches.

        Raises:
            EncodeError: the value does not fit the schema.
        """
        if self._guard is not None:
            self._guard(value, "")
        body = io.BytesIO()
        try:
            schemaless_writer(body, self._parsed, value)
        except _WRITE_FAILURES as error:
            failure = type(error).__name__
        else:
            return body.getvalue()
        # Outside of the handler: fastavro's error holds the value, and would be this error's context.
        raise EncodeError(f"value does not fit its Avro schema ({failure})")


def compile_writer(avro_schema: Mapping[str, object]) -> Writer:
    """Return a writer for a record schema."""
    return Writer(avro_schema)


class Reader:
    """Reads unframed bodies of one schema."""

    __slots__ = ("_reader_schema", "_writer_schema")

    def __init__(self, writer_schema: Mapping[str, object], reader_schema: Mapping[str, object] | None = None) -> None:
        """Parse the schemas.

        Args:
            writer_schema: the schema of the bodies.
            reader_schema: the schema of the records to return; None for the writer's.
        """
        self._writer_schema: Schema = parse_schema(cast("Schema", dict(writer_schema)))
        self._reader_schema: Schema | None = None
        if reader_schema is not None:
            self._reader_schema = parse_schema(cast("Schema", dict(reader_schema)))

    def __call__(self, body: bytes) -> dict[str, object]:
        """Return the record in an Avro body.

        Raises:
            DecodeError: the bytes are not a record of the schema, or bytes follow it.
        """
        stream = io.BytesIO(body)
        try:
            value = schemaless_reader(stream, self._writer_schema, self._reader_schema)
        except _READ_FAILURES as error:
            failure = type(error).__name__
        else:
            if stream.tell() != len(body):
                raise DecodeError(f"{len(body) - stream.tell()} bytes after the end of the record")
            return cast("dict[str, object]", value)
        # Outside of the handler: an error of fastavro may hold values, and would be this error's context.
        raise DecodeError(f"not a body of its Avro schema ({failure})")


def compile_reader(writer_schema: Mapping[str, object], reader_schema: Mapping[str, object] | None = None) -> Reader:
    """Return a reader of bodies of `writer_schema`, whose records have the form of `reader_schema` if it is given."""
    return Reader(writer_schema, reader_schema)


def _guard(schema: Schema, names: NamedSchemas) -> _Guard | None:
    """Return the check for the booleans inside a schema; None if it has none.

    Recursive types are not supported, because our schemas have none.
    """
    if isinstance(schema, list):
        return _union_guard(schema, names)
    if isinstance(schema, str):
        if schema == "boolean":
            return _require_boolean
        return _guard(names[schema], names) if schema in names else None
    match schema["type"]:
        case "boolean":
            return _require_boolean
        case "record":
            return _record_guard(schema["fields"], names)
        case "array":
            return _array_guard(_guard(schema["items"], names))
        case "map":
            return _map_guard(_guard(schema["values"], names))
        case _:
            return None


def _require_boolean(value: object, path: str) -> None:
    if not isinstance(value, bool):
        raise EncodeError(f"field {path or '(root)'} needs a boolean, not {type(value).__name__}")


def _record_guard(fields: list[dict[str, Schema]], names: NamedSchemas) -> _Guard | None:
    checks = [(field["name"], guard) for field in fields if (guard := _guard(field["type"], names)) is not None]
    if not checks:
        return None

    def check(value: object, path: str) -> None:
        if isinstance(value, Mapping):
            for name, guard in checks:
                # For a missing field fastavro writes the default, or raises.
                if name in value:
                    guard(value[name], f"{path}.{name}" if path else str(name))

    return check


def _union_guard(branches: list[Schema], names: NamedSchemas) -> _Guard | None:
    guards = {_branch_name(branch): guard for branch in branches if (guard := _guard(branch, names)) is not None}
    if not guards:
        return None

    def check(value: object, path: str) -> None:
        # fastavro validates a value unless its branch is given by name.
        if isinstance(value, tuple):
            guard = guards.get(value[0])
            if guard is not None:
                guard(value[1], path)

    return check


def _branch_name(branch: Schema) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)


def _array_guard(item: _Guard | None) -> _Guard | None:
    if item is None:
        return None

    def check(value: object, path: str) -> None:
        if isinstance(value, list | tuple):
            for at, one in enumerate(value):
                item(one, f"{path}[{at}]")

    return check


def _map_guard(item: _Guard | None) -> _Guard | None:
    if item is None:
        return None

    def check(value: object, path: str) -> None:
        if isinstance(value, Mapping):
            for one in value.values():
                item(one, f"{path}[]")

    return check
