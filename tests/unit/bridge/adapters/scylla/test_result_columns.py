"""The columns of a result, parsed from the protocol's bytes."""

from __future__ import annotations

import io
import struct

import pytest
from cassandra import DriverException
from cassandra.protocol_features import ProtocolFeatures

from bridge.adapters.scylla import raw_protocol
from bridge.adapters.scylla.raw_protocol import RawResultMessage
from bridge.adapters.scylla.result_columns import KnownMetadata, ResultColumns
from schemas.cql.table_changes import describe
from schemas.cql.types import CqlType, parse

INT, TEXT, LIST, MAP, SET, UDT, TUPLE = 0x09, 0x0D, 0x20, 0x21, 0x22, 0x30, 0x31
GLOBAL_TABLE, MORE_PAGES, NO_METADATA, METADATA_ID = 1, 2, 4, 8
FEATURES = ProtocolFeatures(use_metadata_id=True)


def short(number: int) -> bytes:
    return struct.pack(">H", number)


def string(text: str) -> bytes:
    return short(len(text.encode())) + text.encode()


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def cell(value: bytes | None) -> bytes:
    return number(-1) if value is None else number(len(value)) + value


def udt(**fields: bytes) -> bytes:
    parts = [string(name) + kind for name, kind in fields.items()]
    return short(UDT) + string("ks") + string("u") + short(len(fields)) + b"".join(parts)


def result(
    columns: dict[str, bytes], *rows: tuple[bytes | None, ...], flags: int = 0, state: bytes = b"", id_: bytes = b""
) -> bytes:
    body = number(2) + number(flags | GLOBAL_TABLE) + number(len(columns))
    if flags & MORE_PAGES:
        body += cell(state)
    if not flags & NO_METADATA:
        if flags & METADATA_ID:
            body += short(len(id_)) + id_
        body += string("ks") + string("t") + b"".join(string(name) + kind for name, kind in columns.items())
    return body + number(len(rows)) + b"".join(cell(value) for row in rows for value in row)


def receive(body: bytes, stale: object = None) -> RawResultMessage:
    return RawResultMessage.recv_body(io.BytesIO(body), 4, FEATURES, {}, stale, None)


def types_of(body: bytes) -> tuple[CqlType, ...]:
    types: tuple[CqlType, ...] = receive(body).parsed_rows.columns.types
    return types


def test_each_page_has_its_own_columns() -> None:
    """The same names with another type are other columns, with any content of the cache."""
    first = receive(result({"a": short(INT), "b": short(TEXT)}, (b"\0\0\0\1", b"x"), (None, b"")))
    assert list(first.parsed_rows) == [(b"\0\0\0\1", b"x"), (None, b"")]
    again = receive(result({"a": short(INT), "b": short(TEXT)}, (None, None)))
    assert again.parsed_rows.columns.types is first.parsed_rows.columns.types
    assert again.column_names == ("a", "b")
    other = receive(result({"a": short(TEXT), "b": short(TEXT)}, (b"1", b"x")), first.column_metadata)
    assert other.parsed_rows.columns.types == (parse("text"), parse("text"))
    fewer = receive(result({"b": short(TEXT)}, (b"x",)))
    assert list(fewer.parsed_rows) == [(b"x",)]


