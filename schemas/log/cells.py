"""Decoders from raw CQL cells of any type (native protocol v4 serialization) to the values that fastavro writes.

The decoders are strict: counts and lengths must fill the cell exactly, otherwise they raise ``CellError``. They check
a count against the cell's size before they allocate memory for it. Formats (native protocol v4, section 6; vectors
as ScyllaDB and Cassandra write them):

- list, set, map: 4 bytes count, then for each element (of a map: key, value) 4 bytes length and that
  many bytes. A negative length means null, and an element cannot be null.
- tuple, user-defined type: for each field 4 bytes length and that many bytes; -1 means null. Values
  written before ALTER TYPE ADD end early: the missing fields are null.
- vector: the elements one after the other, each behind its length as an unsigned vint. Elements of types
  that the servers treat as fixed in width (`vector_width_bytes`) have no length.

The zero-length "empty" value of CQL is accepted in an element or a field only where it is an ordinary value (text,
blob).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from schemas.avro.names import avro_name
from schemas.avro.types import tuple_field, union_branch
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType, unfrozen
from schemas.cql.visitor import TypeVisitor, visit
from schemas.errors import CellError
from schemas.log.scalar_cells import Decoder, scalar_decoder, unsigned_vint
from schemas.options import DEFAULT_OUTPUT, OutputOptions

_INT: Final = struct.Struct(">i")
_NULL_LENGTH: Final = -1

_VECTOR_WIDTHS: Final[dict[str, int]] = {
    "bigint": 8,
    "boolean": 1,
    "double": 8,
    "float": 4,
    "int": 4,
    "timestamp": 8,
    "timeuuid": 16,
    "uuid": 16,
}
"""Types that the servers treat as fixed in width. They do not treat tinyint, smallint, date and time so."""


def decoder(cql_type: CqlType, output: OutputOptions = DEFAULT_OUTPUT, namespace: str | None = None) -> Decoder:
    """Return the function that decodes cells of a type. Call this once for a column, not for each cell.

    Args:
        cql_type: the type, with the fields of its user-defined types.
        output: the forms of the values.
        namespace: an Avro namespace makes the fields of nested records (union branch, value), so that fastavro need
            not try the branches; None makes them plain values.

    Raises:
        UnsupportedTypeError: the type has no Avro form.
    """
    return visit(cql_type, _Decoders(output, namespace))


def empty_is_value(cql_type: CqlType) -> bool:
    """Return whether zero bytes are an ordinary value of the type, and not CQL's special "empty" value.

    They are for text and blob, and for a tuple or a user-defined type, where they mean that all fields are missing.
    """
    cql_type = unfrozen(cql_type)
    if isinstance(cql_type, NativeType):
        return cql_type.empty_is_value
    return isinstance(cql_type, TupleType | UdtType)


def vector_width_bytes(element: CqlType) -> int | None:
    """Return the width in bytes of a vector's elements; None if each element has its length before it."""
    element = unfrozen(element)
    if isinstance(element, NativeType):
        return _VECTOR_WIDTHS.get(element.name)
    if isinstance(element, VectorType):
        width = vector_width_bytes(element.element)
        return None if width is None else width * element.dimension
    return None


