"""Every known fact about what a statement leaves in the log, by name."""

from __future__ import annotations

import pytest

from bridge.local.simulator.refusals import SchemaRefusal
from tests.unit.bridge.simulator.vectors import Run, Vector, load, problems

NOT_WRITES = {
    "short_stream_id_reads_empty": "it is about what a query returns, and the simulator answers none",
}
"""Facts that are none about the log's rows or about refusals, with the reason."""

VECTORS = {vector["name"]: vector for vector in load()}
LOGGED = [vector for name, vector in VECTORS.items() if "log" in vector and name not in NOT_WRITES]
REFUSED = [vector for vector in VECTORS.values() if "error" in vector]


@pytest.mark.parametrize("vector", LOGGED, ids=lambda vector: vector["name"])
def test_statements_are_logged_as_known(vector: Vector) -> None:
    run = Run(vector)
    for statement in run.statements:
        run.execute(statement)
    assert problems(run, vector["log"], free_order=vector.get("order") == "free") == []


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_statements_are_refused_as_known(vector: Vector) -> None:
    run = Run(vector)
    *before, refused = run.statements
    for statement in before:
        run.execute(statement)
    with pytest.raises(SchemaRefusal) as caught:
        run.execute(refused)
    wanted = vector["error"]
    assert caught.value.code == int(wanted["code"], 16)
    if "message" in wanted:
        assert str(caught.value) == wanted["message"]
    else:
        assert wanted["message_contains"] in str(caught.value)


@pytest.mark.parametrize(("name", "reason"), NOT_WRITES.items())
def test_what_is_left_out_is_listed_with_its_reason(name: str, reason: str) -> None:
    assert name in VECTORS
    assert reason
    pytest.skip(f"{name}: {reason}")


def test_no_fact_is_missing() -> None:
    assert len(VECTORS) == 90
    assert len(LOGGED) + len(REFUSED) + len(NOT_WRITES) == len(VECTORS)