def test_metadata_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page of known columns costs a comparison, and adds nothing to the cache."""
    known = KnownMetadata()
    monkeypatch.setattr(raw_protocol, "known_metadata", known)
    pages = [
        result({"a": short(INT), "b": short(TEXT)}, (b"\0\0\0\1", b"x")),
        result({"a": short(TEXT), "b": short(TEXT)}, (b"1", b"x")),
        result({"a": short(INT)}, (b"\0\0\0\2",)),
        result({"b": short(INT)}),
    ]
    first = [receive(page) for page in pages]
    with monkeypatch.context() as patch:
        patch.setattr(RawResultMessage, "recv_results_metadata", None)
        for _ in range(3):
            for page, before in zip(pages, first, strict=True):
                again = receive(page)
                assert again.parsed_rows.columns is before.parsed_rows.columns
                assert list(again.parsed_rows) == list(before.parsed_rows)
    # New columns are parsed, and the other ones stay in the cache.
    altered = receive(result({"a": short(INT), "c": short(TEXT)}))
    assert altered.column_names == ("a", "c")
    assert receive(pages[0]).parsed_rows.columns is first[0].parsed_rows.columns


def test_only_the_latest_metadata_is_kept() -> None:
    """A limited number for each number of columns; equal beginnings do not match."""
    known = KnownMetadata(size=2)
    columns = {raw: ResultColumns((raw.decode(),), (), ()) for raw in (b"ab", b"ac", b"bc")}
    for raw, of in columns.items():
        assert known.find(1, 1, b"-" + raw, 1) is None
        known.add(1, 1, raw, of)
        assert known.find(1, 1, b"-" + raw + b"rows", 1) == (of, 3)
    assert known.find(1, 1, b"-ab", 1) is None
    assert known.find(1, 1, b"-ac", 1) == (columns[b"ac"], 3)
    for flags, count, body, at in (
        (1, 1, b"-a", 1),
        (1, 1, b"-ac", 0),
        (1, 1, b"-ad", 1),
        (0, 1, b"ac", 0),
        (1, 2, b"ac", 0),
    ):
        assert known.find(flags, count, body, at) is None


def test_paging_state_is_kept_and_metadata_id_dropped() -> None:
    """With known and unknown columns; with an id the driver would ask to omit the metadata."""
    columns = {"paged": short(INT)}
    for state in (b"", b"some state", b"another"):
        for flags, id_ in ((MORE_PAGES, b""), (MORE_PAGES | METADATA_ID, b"sixteen bytes id")):
            message = receive(result(columns, (b"\0\0\0\2",), flags=flags, state=state, id_=id_))
            assert message.paging_state == state
            assert list(message.parsed_rows) == [(b"\0\0\0\2",)]
            assert getattr(message, "result_metadata_id", None) is None


def test_page_without_columns_is_refused() -> None:
    """It is not decoded with the columns of the prepared statement."""
    stale = [("ks", "t", "a", object())]
    with pytest.raises(DriverException, match="left a result's columns out"):
        receive(result({"a": b""}, (b"\0\0\0\1",), flags=NO_METADATA), stale)


def test_prepared_statement_keeps_no_metadata_id() -> None:
    """Without an id no EXECUTE asks for pages without metadata."""
    bound = number(GLOBAL_TABLE) + number(0) + number(0) + string("ks") + string("t")
    metadata = number(GLOBAL_TABLE) + number(1) + string("ks") + string("t") + string("a") + short(INT)
    body = number(4) + string("query id") + string("metadata id") + bound + metadata
    message = receive(body)
    assert message.query_id == b"query id"
    assert message.result_metadata_id is None
    assert [column[2] for column in message.column_metadata] == ["a"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (short(INT), "int"),
        (short(LIST) + short(INT), "list<int>"),
        (short(SET) + short(TEXT), "set<text>"),
        (short(MAP) + short(TEXT) + short(SET) + short(INT), "map<text, set<int>>"),
        (short(TUPLE) + short(2) + short(INT) + short(TEXT), "tuple<int, text>"),
        (udt(a=short(INT)), "u(a int)"),
        (udt(a=short(INT), b=short(LIST) + short(TEXT)), "u(a int, b list<text>)"),
        (short(0) + string("org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType, 3)"),
         "vector<float, 3>"),
    ],
)  # fmt: skip
def test_types_are_cql_types(kind: bytes, text: str) -> None:
    """Every kind of type; user-defined types with their fields, because ALTER TYPE changes them."""
    (found,) = types_of(result({"c": kind}))
    assert describe(found) == text
