"""Writers from raw CQL cells to Avro bytes for collections, vectors, tuples and user-defined types.

The writer of a collection is a generated loop that contains the lines of its element
(``schemas.compiled.cell_source``), so that a set of text takes no call for each element. The writers decline malformed
cells: lengths and counts must fill the cell exactly, and a count allocates no memory before it is checked.
``schemas.log.cells`` describes the formats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from schemas.avro.varints import long_bytes
from schemas.compiled.cell_source import (
    EMPTY_ARRAY,
    NULL,
    SET_TO_NULL,
    CellWriter,
    Lines,
    ScalarSource,
    decline,
    shared_helpers,
)
from schemas.cql.types import (
    FIXED_WIDTH_BYTES,
    CqlType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    unfrozen,
)
from schemas.errors import UnsupportedTypeError
from schemas.log.cells import vector_width_bytes
from schemas.log.scalar_cells import unsigned_vint
from schemas.options import OutputOptions

UdtChangeWriter: TypeAlias = Callable[[bytes | None, bytes | None], bytes]
"""Value, deleted elements -> Avro bytes of the record of what a change did to each field."""

_NULL_LENGTH: Final = -1
_LENGTH: Final = struct.Struct(">i")
_INDEX_ENTRY: Final = struct.Struct(">ih")
_INDEX_BYTES: Final = 2
_FLOATS: Final[dict[str, str]] = {"double": "d", "float": "f"}
_INDENT: Final = "    "


class CellSource(ScalarSource):
    """Makes the lines for a cell of any type in one local variable. A container takes one call of its writer."""

    def list_(self, cql_type: ListType) -> Lines:
        """Return the lines for a list."""
        return self._call_writer(array_writer(cql_type, self._output, self._prefix))

    def set_(self, cql_type: SetType) -> Lines:
        """Return the lines for a set."""
        return self._call_writer(array_writer(cql_type, self._output, self._prefix))

    def map_(self, cql_type: MapType) -> Lines:
        """Return the lines for a map."""
        return self._call_writer(array_writer(cql_type, self._output, self._prefix))

    def vector(self, cql_type: VectorType) -> Lines:
        """Return the lines for a vector."""
        return self._call_writer(_vector_writer(cql_type, self._output, self._prefix))

    def tuple_(self, cql_type: TupleType) -> Lines:
        """Return the lines for a tuple."""
        return self._call_writer(_record_writer(cql_type.elements, self._output, self._prefix))

    def udt(self, cql_type: UdtType) -> Lines:
        """Return the lines for a user-defined type."""
        return self._call_writer(_record_writer(tuple(one for _, one in cql_type.fields), self._output, self._prefix))

    def _call_writer(self, writer: CellWriter) -> Lines:
        name = f"write_{self._cell}"
        self.helpers[name] = writer
        return [f"{self._cell} = {name}({self._cell})"]


def array_writer(cql_type: CqlType, output: OutputOptions, prefix: bytes = b"") -> CellWriter:
    """Return the writer of a list or a set as an array, or of a map as an array of entries.

    Args:
        cql_type: the collection, frozen or not.
        output: the forms of the values.
        prefix: Avro bytes before the array, such as the branches of unions.

    Raises:
        UnsupportedTypeError: the type is not a collection, or its elements have no Avro form.
    """
    match unfrozen(cql_type):
        case ListType(element) | SetType(element):
            width = _fixed_width(element)
            if width is not None:
                return _fixed_array_writer(element, width, output, prefix)
            parts = {"e": element}
        case MapType(key, value):
            parts = {"k": key, "v": value}
        case _:
            raise UnsupportedTypeError(str(cql_type))
    codes = {variable: _lines_and_helpers(variable, one, output) for variable, one in parts.items()}
    loop: Lines = []
    for variable, (lines, _) in codes.items():
        loop += [
            "(size,) = unpack_length(raw, at)",
            "if size < 0: decline()",
            "at += 4",
            f"{variable} = raw[at:at + size]",
            "at += size",
            *lines,
            f"append({variable})",
        ]
    body = [
        "(count,) = unpack_length(raw, 0)",
        "if count < 0: decline()",
        "parts = [prefix]",
        "append = parts.append",
        "if count: append(long_bytes(count))",
        "at = 4",
        "for _ in range(count):",
        *(_INDENT + line for line in loop),
        # The slice of an element that the cell does not hold in full is short, and then `at` is beyond the end.
        "if at != len(raw): decline()",
        "append(end)",
        "return join(parts)",
    ]
    helpers = {name: helper for _, more in codes.values() for name, helper in more.items()}
    return _compile_writer(body, {**helpers, "prefix": prefix, "unpack_length": _LENGTH.unpack_from})


def _fixed_array_writer(element: CqlType, width: int, output: OutputOptions, prefix: bytes) -> CellWriter:
    """Return the writer of a list or a set whose elements have a known width, and so known places in the cell."""
    lines, helpers = _lines_and_helpers("e", element, output)
    layout = struct.Struct(f">i{width}s")
    body = [
        "(count,) = unpack_length(raw, 0)",
        f"if count < 0 or len(raw) != 4 + {layout.size} * count: decline()",
        "if not count: return prefix + end",
        "parts = [prefix, long_bytes(count)]",
        "append = parts.append",
        "for size, e in elements(raw[4:]):",
        f"{_INDENT}if size != {width}: decline()",
        *(_INDENT + line for line in lines),
        f"{_INDENT}append(e)",
        "append(end)",
        "return join(parts)",
    ]
    more = {"elements": layout.iter_unpack, "prefix": prefix, "unpack_length": _LENGTH.unpack_from}
    return _compile_writer(body, {**helpers, **more})


def _vector_writer(cql_type: VectorType, output: OutputOptions, prefix: bytes) -> CellWriter:
    element, dimension = unfrozen(cql_type.element), cql_type.dimension
    prefix += long_bytes(dimension)
    if isinstance(element, NativeType) and element.name in _FLOATS:
        return _floats_writer(_FLOATS[element.name], dimension, prefix)
    write_element, width = cell_writer(element, output), vector_width_bytes(element)

    def write_fixed(raw: bytes) -> bytes:
        assert width is not None
        if len(raw) != width * dimension:
            decline()
        return b"".join(
            (prefix, *(write_element(raw[at : at + width]) for at in range(0, len(raw), width)), EMPTY_ARRAY)
        )

    def write_varying(raw: bytes) -> bytes:
        parts, at = [prefix], 0
        for _ in range(dimension):
            size, at = unsigned_vint("", raw, at)
            parts.append(write_element(raw[at : at + size]))
            at += size
        if at != len(raw):
            decline()
        parts.append(EMPTY_ARRAY)
        return b"".join(parts)

    return write_varying if width is None else write_fixed


def _floats_writer(layout: str, dimension: int, prefix: bytes) -> CellWriter:
    """Return the writer of the most frequent vectors, those of floats: only the order of their bytes changes."""
    unpack = struct.Struct(f">{dimension}{layout}").unpack
    pack = struct.Struct(f"<{len(prefix)}s{dimension}{layout}{len(EMPTY_ARRAY)}s").pack
    return lambda raw: pack(prefix, *unpack(raw), EMPTY_ARRAY)


def _record_writer(fields: tuple[CqlType, ...], output: OutputOptions, prefix: bytes) -> CellWriter:
    """Return the writer of a record of nullable fields; a cell may lack the last ones, which are null then."""
    writers = [cell_writer(one, output, unions=1) for one in fields]
    unpack_length = _LENGTH.unpack_from

    def write(raw: bytes) -> bytes:
        parts, at, whole = [prefix], 0, len(raw)
        append = parts.append
        for write_field in writers:
            if at == whole:
                append(NULL)
                continue
            (size,) = unpack_length(raw, at)
            at += 4
            if size == _NULL_LENGTH:
                append(NULL)
                continue
            if size < 0:
                decline()
            append(write_field(raw[at : at + size]))
            at += size
        if at != whole:
            decline()
        return b"".join(parts)

    return write


def udt_change_writer(cql_type: UdtType, output: OutputOptions) -> UdtChangeWriter:
    """Return the writer of what a change did to the fields of a non-frozen user-defined type.

    Raises:
        UnsupportedTypeError: a field's type has no Avro form.
    """
    writers = [cell_writer(one, output, unions=2) for _, one in cql_type.fields]
    unpack_length, count = _LENGTH.unpack_from, len(writers)

    def write(value: bytes | None, removed: bytes | None) -> bytes:
        raw = value or b""
        parts, at, whole = [NULL] * count, 0, len(raw)
        for field, write_field in enumerate(writers):
            if at == whole:
                break
            (size,) = unpack_length(raw, at)
            at += 4
            if size == _NULL_LENGTH:
                continue
            if size < 0:
                decline()
            parts[field] = write_field(raw[at : at + size])
            at += size
        if at != whole:
            decline()
        if removed is not None:
            for field in _indices(removed):
                if not 0 <= field < count or parts[field] not in (NULL, SET_TO_NULL):
                    decline()
                parts[field] = SET_TO_NULL
        return b"".join(parts)

    return write


def _indices(raw: bytes) -> list[int]:
    """Return the elements of a set of smallints, which are indices of fields."""
    (count,) = _LENGTH.unpack_from(raw)
    if len(raw) != _LENGTH.size + _INDEX_ENTRY.size * count:
        decline()
    entries = list(_INDEX_ENTRY.iter_unpack(raw[_LENGTH.size :]))
    if any(size != _INDEX_BYTES for size, _ in entries):
        decline()
    return [index for _, index in entries]


def cell_writer(cql_type: CqlType, output: OutputOptions, *, unions: int = 0) -> CellWriter:
    """Return the writer of one cell of any type, for places where a call for each cell does not matter.

    Raises:
        UnsupportedTypeError: the type has no Avro form.
    """
    lines, helpers = _lines_and_helpers("raw", cql_type, output, unions=unions)
    return _compile_writer([*lines, "return raw"], helpers)


def _lines_and_helpers(
    variable: str, cql_type: CqlType, output: OutputOptions, *, unions: int = 0
) -> tuple[Lines, dict[str, object]]:
    code = CellSource(variable, unions, output)
    return code.of(cql_type), code.helpers


def _compile_writer(body: Lines, helpers: dict[str, object]) -> CellWriter:
    """Compile the function ``write(raw)`` from its lines."""
    source = "\n".join(["def write(raw):", *(_INDENT + line for line in body)])
    scope: dict[str, object] = {**shared_helpers(), **helpers, "end": EMPTY_ARRAY}
    exec(source, scope)  # noqa: S102 - the package schemas.compiled makes every word of it
    return cast("CellWriter", scope["write"])


def _fixed_width(element: CqlType) -> int | None:
    element = unfrozen(element)
    return FIXED_WIDTH_BYTES.get(element.name) if isinstance(element, NativeType) else None
