from __future__ import annotations

import pytest

from schemas.avro.codec import compile_reader, compile_writer
from schemas.errors import DecodeError, EncodeError


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "boolean"}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", None),
        ("boolean", 1),
        ({"type": "boolean"}, ""),
        (["null", "boolean"], ("boolean", None)),
        (["null", {"type": "boolean"}], ("boolean", None)),
        (INNER, {"b": None}),
        (["null", INNER], ("Inner", {"b": None})),
        ({"type": "array", "items": "boolean"}, [True, None]),
        ({"type": "map", "values": "boolean"}, {"k": None}),
    ],
)
def test_no_silent_boolean(kind: object, value: object) -> None:
    """Null for a boolean is refused wherever fastavro would write false."""
    with pytest.raises(EncodeError, match="needs a boolean"):
        compile_writer(record(f=kind))({"f": value})


def test_referenced_record_is_guarded() -> None:
    """Booleans in a record that is referenced by name are checked too."""
    write = compile_writer(record(one=INNER, two="Inner"))
    with pytest.raises(EncodeError, match=r"two\.b"):
        write({"one": {"b": True}, "two": {"b": None}})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", True),
        (["null", "boolean"], None),
        (["null", "boolean"], False),
        (["null", "boolean"], ("boolean", True)),
        (["null", "boolean", "string"], ("string", "x")),
        ({"type": "array", "items": "boolean"}, [True, False]),
        ({"type": "array", "items": "string"}, ["x"]),
        ({"type": "map", "values": "boolean"}, {"k": True}),
        ({"type": "map", "values": "int"}, {"k": 1}),
    ],
)
def test_good_values(kind: object, value: object) -> None:
    """Good values are written and read back."""
    schema = record(f=kind)
    body = compile_writer(schema)({"f": value})
    assert compile_reader(schema)(body) == {"f": value[1] if isinstance(value, tuple) else value}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", ()),
        (INNER, 3),
        ({"type": "array", "items": "boolean"}, 3),
        ({"type": "map", "values": "boolean"}, 3),
        ("string", 3),
        ("long", 2**63),
        (["null", "int"], ("text", 1)),
    ],
)
def test_values_that_do_not_fit(kind: object, value: object) -> None:
    """A value that does not fit is an EncodeError, not an error of the library."""
    with pytest.raises(EncodeError):
        compile_writer(record(f=kind))({"f": value})


def test_missing_field() -> None:
    """A field without a default must be given."""
    with pytest.raises(EncodeError):
        compile_writer(record(f="boolean"))({})


def test_left_over_bytes() -> None:
    """Bytes after the record are refused."""
    schema = record(f="int")
    with pytest.raises(DecodeError, match="1 bytes after"):
        compile_reader(schema)(compile_writer(schema)({"f": 1}) + b"\x00")


@pytest.mark.parametrize("body", [b"", b"\x08ab", b"\x02\xff"])
def test_not_a_body(body: bytes) -> None:
    """Bytes that are not a record of the schema are refused."""
    with pytest.raises(DecodeError):
        compile_reader(record(f="string"))(body)


def test_unreadable_evolution() -> None:
    """A reader schema that cannot read the record is a DecodeError."""
    body = compile_writer(record(f="int"))({"f": 1})
    with pytest.raises(DecodeError):
        compile_reader(record(f="int"), record(g="int"))(body)
