"""Python source that turns a raw CQL cell into Avro bytes: the innermost part of a table's encoder.

Each native type has a few lines that work on one local variable. Before them it holds the cell's bytes, after them the
Avro bytes. ``schemas.compiled.row_encoder`` joins the lines of a table's columns in one function, which saves a call
for each cell. ``schemas.compiled.container_source`` puts them into loops over the elements of collections.

The lines handle well-formed cells only. For any other cell (a wrong length, invalid UTF-8, CQL's "empty") they raise
one of `DECLINED`, and ``schemas.compiled.reference_encoder`` encodes the row or raises an error with a message. So this
code has to agree with the reference on the bytes of good cells only.

No text from outside enters the source: this package makes all names of variables and helpers.
"""

from __future__ import annotations

import struct
from binascii import hexlify
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NoReturn, TypeAlias

from schemas.avro.codec import compile_writer
from schemas.avro.types import AvroTypes
from schemas.avro.varints import TABLE_BITS, TABLE_SIZE, long_bytes, varint_tables
from schemas.cql.types import CqlType, NativeType
from schemas.cql.visitor import TypeVisitor, visit
from schemas.errors import CellError, EncodeError
from schemas.log.scalar_cells import DATE_OF_EPOCH, SCALE_BYTES, scalar_decoder
from schemas.options import DEFAULT_OUTPUT, OutputOptions

Lines: TypeAlias = list[str]
CellWriter: TypeAlias = Callable[[bytes], bytes]
"""One cell's bytes, neither null nor "empty" -> Avro bytes."""

SOME: Final = b"\x02"
"""The bytes that select the value in a union of null and the value."""

NULL: Final = b"\x00"
"""The branch of null in a union of null and the value."""

SET_TO_NULL: Final = SOME + NULL
"""The change of a column with one cell that was set to null."""

EMPTY_ARRAY: Final = b"\x00"
"""An Avro array without elements; the same byte ends any other array."""

_CACHED_ADDRESSES: Final = 4096
_NO_SCALE: Final = b"\x00"
_UUID_CHARACTERS: Final = 36
_DASHED_UUID: Final = "4sx24sx4sx4s"
"""Format that takes a uuid's text out of hex digits with a dash after every second byte: it skips surplus dashes."""

_INT_BYTES: Final = 4
_MASK: Final = TABLE_SIZE - 1
_INTEGERS: Final[dict[str, str]] = {
    "bigint": ">q",
    "counter": ">q",
    "date": ">I",
    "int": ">i",
    "smallint": ">h",
    "time": ">q",
    "timestamp": ">q",
    "tinyint": ">b",
}
_SCALE: Final = struct.Struct(">i")
_FLOATS: Final[dict[str, str]] = {"double": "d", "float": "f"}


class DeclinedError(Exception):
    """The compiled code cannot encode this row; the reference encoder may."""


DECLINED: Final = (
    DeclinedError,
    CellError,
    EncodeError,
    struct.error,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
)
"""The errors that compiled code raises for a cell that it cannot encode.

An IndexError would be a bug, because the code does not look up numbers beyond the tables of ``schemas.avro.varints``.
It is in this list so that such a bug makes a row slower instead of stopping its lane.
"""


def decline() -> NoReturn:
    """Raise DeclinedError; a function, because generated lines call it within expressions."""
    raise DeclinedError


def shared_helpers() -> dict[str, object]:
    """Return the helpers that the lines of any cell may use, as globals for the function around them."""
    tables = varint_tables()
    return {
        "decline": decline,
        "head_0": tables.head,
        "hexlify": hexlify,
        "join": b"".join,
        "lengths_0": tables.lengths,
        "long_bytes": long_bytes,
        "sized_0": _sized_writer(b""),
        "whole_0": tables.whole,
    }


