"""Cuts the original recordings down to what the loader needs, and writes them as this package's data.

`python -m bridge.local.recorded.trim ORIGINALS` reads `<scenario>.json` and the `generations_*.json` dumps in the
folder ORIGINALS (one file a scenario: statements, schema dumps, log rows with hex and readable values) and writes
`data/<scenario>.json.gz` beside this file. The originals are large and not part of the project.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bridge.local.recorded.recording import FORMAT_VERSION

SCENARIOS: Final = (
    "batches",
    "composite_keys",
    "deletes",
    "identifiers",
    "key_types",
    "lwt",
    "many_partitions",
    "native_types",
    "reserved_column_names",
    "ttl",
    "z_generation_change",
    "z_generation_edge",
    "z_second_node_joins",
)
_LOG_KEY: Final = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")
_STREAMS: Final = "SELECT * FROM system_distributed.cdc_streams_descriptions_v2"
_GREGORIAN_TICKS: Final = 0x01B21DD213814000

Form = dict[str, Any]


def trimmed(original: Form, generations: list[Form]) -> Form:
    """The file form of one scenario (see `recording`); `generations` are all that the node ever had."""
    tables = [_table(original, name) for name in original["tables"] if original["log"].get(name)]
    times = [_millis(row[1]) for table in tables for row in table["log"]]
    # The generation in force at the first row, and every later one up to the last row.
    first = max(form["start_ms"] for form in generations if form["start_ms"] <= min(times))
    return {
        "v": FORMAT_VERSION,
        "scenario": original["scenario"],
        "keyspace": original["keyspace"],
        "tables": tables,
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


def _table(original: Form, name: str) -> Form:
    schema = original["schema_before"][name]
    columns = [
        [_text(row["column_name"]), _text(row["type"]), _text(row["kind"]), row["position"][1]]
        for row in schema["columns"]["rows"]
    ]
    ddl = next(step["cql"] for step in original["ddl"] if _creates(step["cql"], original["keyspace"], name))
    log = original["log"][name]
    types = dict(original["log"][name]["columns_of_last_successful_select"])
    names = [*_LOG_KEY, *sorted(types.keys() - set(_LOG_KEY), key=str.encode)]
    log_types = {
        _text(row["column_name"]): _text(row["type"])
        for row in original["schema_before"][f"{name}_scylla_cdc_log"]["columns"]["rows"]
    }
    rows = [entry["row"] for entry in log["rows_in_order_of_appearance"]]
    return {
        "name": name,
        "ddl": ddl,
        "ttl_s": _cdc_ttl_s(bytes.fromhex(schema["tables"]["rows"][0]["extensions"][0])),
        "columns": columns,
        "log_columns": [[column, log_types[column]] for column in names],
        "log": [[None if row[column] is None else row[column][0] for column in names] for row in rows],
    }


def _creates(cql: str, keyspace: str, name: str) -> bool:
    begin = f"CREATE TABLE {keyspace}."
    return cql.startswith((f"{begin}{name} ", f'{begin}"{name}" '))


def _text(cell: list[str]) -> str:
    return bytes.fromhex(cell[0]).decode()


def _blobs(raw: bytes) -> list[str]:
    """A serialized set of blobs, in the order of its bytes."""
    found, at = [], 4
    for _ in range(int.from_bytes(raw[:4], "big")):
        length = int.from_bytes(raw[at : at + 4], "big")
        found.append(raw[at + 4 : at + 4 + length].hex())
        at += 4 + length
    return found


def _cdc_ttl_s(extensions: bytes) -> int:
    """The cdc option's `ttl`: its text comes last in the blob, after its name and a 4-byte little-endian length."""
    _, _, tail = extensions.partition(b"ttl")
    length = int.from_bytes(tail[:4], "little")
    return int(tail[4 : 4 + length])


def _millis(time: str) -> int:
    return (UUID(hex=time).time - _GREGORIAN_TICKS) // 10_000


def main(originals: Path) -> None:
    """Trim every scenario of the folder and write the package's data files."""
    data = Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    dumps = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(originals.glob("generations_*.json")))
    generations = generations_of(dumps)
    for scenario in SCENARIOS:
        original = json.loads((originals / f"{scenario}.json").read_text(encoding="utf-8"))
        text = json.dumps(trimmed(original, generations), separators=(",", ":"), ensure_ascii=False)
        # No time and no name in the file: the same originals give the same bytes.
        (data / f"{scenario}.json.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
