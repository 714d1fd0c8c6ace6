"""The examples of docs/change-events.md are what the encoder returns for their statements."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bridge.encoding.dead_letter import FORMAT_VERSION
from bridge.encoding.json_values import json_value
from schemas.options import OutputOptions, RecordForm, ShapeName
from tests.unit.bridge.encoding.captured_table import Capture, DecodedRecord

README = Path(__file__).parents[4] / "README.md"
DOCUMENT = README.parent / "docs" / "change-events.md"
TABLE = """\
CREATE TABLE shop.orders (
    customer int, line int, note text, total decimal, tags set<text>,
    PRIMARY KEY (customer, line)
) WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true};"""
STATEMENTS = {
    "insert": "INSERT INTO shop.orders (customer, line, note, total, tags) VALUES (7, 1, 'gift', 12.50, {'new'});",
    "update": "UPDATE shop.orders SET tags = tags + {'paid'}, note = null WHERE customer = 7 AND line = 1;",
    "range delete": "DELETE FROM shop.orders WHERE customer = 7 AND line > 2 AND line <= 5;",
}
KEYS = {"delta": "partition_key", "full": "partition_key", "debezium": "primary_key", "flat": "primary_key"}
EXAMPLE = re.compile(r"<!-- example: (\w+), ([\w ]+) -->\n```json\n(.*?)\n```", re.DOTALL)


@cache
def example_records(shape: ShapeName) -> dict[str, DecodedRecord]:
    output = OutputOptions(shape=shape, name="orders-bridge", key=KEYS[shape])  # type: ignore[arg-type]
    capture = Capture(TABLE, output=output, form=RecordForm(dead_letters=True))
    return {name: one for name, statement in STATEMENTS.items() for one in capture.run(statement)}


def block(fields: dict[str, Any]) -> str:
    """Return a JSON document with one line for each field, and `source` with one line for each of its fields."""
    lines = []
    for name, value in fields.items():
        text = json.dumps(json_value(value), ensure_ascii=False)
        if name == "source" and isinstance(value, dict):
            inner = (f"    {json.dumps(part)}: {json.dumps(json_value(one))}" for part, one in value.items())
            text = "{\n" + ",\n".join(inner) + "\n  }"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def example(shape: ShapeName, name: str) -> str:
    """Return the document of an example; only the first one of a shape shows `source`."""
    if name == "key":
        return json.dumps(example_records(shape)["insert"].key)
    value = example_records(shape)[name].value
    assert value is not None
    return block({field: one for field, one in value.items() if field != "source" or name == "insert"})


def test_examples() -> None:
    """Each shape has all of its examples, and each equals the encoder's output to the letter."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = EXAMPLE.findall(text)
    assert [(shape, name) for shape, name, _ in found] == [
        (shape, name) for shape in KEYS for name in (*STATEMENTS, "key")
    ]
    for shape, name, shown in found:
        expected = example(shape, name)
        assert shown == expected, f"docs/change-events.md, {shape}, {name}: should be\n{expected}"


@pytest.mark.parametrize("text", [TABLE, *STATEMENTS.values()])
def test_statements(text: str) -> None:
    """The document shows the statements of its examples."""
    assert text in DOCUMENT.read_text(encoding="utf-8")


def test_dead_letter() -> None:
    """The dead letter is that of the insert with an invalid `line`."""
    capture = Capture(TABLE.replace("'full', 'postimage': true", "'false'"), form=RecordForm(dead_letters=True))
    (cells,) = capture.rows(STATEMENTS["insert"])
    line = capture.columns.index("line")
    (found,) = capture.records([(*cells[:line], b"\xff", *cells[line + 1 :])])
    assert found.record.is_dead_letter
    assert found.record.value is not None
    letter = json.loads(found.record.value)
    parts = [f'"{name}": {json.dumps(one)}' for name, one in letter.items() if name != "rows"]
    rows = ",\n   ".join(f"{json.dumps(name)}: {json.dumps(cell)}" for name, cell in letter["rows"][0].items())
    shown = "{" + ",\n ".join([*parts, '"rows": [{\n   ' + rows + "}]}"])
    expected = f"<!-- example: dead letter -->\n```json\n{shown}\n```"
    assert expected in DOCUMENT.read_text(encoding="utf-8"), f"dead letter: should be\n{expected}"
    assert letter["v"] == FORMAT_VERSION


PLACE = frozenset({"generation_ms", "stream_id", "time", "timestamp_us"})
"""Fields of `source` whose values in the README's example come from another run."""


def test_readme() -> None:
    """The README's statement gives the change that it shows. With a TTL it gives two changes, as the document says."""
    text = README.read_text(encoding="utf-8")
    ((statement, shown),) = re.findall(r"An `(UPDATE [^`]+)`, as JSON:\n\n```json\n(.*?)\n```", text, re.DOTALL)
    capture = Capture(
        "CREATE TABLE shop.orders (id int, line int, amount int, note text, status text, tags set<text>, "
        "PRIMARY KEY (id, line)) WITH cdc = {'enabled': true}"
    )
    (found,) = (one.value for one in capture.run(statement))
    assert found is not None
    example = json.loads(shown)
    example["source"] |= {name: found["source"][name] for name in PLACE}
    assert list(example["source"]) == list(found["source"])
    assert json.dumps(json_value(example)) == json.dumps(json_value(found))
    with_ttl = capture.run(statement.replace(" SET ", " USING TTL 3600 SET "))
    changes = [one.value for one in with_ttl if one.value is not None]
    assert [(one["ttl"], one["source"]["batch_seq_no"]) for one in changes] == [(None, 0), (3600, 1)]
    touched = [{name for name, change in one["columns"].items() if change is not None} for one in changes]
    assert touched == [{"note"}, {"status", "tags"}]
    assert len({one["source"]["timestamp_us"] for one in changes}) == 1