class ScalarSource(TypeVisitor[Lines]):
    """Makes the lines for a scalar in one local variable.

    Attributes:
        helpers: name -> further helpers that the lines use. A name means the same for every cell, so that the globals
            of a function can have the helpers of all its cells together.
    """

    def __init__(
        self,
        variable: str,
        unions: int,
        output: OutputOptions = DEFAULT_OUTPUT,
        *,
        is_number: bool = False,
        size: str | None = None,
    ) -> None:
        """Take what the lines depend on.

        Args:
            variable: the name of the local variable.
            unions: how many unions of null and the value are around the value.
            output: the forms of the values.
            is_number: whether the variable already holds the number that `number_format` reads from the cell.
            size: the name of a variable that holds the cell's width; None if there is none.
        """
        self.helpers: dict[str, object] = {}
        self._cell = variable
        self._unions = unions
        self._output = output
        self._is_number = is_number
        self._size = size or f"len({variable})"
        self._prefix = SOME * unions
        self._tables = varint_tables(self._prefix)

    def of(self, cql_type: CqlType) -> Lines:
        """Return the lines for a type.

        Raises:
            UnsupportedTypeError: the type has no Avro form.
        """
        return visit(cql_type, self)

    def native(self, cql_type: NativeType) -> Lines:
        """Return the lines for a scalar."""
        cell, name = self._cell, cql_type.name
        if _has_other_form(name, self._output):
            return self._decoding_lines(cql_type)
        if name in _INTEGERS:
            return self._integer_lines(name)
        if name in _FLOATS:
            return self._float_lines(name)
        match name:
            case "text" | "varchar":
                return [f"if not {cell}.isascii(): {cell}.decode()", *self._string_lines()]
            case "ascii":
                return [f"if not {cell}.isascii(): decline()", *self._string_lines()]
            case "blob":
                return self._string_lines()
            case "boolean":
                return [f"{cell} = {self._add_helper('boolean', _boolean_table(self._prefix))}[{cell}]"]
            case "uuid" | "timeuuid":
                return self._uuid_lines()
            case "decimal":
                return self._decimal_lines()
            case "varint":
                write = self._add_helper("varint", _sized_writer(self._prefix + _NO_SCALE))
                return [f"if not {cell}: decline()", f"{cell} = {write}({cell})"]
            case "inet":
                return self._inet_lines(cql_type)
            case _:
                return self._decoding_lines(cql_type)

    def _add_helper(self, name: str, helper: object) -> str:
        """Add a helper that depends on the prefix, and return its name, which differs for each prefix."""
        name = f"{name}_{self._unions}"
        self.helpers[name] = helper
        return name

    def _integer_lines(self, cql_type: str) -> Lines:
        cell, layout = self._cell, struct.Struct(_INTEGERS[cql_type])
        read = (
            [] if self._is_number else [f"({cell},) = {self._add_helper(f'unpack_{cql_type}', layout.unpack)}({cell})"]
        )
        signed = [f"{cell} -= {DATE_OF_EPOCH}"] if cql_type == "date" else []
        zigzag = f"{cell} = {cell} << 1 if {cell} >= 0 else ~({cell} << 1)"
        return [*read, *signed, zigzag, f"{cell} = {self._varint_expression(layout.size)}"]

    def _varint_expression(self, size_bytes: int) -> str:
        """Return an expression for the Avro bytes of a zigzag number in the variable: tables give two bytes at a time.

        A timestamp of today takes 6 bytes, an int at most 5, a bigint at most 10.
        """
        cell = self._cell
        whole, head = self._add_helper("whole", self._tables.whole), self._add_helper("head", self._tables.head)

        def sum_of(parts: int) -> str:
            if parts == 1:
                return f"{whole}[{cell}]"
            middle = (f"head_0[{cell} >> {TABLE_BITS * part} & {_MASK}]" for part in range(1, parts - 1))
            last = f"whole_0[{cell} >> {TABLE_BITS * (parts - 1)}]"
            return " + ".join((f"{head}[{cell} & {_MASK}]", *middle, last))

        def below(parts: int) -> str:
            return f"{cell} < {1 << TABLE_BITS * parts}"

        short = f"{sum_of(1)} if {below(1)} else {sum_of(2)}"
        if size_bytes < _INT_BYTES:
            return short
        short = f"{short} if {below(2)} else {sum_of(3)}"
        if size_bytes == _INT_BYTES:
            return short
        return f"({short}) if {below(3)} else {sum_of(4)} if {below(4)} else {sum_of(5)}"

    def _float_lines(self, cql_type: str) -> Lines:
        cell, layout = self._cell, _FLOATS[cql_type]
        number = cell
        if not self._is_number:
            number = f"{self._add_helper(f'unpack_{cql_type}', struct.Struct(f'>{layout}').unpack)}({cell})[0]"
        pack = self._add_helper(f"pack_{cql_type}", struct.Struct(f"<{self._unions}s{layout}").pack)
        return [f"{cell} = {pack}({self._prefix!r}, {number})"]

    def _string_lines(self) -> Lines:
        cell, size, known = self._cell, self._size, self._tables.lengths
        lengths, sized = self._add_helper("lengths", known), self._add_helper("sized", _sized_writer(self._prefix))
        return [f"{cell} = {lengths}[{size}] + {cell} if {size} < {len(known)} else {sized}({cell})"]

    def _uuid_lines(self) -> Lines:
        cell, parts = self._cell, self._add_helper("uuid_parts", struct.Struct(_DASHED_UUID).unpack)
        prefix = self._prefix + long_bytes(_UUID_CHARACTERS)
        return [f"{cell} = join(({prefix!r}, *{parts}(hexlify({cell}, b'-', 2))))"]

    def _decimal_lines(self) -> Lines:
        cell, known = self._cell, len(self._tables.lengths)
        scales, unpack = (
            self._add_helper("lengths", self._tables.lengths),
            self._add_helper("unpack_scale", _SCALE.unpack_from),
        )
        size = self._size
        usual = f"{scales}[scale] + lengths_0[{size} - {SCALE_BYTES}] + {cell}[{SCALE_BYTES}:]"
        is_usual = f"0 <= scale < {known} and {size} < {known + SCALE_BYTES}"
        other = f"{self._prefix!r} + long_bytes(scale) + sized_0({cell}[{SCALE_BYTES}:])"
        return [
            f"if {size} <= {SCALE_BYTES}: decline()",
            f"(scale,) = {unpack}({cell})",
            f"{cell} = {usual} if {is_usual} else {other}",
        ]

    def _decoding_lines(self, cql_type: NativeType) -> Lines:
        """Return lines for types that are too rare for their own code: decode the cell, and let fastavro write it."""
        write = self._add_helper(f"write_{self._cell}", _decoding_writer(cql_type, self._prefix, self._output))
        return [f"{self._cell} = {write}({self._cell})"]

    def _inet_lines(self, cql_type: NativeType) -> Lines:
        cell, sized = self._cell, self._add_helper("sized", _sized_writer(self._prefix))
        # The rules for the text of an IPv6 address are slow, so the results are cached.
        long_form = self._add_helper(
            "inet", lru_cache(maxsize=_CACHED_ADDRESSES)(_decoding_writer(cql_type, self._prefix, self._output))
        )
        short_form = f"{sized}(b'%d.%d.%d.%d' % (*{cell},))"
        return [f"{cell} = {short_form} if {self._size} == 4 else {long_form}({cell})"]