class _Decoders(TypeVisitor[Decoder]):
    """Makes the decoder of each kind of type."""

    def __init__(self, output: OutputOptions, namespace: str | None) -> None:
        self._output = output
        self._namespace = namespace

    def _decoder_of(self, cql_type: CqlType) -> Decoder:
        return visit(cql_type, self)

    def native(self, cql_type: NativeType) -> Decoder:
        return scalar_decoder(cql_type.name, self._output)

    def list_(self, cql_type: ListType) -> Decoder:
        return self._array_decoder(cql_type, cql_type.element)

    def set_(self, cql_type: SetType) -> Decoder:
        return self._array_decoder(cql_type, cql_type.element)

    def _array_decoder(self, cql_type: CqlType, element: CqlType) -> Decoder:
        text, decode_element = str(cql_type), self._decoder_of(element)

        def decode(raw: bytes) -> list[object]:
            return [decode_element(one) for one in _elements_of(text, raw, 1)]

        return decode

    def map_(self, cql_type: MapType) -> Decoder:
        text, decode_key, decode_value = str(cql_type), self._decoder_of(cql_type.key), self._decoder_of(cql_type.value)

        def decode(raw: bytes) -> list[dict[str, object]]:
            parts = _elements_of(text, raw, 2)
            return [{"key": decode_key(key), "value": decode_value(next(parts))} for key in parts]

        return decode

    def vector(self, cql_type: VectorType) -> Decoder:
        text, dimension = str(cql_type), cql_type.dimension
        decode_element, width = self._decoder_of(cql_type.element), vector_width_bytes(cql_type.element)

        def decode_fixed(raw: bytes) -> list[object]:
            assert width is not None
            if len(raw) != width * dimension:
                raise CellError(text, f"must be {width * dimension} bytes long", len(raw))
            return [decode_element(raw[at : at + width]) for at in range(0, len(raw), width)]

        def decode_varying(raw: bytes) -> list[object]:
            values, at = [], 0
            for _ in range(dimension):
                size, at = unsigned_vint(text, raw, at)
                if size > len(raw) - at:
                    raise CellError(text, "an element runs past the end", len(raw))
                values.append(decode_element(raw[at : at + size]))
                at += size
            _require_end(text, raw, at)
            return values

        return decode_varying if width is None else decode_fixed

    def tuple_(self, cql_type: TupleType) -> Decoder:
        fields = [(tuple_field(at), one) for at, one in enumerate(cql_type.elements)]
        return self._record_decoder(cql_type, fields)

    def udt(self, cql_type: UdtType) -> Decoder:
        return self._record_decoder(cql_type, [(avro_name(name), one) for name, one in cql_type.fields])

    def _record_decoder(self, cql_type: CqlType, fields: list[tuple[str, CqlType]]) -> Decoder:
        text, space = str(cql_type), self._namespace
        known = [
            (name, self._decoder_of(one), None if space is None else union_branch(one, space, self._output))
            for name, one in fields
        ]

        def decode(raw: bytes) -> dict[str, object]:
            record: dict[str, object] = {}
            cells = field_cells(text, raw, len(known))
            for (name, decode_field, branch), cell in zip(known, cells, strict=True):
                value = None if cell is None else decode_field(cell)
                record[name] = value if cell is None or branch is None else (branch, value)
            return record

        return decode


def field_cells(cql_type: str, raw: bytes, count: int) -> list[bytes | None]:
    """Return the cells of the fields of a tuple or a user-defined type; None for null ones.

    Args:
        cql_type: the type's text, for error messages.
        raw: the value. It may have fewer fields than the type, but not more; missing fields are null.
        count: how many fields the type has.

    Raises:
        CellError: the value is malformed, or it has too many fields.
    """
    cells: list[bytes | None] = []
    at = 0
    while at < len(raw):
        if len(cells) == count:
            raise CellError(cql_type, f"{len(raw) - at} bytes after the last of its {count} fields", len(raw))
        size, at = _read_length(cql_type, raw, at)
        if size == _NULL_LENGTH:
            cells.append(None)
        else:
            cells.append(_read_slice(cql_type, raw, at, size))
            at += size
    cells += [None] * (count - len(cells))
    return cells


def _elements_of(cql_type: str, raw: bytes, parts: int) -> Iterator[bytes]:
    """Yield the cells of a collection's elements, and check that they fill it.

    Args:
        cql_type: the type's text, for error messages.
        raw: the collection.
        parts: how many cells an element has: 2 in a map, else 1.

    Raises:
        CellError: the collection is malformed.
    """
    count, at = _read_length(cql_type, raw, 0)
    # A part takes at least the bytes of its length.
    if not 0 <= count <= len(raw) // (parts * _INT.size):
        raise CellError(cql_type, "its bytes can not hold as many elements as it states", len(raw))
    for _ in range(parts * count):
        size, at = _read_length(cql_type, raw, at)
        yield _read_slice(cql_type, raw, at, size)
        at += size
    _require_end(cql_type, raw, at)


def _read_length(cql_type: str, raw: bytes, at: int) -> tuple[int, int]:
    """Return the count or length at `at`, and the place behind it."""
    end = at + _INT.size
    if end > len(raw):
        raise CellError(cql_type, "the cell ends too early", len(raw))
    return int.from_bytes(raw[at:end], "big", signed=True), end


def _read_slice(cql_type: str, raw: bytes, at: int, size: int) -> bytes:
    if size < 0:
        raise CellError(cql_type, "an element is null, or has a negative length", len(raw))
    if size > len(raw) - at:
        raise CellError(cql_type, "an element runs past the end", len(raw))
    return raw[at : at + size]


def _require_end(cql_type: str, raw: bytes, at: int) -> None:
    if at != len(raw):
        raise CellError(cql_type, f"{len(raw) - at} bytes after the last element", len(raw))
