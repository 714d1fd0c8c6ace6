"""Hints in error messages about changes that can't be published."""

from __future__ import annotations

import pytest

from bridge.encoding.error_hints import likely_cause
from bridge.encoding.group_encoder import GroupEncoder
from bridge.errors import UnpublishableError
from bridge.model.log_rows import Change, Group, LogLayout
from bridge.model.times import UnixMillis
from schemas.errors import CellError, OperationError, SchemaError
from schemas.options import RecordForm
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import STREAM, TIME, log_columns, row, table


def test_lost_partition_key_names_the_rename() -> None:
    """A row from before a RENAME has no key: the message names record, column, cause and remedy."""
    of = table({"id": "int"}, regular={"v": "int"})
    codec = TableCodec(of, log_columns(of))
    cells = row(of, {"v": bytes(4)})
    encoder = GroupEncoder(codec, LogLayout.of(log_columns(of), ["id"]), (of.keyspace, of.name), RecordForm())
    with pytest.raises(UnpublishableError) as caught:
        list(encoder.encode(Group(STREAM, TIME, (Change(1, cells, last_in_group=True),), [cells]), UnixMillis(0)))
    text = str(caught.value)
    assert f"stream 0x{STREAM.hex()}, 1584969040910883 us, batch_seq_no 0: column 'id' of type int: is null" in text
    assert "ALTER TABLE ... RENAME" in text
    assert "delete the table's progress topic" in text


ONE = {"id": bytes(4)}
VALUE = {"v": bytes(4)}


@pytest.mark.parametrize(
    ("statics", "cells", "operations"),
    [
        ({}, VALUE, (1,)),
        ({"s": "int"}, VALUE, (1,)),
        ({}, VALUE, (2,)),
        ({}, {}, (3,)),
        ({}, {}, (6, 7)),
        ({}, {"b": bytes(4)}, (5, 7)),
    ],
)
def test_lost_clustering_key_names_the_rename(
    statics: dict[str, str], cells: dict[str, bytes], operations: tuple[int, ...]
) -> None:
    """This also holds for a renamed clustering column."""
    of = table({"id": "int"}, {"a": "int", "b": "int"}, {"v": "int"}, statics)
    rows = [row(of, {**ONE, **cells, "cdc$operation": bytes((operation,))}) for operation in operations]
    change = Change(operations[0], rows[0], last_in_group=True, range_end=rows[1] if len(rows) > 1 else None)
    layout = LogLayout.of(log_columns(of), ["id"], ["a", "b"])
    encoder = GroupEncoder(TableCodec(of, log_columns(of)), layout, (of.keyspace, of.name), RecordForm())
    with pytest.raises(UnpublishableError, match=r"batch_seq_no 0: .*ALTER TABLE \.\.\. RENAME"):
        list(encoder.encode(Group(STREAM, TIME, (change,), rows), UnixMillis(0)))


@pytest.mark.parametrize(
    "error",
    [
        OperationError("cdc$operation 4 (partition_delete) with a clustering key"),
        CellError("int", "must be 4 bytes", 1, column="v"),
        CellError("timeuuid", "must be 16 bytes long", None, column="cdc$time"),
        CellError("int", "is null", None),
    ],
)
def test_other_faults_are_not_explained_away(error: SchemaError) -> None:
    """A malformed cell has nothing to do with a rename."""
    assert likely_cause(error) == ""
