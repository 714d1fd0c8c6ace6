"""Cuts the original recordings down to what the loader needs, and writes them as this package's data.

`python -m sandbox.recordings.trim ORIGINALS` reads `<scenario>.json` and the `generations_*.json` dumps in the
folder ORIGINALS (one file a scenario: statements, schema dumps, log rows with hex and readable values) and writes
`data/<scenario>.json.gz` beside this file, for every scenario with log rows. The originals are large and not part of
the project.

Left out: what the server refused, queries, statements on other keyspaces or on log tables (but for their drop), and the
one log row that was inserted by hand.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bridge.model.times import UnixMicros, micros_of, sort_key
from sandbox.cql.catalog import Catalog
from sandbox.cql.list_keys import prepended_us
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.statements import AlterTable, AlterType, CreateTable, CreateType, Statement
from sandbox.recordings.recording import FORMAT_VERSION, parameter
from sandbox.recordings.request_times import RequestTimes
from sandbox.scylla.log.log_table import type_ddl
from sandbox.scylla.values.nested import UserType, needed_types
from schemas.cql.types import CqlType, parse

_LOG_KEY: Final = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")
_LOG_SUFFIX: Final = "_scylla_cdc_log"
_STREAMS: Final = "SELECT * FROM system_distributed.cdc_streams_descriptions_v2"
_DELTAS: Final = ("01", "02")
_SCHEMA_VERBS: Final = ("CREATE", "ALTER", "DROP")
_NOT_SCENARIOS: Final = ("generations_", "system_schema_")

Form = dict[str, Any]


def trimmed(original: Form, generations: list[Form]) -> Form | None:
    """The file form of one scenario (see `recording`); None if it has no log rows.

    Args:
        original: the scenario as recorded.
        generations: all that the node ever had.
    """
    logs = {name: _log_rows(original, name) for name in original["tables"]}
    logs = {name: rows for name, rows in logs.items() if rows}
    if not logs:
        return None
    steps = _Steps(original, logs).forms()
    times = [_micros(entry["row"]) // 1000 for rows in logs.values() for entry in rows]
    # The generation in force at the first row, and every later one up to the last row.
    first = max(form["start_ms"] for form in generations if form["start_ms"] <= min(times))
    return {
        "v": FORMAT_VERSION,
        "scenario": original["scenario"],
        "keyspace": original["keyspace"],
        "steps": steps,
        "tables": [_table(original, name, rows) for name, rows in logs.items()],
        "generations": [form for form in generations if first <= form["start_ms"] <= max(times)],
    }


def generations_of(dumps: Iterator[Form]) -> list[Form]:
    """Every generation in the dumps of the generation tables, oldest first."""
    found: dict[int, dict[int, list[str]]] = {}
    for dump in dumps:
        for row in dump["dumps"][_STREAMS]["rows"]:
            raw_time, raw_end, raw_streams = (bytes.fromhex(row[name][0]) for name in ("time", "range_end", "streams"))
            ends = found.setdefault(int.from_bytes(raw_time, "big"), {})
            ends[int.from_bytes(raw_end, "big", signed=True)] = _blobs(raw_streams)
    return [{"start_ms": start_ms, "streams": sorted(found[start_ms].items())} for start_ms in sorted(found)]


class _Steps:
    """Makes the steps of one scenario."""

    def __init__(self, original: Form, logs: Mapping[str, list[Form]]) -> None:
        self._original = original
        self._logs = logs
        # A row's number among those that are kept, by its number among all.
        self._numbers = {
            name: {entry["number"]: place for place, entry in enumerate(rows)} for name, rows in logs.items()
        }
        self._catalog = Catalog(original["keyspace"], drop_leeway=False)
        self._known_keys: set[str] = set()

    def forms(self) -> list[Form]:
        """All steps that are kept."""
        steps = (*self._types(), *self._original["ddl"], *self._original["steps"])
        return [self._form(step) for step in steps if step["ok"] and self._is_kept(step)]

    def _types(self) -> Iterator[Form]:
        """Types that this scenario's tables and types name and that an earlier scenario has made."""
        steps = (*self._original["ddl"], *self._original["steps"])
        texts = [step["cql"] for step in steps if step["ok"] and step.get("cql", "").startswith(_SCHEMA_VERBS)]
        statements = [statement_of(text) for text in texts if "TABLE" in text or "TYPE" in text]
        made = {statement.type.name for statement in statements if isinstance(statement, CreateType)}
        start_us = self._original["client_clock_us_at_start"]
        there = tuple(map(_user_type, self._original["types"]["rows"]))
        for user_type in needed_types((kind for one in statements for kind in _named_types(one)), there):
            if user_type.name not in made:
                yield {
                    "cql": type_ddl(self._original["keyspace"], user_type),
                    "ok": True,
                    "wall_us": start_us,
                    "wall_us_end": start_us,
                }

    def _is_kept(self, step: Form) -> bool:
        if "batch" in step:
            return True
        text = step.get("cql", "SELECT")
        if text.startswith("SELECT") or "system_distributed" in text:
            return False
        return _LOG_SUFFIX not in text or text.startswith("DROP TABLE")

    def _form(self, step: Form) -> Form:
        statements = step.get("batch") or [[step["cql"], step.get("params") or []]]
        rows = {
            name: [self._numbers[name][number] for number in numbers if number in self._numbers[name]]
            for name, numbers in step.get("new_log_rows", {}).items()
            if name in self._logs
        }
        # A timestamp in the protocol's frame is not looked at: the rows show that the server took none from there.
        stamps = {_micros(self._logs[name][number]["row"]) for name, numbers in rows.items() for number in numbers}
        times = self._times(statements) if stamps else None
        at_us = self._at_us(step, stamps, times)
        form: Form = {"cql": statements, "at": at_us, "now": step["wall_us"]}
        if "batch" in step:
            form["batch"] = True
        if rows:
            form["rows"] = rows
        keys = self._new_list_keys(rows, set() if times is None else times.all(at_us))
        if keys:
            form["keys"] = keys
        if "batch" not in step and step["cql"].startswith(_SCHEMA_VERBS):
            statement: Any = statement_of(step["cql"])
            self._catalog.apply(statement, step["wall_us"])
        return form

    def _times(self, statements: list[Any]) -> RequestTimes:
        return RequestTimes(
            ((text, [parameter(value) for value in values]) for text, values in statements), self._catalog
        )

    def _at_us(self, step: Form, stamps: set[UnixMicros], times: RequestTimes | None) -> UnixMicros:
        """The timestamp that the statements of a step have if they give none."""
        if times is None:
            return UnixMicros(step["wall_us_end"])
        found = times.of_request(stamps)
        return min(stamps) if found is None else found

    def _new_list_keys(self, rows: Mapping[str, list[int]], at_us: set[UnixMicros]) -> list[str]:
        """Keys of list cells that the rows of a step are the first to show, in their order.

        Args:
            rows: numbers of the step's rows by table.
            at_us: the timestamps of its statements.
        """
        instants = {instant for one in at_us for instant in (one, prepended_us(one))}
        found: set[str] = set()
        for name, numbers in rows.items():
            table = next(table for table in self._catalog.tables if table.name.name == name)
            lists = [column.name for column in table.table_schema.values if str(column.type).startswith("list<")]
            if table.options.delta == "keys":
                # Deltas show no values there; later images do, and keys carry the statement's timestamp.
                shown = _keys_in([entry["row"] for entry in self._logs[name]], lists)
                found.update(key for key in shown if micros_of(bytes.fromhex(key)) in instants)
            else:
                rows_shown = [self._logs[name][number]["row"] for number in numbers]
                found |= _keys_in([row for row in rows_shown if row["cdc$operation"][0] in _DELTAS], lists)
        new = sorted(found - self._known_keys, key=lambda key: sort_key(bytes.fromhex(key)))
        self._known_keys |= found
        return new


