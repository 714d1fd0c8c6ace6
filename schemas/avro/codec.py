"""Avro bodies by way of fastavro: a schema is parsed once, then used for every record.

The only module that imports fastavro. It knows no tables and no framing.

What fastavro does not check, and what is done about it:
- A null (or anything else) for a boolean is written as false or true without a word, where
  no union has it checked. Such places are found when the schema is compiled and looked at
  before each record is written.
- A value of an Avro ``int`` beyond 32 bits is written as a long: callers keep the range (our
  ints come out of cells of at most 4 bytes).
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
"""Looks at one value, given its path in the record; raises EncodeError."""

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
    """Writes the unframed body of one schema. Holds no state between calls: threads may share it."""

    __slots__ = ("_guard", "_parsed")

    def __init__(self, avro_schema: Mapping[str, object]) -> None:
        """Parse the schema; see `compile_writer`."""
        names: NamedSchemas = {}
        self._parsed: Schema = parse_schema(cast("Schema", dict(avro_schema)), names)
        self._guard = _guard(self._parsed, names)

    def __call__(self, value: object) -> bytes:
        """Return the body of `value`.

        In a union a value may be given as (branch name, value), which saves fastavro from
        trying the branches.

        Raises:
            EncodeError: the value does not fit the schema.
        """
        if self._guard is not None:
            self._guard(value, "")
        body = io.BytesIO()
        try:
            schemaless_writer(body, self._parsed, value)
        except _WRITE_FAILURES as error:
            raise EncodeError(f"value does not fit its Avro schema: {error}") from error
        return body.getvalue()


def compile_writer(avro_schema: Mapping[str, object]) -> Writer:
    """Return a writer for a record schema."""
    return Writer(avro_schema)


class Reader:
    """Reads unframed bodies of one schema, for people and tests."""

    __slots__ = ("_reader_schema", "_writer_schema")

    def __init__(self, writer_schema: Mapping[str, object], reader_schema: Mapping[str, object] | None = None) -> None:
        """Parse the schemas; see `compile_reader`."""
        self._writer_schema: Schema = parse_schema(cast("Schema", dict(writer_schema)))
        self._reader_schema: Schema | None = None
        if reader_schema is not None:
            self._reader_schema = parse_schema(cast("Schema", dict(reader_schema)))

    def __call__(self, body: bytes) -> dict[str, object]:
        """Return the record in `body`.

        Raises:
            DecodeError: not a body of the schema, or bytes are left over.
        """
        stream = io.BytesIO(body)
        try:
            value = schemaless_reader(stream, self._writer_schema, self._reader_schema)
        except _READ_FAILURES as error:
            raise DecodeError(f"not a body of its Avro schema: {error!r}") from error
        if stream.tell() != len(body):
            raise DecodeError(f"{len(body) - stream.tell()} bytes after the end of the record")
        return cast("dict[str, object]", value)


def compile_reader(writer_schema: Mapping[str, object], reader_schema: Mapping[str, object] | None = None) -> Reader:
    """Return a reader of what was written with `writer_schema`, seen through `reader_schema` if given."""
    return Reader(writer_schema, reader_schema)


def _guard(schema: Schema, names: NamedSchemas) -> _Guard | None:
    """Return the check for the booleans below `schema`, None where there are none.

    Recursive types are not followed: this project's schemas have none.
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
                # A missing field is fastavro's to default or to refuse.
                if name in value:
                    guard(value[name], f"{path}.{name}" if path else str(name))

    return check


def _union_guard(branches: list[Schema], names: NamedSchemas) -> _Guard | None:
    guards = {_branch_name(branch): guard for branch in branches if (guard := _guard(branch, names)) is not None}
    if not guards:
        return None

    def check(value: object, path: str) -> None:
        # Only a branch chosen by name is written unchecked; fastavro validates the rest.
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
            for key, one in value.items():
                item(one, f"{path}[{key!r}]")

    return check
