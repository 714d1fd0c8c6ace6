"""What the writer does when the server refuses a statement, or does not confirm it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from tests.live.compare import Finding
from tests.live.run import Outcome
from tests.live.server import RefusedError, UnsettledError
from tests.live.statements import Statement
from tests.live.tables import Table, table_of, user_types
from tests.live.writing import Writing
from tests.tools.live.sample import TABLE


class FakeServer:
    """A server whose answers are given."""

    is_real = True
    datacenter = "dc"

    def __init__(self, answers: Iterable[Exception | None] = ()) -> None:
        self._answers = iter(answers)
        self.executed: list[tuple[str, int]] = []

    def execute(self, cql: str, timestamp_us: int) -> None:
        self.executed.append((cql, timestamp_us))
        answer = next(self._answers, None)
        if answer is not None:
            raise answer

    def rows(self, cql: str) -> list[dict[str, Any]]:
        raise AssertionError(cql)

    def close(self) -> None:
        raise AssertionError


WRITE = Statement("insert", "INSERT ... @@1:0@@", ("ks.t",), ("DELETE a", "DELETE b"))


def writing(server: FakeServer, tables: list[Table]) -> Writing:
    return Writing(server, tables, Random(1), 4_000_000, lambda _line: None)


def test_what_was_not_confirmed_is_reset_and_noted() -> None:
    """After a write without an answer its partitions are deleted, as often as it takes, at later times."""
    lost = UnsettledError("timeout")
    server = FakeServer([lost, None, lost, None])
    made = writing(server, [TABLE])
    made.run(WRITE)
    assert [cql for cql, _ in server.executed][1:] == ["DELETE a", "DELETE b", "DELETE b"]
    times = [at for _, at in server.executed]
    assert times == sorted(set(times))
    ((start, end),) = made.unsettled["ks.t"]
    assert start <= times[0] <= times[-1] <= end


def test_a_refusal_is_a_problem_unless_it_may_happen() -> None:
    """A refused statement is counted; it is a problem if no content of the table explains it."""
    server = FakeServer(
        [
            RefusedError("no such column"),
            RefusedError("list index"),
            RefusedError("attempted to get a stream from the past"),
        ]
    )
    made = writing(server, [TABLE])
    for may_be_refused in (False, True, False):
        made.run(Statement("update", "UPDATE", ("ks.t",), (), may_be_refused=may_be_refused))
    assert made.refused == {"update": 3}
    assert made.unexpected_refusals == ["no such column"]


def test_alters_change_the_table() -> None:
    """Columns and fields are added and dropped in the model and on the server alike."""
    table = table_of("ks", "udts", user_types())
    server = FakeServer()
    made = writing(server, [table])
    for _ in range(30):
        made.alter()
    texts = [cql for cql, _ in server.executed]
    assert made.alters == len(texts)
    assert all(any(word in text for text in texts) for word in (" ADD ", " DROP ", "ALTER TYPE"))
    dropped = {text.rsplit('"', 2)[1] for text in texts if " DROP " in text}
    assert table.dropped_us.keys() == dropped == {one.name for one in table.retired}


@pytest.mark.parametrize(
    ("finding", "is_clean"),
    [
        (Finding("ks.t", changes=1, records=1), True),
        (Finding("ks.t", changes=1, records=1, differing_rows=1), False),
        (Finding("ks.t", changes=1, records=1, missing=1), False),
        (Finding("ks.t"), False),
        (None, False),
    ],
)
def test_an_empty_run_is_not_clean(finding: Finding | None, is_clean: bool) -> None:
    """A run is clean if every table had changes and no comparison found a fault."""
    assert Outcome([] if finding is None else [(TABLE, 1, finding)]).is_clean == is_clean
    assert not Outcome([(TABLE, 1, Finding("ks.t", changes=1, records=1))], problems=["the job ended"]).is_clean


def test_what_was_confirmed_too_late_is_reset_too() -> None:
    """A write whose confirmation took longer than the bridge waits may be missing: its partitions are deleted."""
    server = FakeServer()
    made = Writing(server, [TABLE], Random(1), 0, lambda _line: None)
    made.run(WRITE)
    assert [cql for cql, _ in server.executed][1:] == ["DELETE a", "DELETE b"]
    assert len(made.unsettled["ks.t"]) == made.unconfirmed == 1