def _user_type(row: Form) -> UserType:
    fields = zip(row["field_names"][1], row["field_types"][1], strict=True)
    return UserType(row["type_name"][1], tuple((name, parse(text)) for name, text in fields))


def _named_types(statement: Statement) -> Iterator[CqlType]:
    """Types that a schema statement gives to columns or fields."""
    match statement:
        case CreateTable(columns=columns) | AlterTable(add=columns):
            yield from (column.type for column in columns)
        case CreateType(fields=fields) | AlterType(add=fields):
            yield from (kind for _name, kind in fields)
    if isinstance(statement, AlterTable | AlterType):
        yield from (kind for _name, kind in statement.alter)


def _keys_in(rows: list[Form], lists: list[str]) -> set[str]:
    """Keys of the list cells that rows show in some columns."""
    cells = (row[column][0] for row in rows for column in lists if row.get(column) is not None)
    return {part.hex() for cell in cells for part in _parts(bytes.fromhex(cell))[::2]}


def _log_rows(original: Form, name: str) -> list[Form]:
    """Rows as they appeared, with their numbers; without those that no write to the base table made."""
    rows = original["log"].get(name, {}).get("rows_in_order_of_appearance", [])
    return [{**entry, "number": number} for number, entry in enumerate(rows) if entry["row"]["cdc$operation"]]


