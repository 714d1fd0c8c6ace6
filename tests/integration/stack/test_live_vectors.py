"""The check of a real server's log, run on the local stack, where the simulator's own log must pass."""

from __future__ import annotations

import pytest

from sandbox.writing_session import WritingSession
from tests.live.vector_server import Refusal, StackServer
from tests.live.vectors import Outcome, main, run_vectors
from tests.unit.sandbox.scylla.vectors import Vector, load

pytestmark = pytest.mark.integration

KEYSPACE = "vectors_here"
VECTORS = {vector["name"]: vector for vector in load()}
SAME = (
    "batch_collection_delete_is_a_microsecond_later", "compact_storage_insert_is_update", "nested_log_rejected",
    "tuples_are_frozen", "udt_short_tuple_literal",
)  # fmt: skip
NOT_HERE = ("list_delete_by_timeuuid_key", "preimage_list")
"""What the stack's server cannot do."""


def outcomes(server: StackServer, vectors: list[Vector]) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in run_vectors(server, vectors)}


def test_the_local_stack_agrees_with_the_simulator(session: WritingSession) -> None:
    """What cannot be done there is said, and nothing stays behind."""
    found = outcomes(StackServer(session, KEYSPACE), [VECTORS[name] for name in (*SAME, *NOT_HERE)])
    assert {name: outcome.result for name, outcome in found.items()} == {
        **dict.fromkeys(SAME, "same"),
        **dict.fromkeys(NOT_HERE, "not applicable"),
    }, found
    assert found["batch_collection_delete_is_a_microsecond_later"].detail == "4 log rows"
    assert "the local stack cannot write single elements of the list" in found["list_delete_by_timeuuid_key"].detail
    assert not session.rows("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", (KEYSPACE,))


class LyingServer(StackServer):
    """A server that loses a cell of its log."""

    def execute(self, text: str) -> Refusal | None:
        refusal = super().execute(text)
        if text.startswith("UPDATE"):
            for row in self.session.rows(
                f'SELECT "cdc$stream_id" AS s, "cdc$time" AS t FROM {KEYSPACE}.orders_scylla_cdc_log'
            ):
                self.session.execute(
                    f'DELETE content FROM {KEYSPACE}.orders_scylla_cdc_log WHERE "cdc$stream_id" = 0x{row["s"].hex()} '
                    f'AND "cdc$time" = {row["t"]} AND "cdc$batch_seq_no" = 0'
                )
        return refusal


def test_a_difference_is_found(session: WritingSession) -> None:
    """Between the server's log and the simulator's, and between the server's log and what is known."""
    wrong = {**VECTORS["map_add"], "log": [[{"operation": "insert"}]]}
    assert "operation is None" in outcomes(StackServer(session, KEYSPACE), [wrong])["map_add"].detail
    lost = outcomes(LyingServer(session, KEYSPACE), [VECTORS["map_add"]])["map_add"]
    assert lost.result == "differs"
    assert "the server logs" in lost.detail
    assert "content is None" in lost.detail


def test_the_command_line_names_an_unknown_vector(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--only", "nonsense"])
    assert caught.value.code == 2
    assert "there is no vector nonsense" in capsys.readouterr().err