def number_format(cql_type: CqlType, output: OutputOptions) -> str | None:
    """Return the `struct` format of a type whose lines work on the cell's number; None for other types."""
    if not isinstance(cql_type, NativeType) or _has_other_form(cql_type.name, output):
        return None
    name = cql_type.name
    return _FLOATS.get(name) or _INTEGERS.get(name, "").removeprefix(">") or None


def _has_other_form(cql_type: str, output: OutputOptions) -> bool:
    """Return whether the options select another form of a type than the default."""
    usual = DEFAULT_OUTPUT
    match cql_type:
        case "decimal" | "varint":
            return output.decimals != usual.decimals
        case "timestamp":
            return output.timestamps != usual.timestamps
        case "time":
            return output.times != usual.times
    return False


def _boolean_table(prefix: bytes) -> dict[bytes, bytes]:
    """Return cell -> Avro bytes of a boolean, for all cells of one byte: every byte but zero is true."""
    return {bytes((one,)): prefix + bytes((one != 0,)) for one in range(256)}


def _sized_writer(prefix: bytes) -> CellWriter:
    """Return the writer of Avro's bytes and string: the length, then the cell unchanged."""
    lengths = varint_tables(prefix).lengths
    known = len(lengths)

    def write(raw: bytes) -> bytes:
        size = len(raw)
        return (lengths[size] if size < known else prefix + long_bytes(size)) + raw

    return write


def _decoding_writer(cql_type: NativeType, prefix: bytes, output: OutputOptions) -> CellWriter:
    """Return a writer for any type: it decodes the cell, and fastavro writes the value."""
    decode = scalar_decoder(cql_type.name, output)
    # Our writers take records only, and a record of one field has the same bytes as the field.
    field = {"name": "value", "type": AvroTypes(output).of(cql_type)}
    write_record = compile_writer({"type": "record", "name": "Cell", "fields": [field]})

    def write(raw: bytes) -> bytes:
        return prefix + write_record({"value": decode(raw)})

    return write
