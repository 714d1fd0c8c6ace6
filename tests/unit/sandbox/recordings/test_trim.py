"""Recordings cut down: what a scenario's file says of statements whose facts only the log shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql.catalog import Catalog
from sandbox.cql.list_keys import ListKeys
from sandbox.cql.parser.grammar import statement_of
from sandbox.recordings.recording import Recording
from sandbox.recordings.replay import Replay
from sandbox.recordings.request_times import RequestTimes
from sandbox.recordings.trim import trimmed
from sandbox.scylla.values.nested import pack_pairs

T_US = UnixMicros(1_800_000_000_000_000)
TABLE = "CREATE TABLE rec.t (p int, c int, a int, m map<int, int>, s set<int>, l list<int>, PRIMARY KEY (p, c))"
WHERE = "FROM t WHERE p = 1 AND c = 1"
UPDATE = "UPDATE t SET a = 1 WHERE p = 1 AND c = 1"


def batch(*statements: str, using: str = "") -> str:
    return f"BEGIN BATCH {using} {'; '.join(statements)}; APPLY BATCH"


def catalog() -> Catalog:
    made = Catalog("rec")
    statement: Any = statement_of(f"{TABLE} WITH cdc = {{'enabled': true}}")
    made.apply(statement, T_US)
    return made


@pytest.mark.parametrize(
    ("text", "logged", "at"),
    [
        (UPDATE, {0}, 0),
        (f"DELETE m {WHERE}", {1}, 0),
        (f"DELETE m, s {WHERE}", {1}, 0),
        (f"DELETE m, a {WHERE}", {0, 1}, 0),
        (f"DELETE m[1] {WHERE}", {0}, 0),
        (f"DELETE {WHERE}", {0}, 0),
        (f"UPDATE t SET m = null {WHERE[7:]}", {0}, 0),
        (batch(f"DELETE m {WHERE}", UPDATE), {0, 1}, 0),
        (batch(f"DELETE m {WHERE}", f"DELETE s {WHERE}"), {1}, 0),
        (batch(f"DELETE m FROM t USING TIMESTAMP {T_US - 9} {WHERE[7:]}", UPDATE), {-8, 0}, 0),
        (batch(f"DELETE m FROM t USING TIMESTAMP {T_US - 9} {WHERE[7:]}", f"DELETE s {WHERE}"), {-8, 1}, 0),
        (f"DELETE m FROM t USING TIMESTAMP {T_US} {WHERE[7:]}", {1}, None),
        (batch(UPDATE, using=f"USING TIMESTAMP {T_US}"), {0}, None),
        (UPDATE, set(), None),
    ],
)
def test_the_timestamp_of_a_request_is_found_in_its_log(text: str, logged: set[int], at: int | None) -> None:
    """A whole collection's deletion is logged a microsecond late, alone and in a batch."""
    times = RequestTimes([(text, ())], catalog())
    found = times.of_request(UnixMicros(T_US + one) for one in logged)
    assert found == (None if at is None else T_US + at)


def test_every_timestamp_of_a_native_batch_is_known() -> None:
    entries = [
        ("UPDATE t USING TIMESTAMP ? SET a = 1 WHERE p = 1 AND c = 1", [T_US - 5]),
        ("UPDATE t SET a = ? WHERE p = 1 AND c = 1", [7]),
    ]
    times = RequestTimes(entries, catalog())
    assert times.of_request([UnixMicros(T_US - 5), T_US]) == T_US
    assert times.all(T_US) == {T_US - 5, T_US}


