"""Runs statements on a server in memory and compares what it logs with what is expected.

`log_vectors.json` holds the facts, one entry each: tables, statements, and the log's rows by group. Of a row only the
columns that it names are compared; null says that the column must be null. `{"listmap": [..]}` is a map with unknown
keys that ascend; `{"set": ..}`, `{"map": [[key, value], ..]}`, `{"udt": ..}`, `{"tuple": ..}` and `{"timeuuid": ..}`
are values of those kinds. `${T}` is a timestamp of the runner's choice, `${E}` a time of day in the past. `at` is the
microsecond of a group's `cdc$time`, and `"order": "free"` leaves the order of a group's rows open.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from bridge.model.times import UnixMicros, micros_of, sort_key
from sandbox.cql.catalog import Table
from sandbox.cql.interpret import Request
from sandbox.cql.literals import Serializer
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.statements import DeleteStatement
from sandbox.cql.parser.terms import ListTerm, MapTerm, SetTerm, Term, TupleTerm, UdtTerm
from sandbox.cql.server import Logged, StatementServer
from sandbox.scylla.base.mutations import PartitionExpiry, RowDelete, RowExpiry
from sandbox.scylla.log.log_rows import LogOperation
from sandbox.scylla.values.nested import unpack_pairs
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, UdtType, parse
from tests.unit.sandbox.scylla.log_records import Record, records_of

T_US = UnixMicros(1_800_000_000_000_000)
E_S = 1_700_000_000
STEP_US = 1_000_000

Vector = dict[str, Any]

LoggedGroup = tuple[Table, UnixMicros, list[Record]]
"""A base table, the microsecond of a group's `cdc$time`, and the group's log rows."""

_TIMESTAMP = re.compile(r"\b1[56]\d{14}\b")
_PLACEHOLDER = re.compile(r"\$\{T(?:\+(\d+))?\}")
_OWN_KEYSPACE = re.compile(r"\bshop\.")
_FILE = Path(__file__).with_name("log_vectors.json")


def load(path: Path = _FILE) -> list[Vector]:
    """The vectors of a file, with their placeholders."""
    vectors: list[Vector] = json.loads(path.read_text(encoding="utf-8"))
    return vectors


@dataclass(frozen=True, slots=True)
class Filling:
    """What stands in place of a vector's placeholders, and of its own keyspace and times.

    Attributes:
        keyspace: its tables' keyspace.
        at_us: `${T}`, in Unix us.
        past_s: `${E}`, in Unix s.
        earliest_us: what the first of the timestamps that the vector names in figures becomes, in Unix us, the others
            moving with it; None leaves them as they are.
    """

    keyspace: str = "shop"
    at_us: UnixMicros = T_US
    past_s: int = E_S
    earliest_us: UnixMicros | None = None

    def fill(self, vector: Vector) -> Vector:
        """The vector without placeholders."""
        named = [int(text) for text in _TIMESTAMP.findall(json.dumps(vector))]
        shift_us = 0 if self.earliest_us is None or not named else self.earliest_us - min(named)

        def filled(value: Any) -> Any:
            match value:
                case dict():
                    return {name: at(each) if name == "at" else filled(each) for name, each in value.items()}
                case list():
                    return [filled(each) for each in value]
                case "${E}":
                    return self.past_s
                case str():
                    return text(value)
                case _:
                    return value

        def at(value: int | str) -> int:
            return value + shift_us if isinstance(value, int) else self.at_us + int(value.removeprefix("T") or 0)

        def text(value: str) -> str:
            value = _TIMESTAMP.sub(lambda match: str(int(match[0]) + shift_us), value)
            value = _OWN_KEYSPACE.sub(f"{self.keyspace}.", value).replace("${E}", str(self.past_s))
            return _PLACEHOLDER.sub(lambda match: str(self.at_us + int(match[1] or 0)), value)

        return {**filled(vector), "name": vector["name"]}


class Run:
    """One vector's statements, carried out."""

    def __init__(self, vector: Vector) -> None:
        self.vector = Filling().fill(vector)
        self.server = StatementServer("shop")
        self.logged: list[Logged] = []
        self._clock_us = T_US
        for text in self.vector.get("tables", ()):
            self.execute(text)
        self.statements: list[Any] = self.vector["statements"]

    def execute(self, statement: Any) -> None:
        """Carry out the next statement, a second after the one before."""
        self._clock_us = UnixMicros(self._clock_us + STEP_US)
        request = Request(self._clock_us, self._clock_us)
        if isinstance(statement, dict):
            self._expire(statement["expires"], request)
        else:
            self.logged += self.server.execute(statement, request)

    def groups(self) -> list[LoggedGroup]:
        """Every group logged, in the order of `cdc$time`."""
        found = [
            (logged.table, group.timestamp_us, records)
            for logged in self.logged
            for group, records in zip(logged.groups, records_of(logged), strict=True)
        ]
        return sorted(found, key=lambda entry: entry[1])

    def _expire(self, text: str, request: Request) -> None:
        self.logged.append(expire(self.server, text, request))


def expire(server: StatementServer, text: str, request: Request) -> Logged:
    """Let the server delete the rows of a DELETE itself, as it does when their TTL has ended."""
    statement = statement_of(text)
    assert isinstance(statement, DeleteStatement)
    ((name, mutation),) = server.interpreter.mutations(statement, request)
    (operation,) = mutation.operations
    expiry = RowExpiry(operation.clustering) if isinstance(operation, RowDelete) else PartitionExpiry()
    table = next(table for table in server.catalog.tables if table.name == name)
    return server.apply(table, replace(mutation, operations=(expiry,)), request)


