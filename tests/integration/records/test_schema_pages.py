"""Pages of a log whose table and types are altered between two of them."""

from __future__ import annotations

import pytest

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros
from bridge.reading.table_capture import CapturedTable, UnsettledSchemaError, capture
from sandbox.scylla.log.log_table import CdcOptions, log_ddl_of
from sandbox.scylla.tables import SimulatedTable, create_keyspace
from sandbox.writing_session import WritingSession
from schemas.cql.table import LOG_TABLE_SUFFIX
from schemas.cql.table_changes import changes_between
from tests.integration.records.test_schema_changes import KEYSPACE, table

pytestmark = pytest.mark.integration


def _create_typed(session: WritingSession, name: str) -> None:
    """A table with a column of each kind of type, and its log."""
    SimulatedTable(table(name, v="int")).drop(session)
    create_keyspace(session, KEYSPACE)
    session.execute(f"DROP TYPE IF EXISTS {KEYSPACE}.point")
    session.execute(f"CREATE TYPE {KEYSPACE}.point (x int)")
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{name} (pk int PRIMARY KEY, l list<text>, m map<text, frozen<set<int>>>, "
        "p frozen<point>, t tuple<int, text>, d duration, w vector<float, 3>, v varchar) WITH cdc = {'enabled': true}"
    )
    columns = {
        "pk": "int",
        "l": "frozen<map<timeuuid, text>>",
        "m": "frozen<map<text, frozen<set<int>>>>",
        "p": "frozen<point>",
        "t": "tuple<int, text>",
        "d": "duration",
        "w": "vector<float, 3>",
        "v": "text",
        "cdc$operation": "tinyint",
        "cdc$ttl": "bigint",
        "cdc$end_of_batch": "boolean",
        "cdc$deleted_elements_l": "frozen<set<timeuuid>>",
        "cdc$deleted_elements_m": "frozen<set<text>>",
        **{f"cdc$deleted_{column}": "boolean" for column in "lmptdwv"},
    }
    session.execute(log_ddl_of(KEYSPACE, name, sorted(columns.items()), CdcOptions()))


def test_pages_follow_alter_type_and_their_own_columns(session: WritingSession) -> None:
    """A reader that was prepared before an ALTER gets pages that name their columns, and a new one fits the table."""
    name = "typed"
    _create_typed(session, name)
    log = ChangeLog(session)
    stream = StreamId(bytes(16))
    window = Window(UnixMicros(0), UnixMicros(1))

    def page(captured: CapturedTable) -> Page:
        return captured.reader.page(stream, window, page_rows=10).result(10)

    first = capture(log, KEYSPACE, name)
    assert (page(first).columns, page(first).types) == (first.layout.columns, first.layout.types)
    session.execute(f"ALTER TYPE {KEYSPACE}.point ADD y text")
    assert page(first).types != first.layout.types
    second = capture(log, KEYSPACE, name)
    assert page(second).types == second.layout.types == page(first).types
    assert changes_between(first.schema, second.schema) == [
        "column p was frozen<point(x int)> and is frozen<point(x int, y text)>"
    ]
    for suffix, clause in (("", "v"), (LOG_TABLE_SUFFIX, 'v, "cdc$deleted_v"')):
        session.execute(f"ALTER TABLE {KEYSPACE}.{name}{suffix} DROP ({clause})")
    session.execute(f"ALTER TABLE {KEYSPACE}.{name} ADD v blob")
    with pytest.raises(UnsettledSchemaError, match="columns missing"):
        capture(log, KEYSPACE, name, within_s=0)
    session.execute(f'ALTER TABLE {KEYSPACE}.{name}{LOG_TABLE_SUFFIX} ADD (v blob, "cdc$deleted_v" boolean)')
    again = page(second)
    assert again.columns == second.layout.columns
    assert again.types != second.layout.types, "the same names, but v is a blob now"
    assert page(capture(log, KEYSPACE, name)).types == again.types