class Original:
    """A scenario as it is recorded, with the keys that a server without any other work makes."""

    def __init__(self, ddl: list[str], types: Sequence[tuple[str, list[str], list[str]]] = ()) -> None:
        self.types = [
            {"type_name": ["", name], "field_names": ["", names], "field_types": ["", kinds]}
            for name, names, kinds in types
        ]
        self.ddl = [step(text) for text in ddl]
        self.steps: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []

    def write(self, text: str, rows: list[tuple[int, dict[str, bytes]]]) -> None:
        """Add a statement with its log rows: microsecond after T, and cells."""
        numbers = range(len(self.rows), len(self.rows) + len(rows))
        self.steps.append({**step(text), "new_log_rows": {"t": list(numbers)}})
        for later_us, cells in rows:
            time = timeuuid_of(UnixMicros(T_US + later_us), bytes(8))
            whole = {"cdc$stream_id": bytes(16), "cdc$time": time, "cdc$batch_seq_no": bytes(4), **cells}
            self.rows.append({name: [cell.hex(), ""] for name, cell in whole.items()})

    def trimmed(self, columns: list[tuple[str, str, str, int]]) -> Recording:
        described = {"columns": {"rows": [column(*one) for one in columns]}}
        log = {"columns": {"rows": [column("cdc$stream_id", "blob", "partition_key", 0)]}}
        form = trimmed(
            {
                "scenario": "made",
                "keyspace": "rec",
                "client_clock_us_at_start": T_US - 1000,
                "types": {"rows": self.types},
                "tables": ["t"],
                "ddl": self.ddl,
                "steps": self.steps,
                "log": {"t": {"rows_in_order_of_appearance": [{"step": 0, "row": row} for row in self.rows]}},
                "schema_before": {},
                "schema_after": {"t": described, "t_scylla_cdc_log": log},
            },
            [{"start_ms": 0, "streams": []}],
        )
        assert form is not None
        return Recording.from_form(form)


def column(name: str, kind: str, part: str, place: int) -> dict[str, Any]:
    texts = {"column_name": name, "type": kind, "kind": part}
    return {**{key: [text.encode().hex(), text] for key, text in texts.items()}, "position": ["", place]}


def step(text: str) -> dict[str, Any]:
    return {"cql": text, "ok": True, "wall_us": T_US + 100, "wall_us_end": T_US + 200}


def i(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_list_cells_of_a_batch_get_the_keys_that_the_server_made_for_them() -> None:
    """Appended and prepended values, whatever their order in the batch."""
    keys = ListKeys()
    appended, prepended, again = keys.append(2, T_US), keys.prepend(2, T_US), keys.prepend(1, T_US)
    pairs = list(zip([*again, *prepended, *appended], map(i, (1, 2, 3, 4, 5)), strict=True))
    row = {"p": i(1), "c": i(1), "cdc$operation": b"\1", "l": pack_pairs(pairs), "cdc$end_of_batch": b"\1"}
    original = Original([f"{TABLE} WITH cdc = {{'enabled': true}}"])
    where = "WHERE p = 1 AND c = 1"
    original.write(
        batch(
            f"UPDATE rec.t SET l = l + [4, 5] {where}",
            f"UPDATE rec.t SET l = [2, 3] + l {where}",
            f"UPDATE rec.t SET l = [1] + l {where}",
        ),
        [(0, row)],
    )
    recording = original.trimmed([("p", "int", "partition_key", 0), ("c", "int", "clustering", 0)])
    assert set(recording.steps[-1].list_keys) == {*appended, *prepended, *again}
    ((logged,),) = (entries for entries in Replay.of(recording).logged if entries)
    (group,) = logged.groups
    assert group.rows[0].cells["l"].value == pack_pairs(pairs)


def test_types_come_with_the_types_that_they_name() -> None:
    """Those of an earlier scenario are made first, inner ones before outer ones."""
    types = [
        ("chest", ["lid"], ["frozen<lid>"]),
        ("lid", ["size"], ["int"]),
        ("other", ["size"], ["int"]),
        ("room", ["chests"], ["frozen<list<frozen<chest>>>"]),
    ]
    ddl = [
        "CREATE TYPE rec.house (room frozen<room>)",
        "CREATE TABLE rec.t (p int PRIMARY KEY, v house) WITH cdc = {'enabled': true}",
    ]
    original = Original(ddl, [*types, ("house", ["room"], ["frozen<room>"])])
    original.write(
        "INSERT INTO rec.t (p) VALUES (1)", [(0, {"p": i(1), "cdc$operation": b"\2", "cdc$end_of_batch": b"\1"})]
    )
    recording = original.trimmed([("p", "int", "partition_key", 0), ("v", "house", "regular", -1)])
    made = [text.split("(")[0].split()[-1] for step in recording.steps for text, _ in step.statements]
    assert [name.replace('"', "") for name in made[:5]] == ["rec.lid", "rec.chest", "rec.room", "rec.house", "rec.t"]
    table = Replay.of(recording).simulated_table("t", "elsewhere")
    assert [user_type.name for user_type in table.user_types] == ["lid", "chest", "room", "house"]
