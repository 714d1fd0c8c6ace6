"""A table with one statement of each kind, written once for all shapes, and the rows that no server writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql.interpret import Request
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.server import StatementServer
from sandbox.scylla.base.mutations import Mutation
from sandbox.writing_session import WritingSession
from tests.integration.support.reading import raw_rows
from tests.integration.support.unpublishable import contradiction, log_row

JOB = "output"
KEYSPACE = "output_run"
SHAPES = ("delta", "full", "debezium", "flat")
HOME = f"CREATE TYPE {KEYSPACE}.home (street text, zip int)"
COLUMNS = (
    "customer int, line int, note text, total decimal, tags set<text>, home home, vip boolean static, "
    "PRIMARY KEY (customer, line)"
)
OPTIONS = {"delta": "", "full": ", 'preimage': 'full', 'postimage': true"}
STATEMENTS = (
    "INSERT INTO {} (customer, line, note, total, tags) VALUES (7, 1, 'first', 12.50, {{'a'}})",
    "UPDATE {} SET tags = tags + {{'b'}}, note = null, home = {{zip: 3}} WHERE customer = 7 AND line = 1",
    "UPDATE {} SET vip = true WHERE customer = 7",
    "DELETE FROM {} WHERE customer = 7 AND line = 1",
    "DELETE FROM {} WHERE customer = 7 AND line > 2 AND line <= 5",
    "DELETE FROM {} WHERE customer = 7",
)
OPERATIONS = ["insert", "update", "static_update", "row_delete", "range_delete", "partition_delete"]
DEAD_LETTERS = f"{JOB}.dead-letters"
RETRIED = "delta"
"""The table whose statements all came twice; the job takes the second for what it is."""
SHAPES_WITH_UNKNOWN = ("debezium", "flat")
"""Tables that end with an operation which no server has yet."""
UNKNOWN_OPERATION = 77


@dataclass(frozen=True, slots=True)
class Read:
    """A record as the consumer gets it."""

    partition: int
    key: Any
    value: Any
    headers: dict[str, bytes]
    raw_key: bytes | None
    raw_value: bytes | None


def mutations(server: StatementServer, statement: str, at_us: UnixMicros) -> list[Mutation]:
    parsed: Any = statement_of(statement)
    return [one.mutation for one in server.interpreter.mutations(parsed, Request(at_us, at_us))]


def _int(number: int) -> bytes:
    return number.to_bytes(4, "big")


POISON_LOW = bytes(7) + b"\x09"
KEY = {"customer": _int(7), "line": _int(9)}


def write_oddities(session: WritingSession, stamps: dict[str, list[int]]) -> None:
    """What ScyllaDB never writes into table `delta`, and what today's does not into `debezium` and `flat`."""
    (stream_id,) = {one["cdc$stream_id"] for one in raw_rows(session, KEYSPACE, "delta_scylla_cdc_log")}
    assert stream_id is not None
    time = timeuuid_of(UnixMicros(stamps["delta"][0] + 500_000), POISON_LOW)
    contradiction(session, f"{KEYSPACE}.delta", stream_id, time, KEY, "note")
    for shape in SHAPES_WITH_UNKNOWN:
        cells = {
            "cdc$stream_id": stream_id,
            "cdc$time": timeuuid_of(UnixMicros(stamps[shape][-1] + 500_000), POISON_LOW),
            "cdc$batch_seq_no": bytes(4),
            "cdc$operation": bytes((UNKNOWN_OPERATION,)),
            "cdc$end_of_batch": b"\x01",
            **KEY,
            "note": b"what?",
        }
        log_row(session, f"{KEYSPACE}.{shape}", cells)