def _table(original: Form, name: str, rows: list[Form]) -> Form:
    names = [*_LOG_KEY, *sorted({column for entry in rows for column in entry["row"]} - set(_LOG_KEY))]
    columns = _base_columns(original, name)
    return {
        "name": name,
        "columns": columns,
        "log_columns": _log_columns(original, name, {column[0] for column in columns}),
        "log_names": names,
        "log": [[_hex(entry["row"].get(column)) for column in names] for entry in rows],
    }


def _log_columns(original: Form, name: str, base: set[str]) -> list[list[str]]:
    """The log's columns, without those that were added by hand."""
    rows = sorted(_columns(original, name + _LOG_SUFFIX), key=_log_order)
    columns = [[_text(row["column_name"]), _text(row["type"])] for row in rows]
    return [column for column in columns if column[0] in base or column[0].startswith("cdc$")]


def _hex(cell: list[Any] | None) -> str | None:
    return None if cell is None else cell[0]


def _base_columns(original: Form, name: str) -> list[list[Any]]:
    columns = [
        [_text(row["column_name"]), _text(row["type"]), _text(row["kind"]), row["position"][1]]
        for row in _columns(original, name)
    ]
    create = [statement_of(step["cql"]) for step in original["ddl"] if step["cql"].startswith("CREATE TABLE")]
    made = next(
        statement for statement in create if isinstance(statement, CreateTable) and statement.table.name == name
    )
    if not made.options.is_compact or made.clustering:
        return columns
    # Without a clustering key such a table is kept with hidden columns, and its own as static ones; CQL shows neither.
    return [
        [column, kind_text, "regular" if kind == "static" else kind, position]
        for column, kind_text, kind, position in columns
        if kind in ("partition_key", "static")
    ]


def _columns(original: Form, name: str) -> list[Form]:
    """A table's columns at the end; of one that was dropped, those that it had at the last look."""
    looks = [original["schema_after"]]
    looks += [step["schema_after"] for step in reversed(original["steps"]) if step.get("schema_after")]
    looks.append(original["schema_before"])
    for look in looks:
        rows: list[Form] = look.get(name, {}).get("columns", {}).get("rows", [])
        if rows:
            return rows
    raise ValueError(f"{original['scenario']}: no description of table {name}")


def _log_order(row: Form) -> tuple[int, bytes]:
    name = _text(row["column_name"])
    return (_LOG_KEY.index(name) if name in _LOG_KEY else len(_LOG_KEY), name.encode())


def _text(cell: list[str]) -> str:
    return bytes.fromhex(cell[0]).decode()


def _blobs(raw: bytes) -> list[str]:
    """A serialized set of blobs, in the order of its bytes."""
    return [part.hex() for part in _parts(raw)]


def _parts(raw: bytes) -> list[bytes]:
    """What a serialized collection holds, keys and values alternating in a map."""
    found, at = [], 4
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "big")
        found.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def _micros(row: Form) -> UnixMicros:
    return micros_of(UUID(hex=row["cdc$time"][0]).bytes)


def main(originals: Path) -> None:
    """Trim every scenario of the folder and write the package's data files."""
    data = Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    dumps = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(originals.glob("generations_*.json")))
    generations = generations_of(dumps)
    for path in sorted(originals.glob("*.json")):
        if path.name.startswith(_NOT_SCENARIOS):
            continue
        form = trimmed(json.loads(path.read_text(encoding="utf-8")), generations)
        if form is None:
            continue
        text = json.dumps(form, separators=(",", ":"), ensure_ascii=False)
        # No time and no name in the file: the same originals give the same bytes.
        (data / f"{path.stem}.json.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