def problems(server: StatementServer, groups: list[LoggedGroup], vector: Vector) -> list[str]:
    """What of the groups differs from those that a filled vector expects; nothing where all is well.

    Args:
        server: knows the types.
        groups: in the order of `cdc$time`.
        vector: expects them.
    """
    expected, free_order = vector["log"], vector.get("order") == "free"
    if [len(records) for _table, _at, records in groups] != [len(rows) for rows in expected]:
        return [f"rows by group: {[_operations(group[2]) for group in groups]}, wanted {expected}"]
    found = []
    for number, ((table, at_us, records), rows) in enumerate(zip(groups, expected, strict=True)):
        compare = _Comparison(server, table, at_us)
        found += _numbering(records)
        if free_order:
            left = list(records)
            for row in rows:
                match = next((record for record in left if not compare.differences(row, record)), None)
                if match is None:
                    found.append(f"group {number}: no row is {row}, there are {left}")
                else:
                    left.remove(match)
            continue
        for place, (row, record) in enumerate(zip(rows, records, strict=True)):
            found += [f"group {number}, row {place}: {text}" for text in compare.differences(row, record)]
    return found


class _Comparison:
    """Compares rows of one group."""

    def __init__(self, server: StatementServer, table: Table, at_us: UnixMicros) -> None:
        self._schema = table.table_schema
        self._types = {column.name: column.type for column in self._schema.columns}
        self._serializer = Serializer(server.catalog.user_types(self._schema.keyspace))
        self._at_us = at_us

    def differences(self, row: dict[str, Any], record: Record) -> list[str]:
        """What of a record is not as the row says."""
        found = [f"no {column.name}" for column in self._schema.partition_key if column.name not in record]
        for name, wanted in row.items():
            if not self._agrees(name, wanted, record):
                found.append(f"{name} is {record.get(name)!r} at {self._at_us}, wanted {wanted!r} in {record}")
        return found

    def _agrees(self, name: str, wanted: Any, record: Record) -> bool:
        cell = record.get(name)
        match name, wanted:
            case "at", _:
                return bool(self._at_us == wanted)
            case "operation", str():
                return record["cdc$operation"] == _number(wanted).to_bytes(1, "big", signed=True)
            case _, None:
                return cell is None
            case "cdc$ttl", int():
                return cell == wanted.to_bytes(8, "big")
            case _, True:
                return cell == b"\x01"
            case _, {"listmap": values}:
                return cell is not None and self._is_list(name, values, cell)
            case _:
                return cell == self._serializer.cell(self._log_type(name), _term(wanted))

    def _is_list(self, name: str, values: list[Any], cell: bytes) -> bool:
        cql_type = self._types[name]
        assert isinstance(cql_type, ListType)
        pairs = unpack_pairs(cell)
        keys = [sort_key(key) for key, _value in pairs]
        assert all(micros_of(key) for key, _value in pairs)
        wanted = [self._serializer.cell(cql_type.element, _term(value)) for value in values]
        return keys == sorted(keys) and [value for _key, value in pairs] == wanted

    def _log_type(self, name: str) -> CqlType:
        elements = name.removeprefix("cdc$deleted_elements_")
        if elements != name:
            match self._types[elements]:
                case ListType():
                    return SetType(NativeType("timeuuid"))
                case MapType(key, _) | SetType(key):
                    return SetType(key)
                case UdtType():
                    return SetType(NativeType("smallint"))
        cql_type = self._types[name]
        return parse(f"map<timeuuid, {cql_type.element}>") if isinstance(cql_type, ListType) else cql_type


def _numbering(records: list[Record]) -> list[str]:
    """Return the problems with numbers and end marks, which every group has."""
    found = []
    for number, record in enumerate(records):
        if record["cdc$batch_seq_no"] != number.to_bytes(4, "big"):
            found.append(f"row {number} has number {record['cdc$batch_seq_no']!r}")
        if ("cdc$end_of_batch" in record) != (number == len(records) - 1):
            found.append(f"row {number} of {len(records)} is wrong about the end of its group")
    return found


def _number(name: str) -> int:
    aliases = {"range start": "range delete start", "range end": "range delete end"}
    for short, long in aliases.items():
        name = name.replace(short, long)
    return LogOperation[name.upper().replace(" ", "_").replace("-", "_")]


def _operations(records: list[Record]) -> list[int]:
    return [int.from_bytes(record["cdc$operation"], "big", signed=True) for record in records]


def _term(value: Any) -> Term:
    match value:
        case {"set": elements}:
            return SetTerm(tuple(_term(element) for element in elements))
        case {"map": pairs}:
            return MapTerm(tuple((_term(key), _term(item)) for key, item in pairs))
        case {"udt": fields}:
            return UdtTerm(tuple((name, _term(item)) for name, item in fields.items()))
        case {"tuple": elements}:
            return TupleTerm(tuple(_term(element) for element in elements))
        case {"list": elements} | list(elements):
            return ListTerm(tuple(_term(element) for element in elements))
        case {"timeuuid": text}:
            return text  # type: ignore[no-any-return]
        case float():
            return Decimal(repr(value))
        case _:
            return value  # type: ignore[no-any-return]
