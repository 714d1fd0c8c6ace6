"""The worked examples of docs/output.md are what the code makes of their statements."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bridge.dead_letters import FORMAT_VERSION
from bridge.encoding import RecordForm
from bridge.value_text import json_value
from schemas.output import OutputOptions, ShapeName
from tests.unit.bridge.carried import Capture, Carried

DOCUMENT = Path(__file__).parents[3] / "docs" / "output.md"
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
def carried(shape: ShapeName) -> dict[str, Carried]:
    output = OutputOptions(shape=shape, name="orders-bridge", key=KEYS[shape])  # type: ignore[arg-type]
    capture = Capture(TABLE, output=output, form=RecordForm(dead_letters=True))
    return {name: one for name, statement in STATEMENTS.items() for one in capture.run(statement)}


def block(fields: dict[str, Any]) -> str:
    """A document with a field a line, and `source` a line a field."""
    lines = []
    for name, value in fields.items():
        text = json.dumps(json_value(value), ensure_ascii=False)
        if name == "source" and isinstance(value, dict):
            inner = (f"    {json.dumps(part)}: {json.dumps(json_value(one))}" for part, one in value.items())
            text = "{\n" + ",\n".join(inner) + "\n  }"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def example(shape: ShapeName, name: str) -> str:
    """The document of an example; `source` is shown with the first one of a shape."""
    if name == "key":
        return json.dumps(carried(shape)["insert"].key)
    value = carried(shape)[name].value
    assert value is not None
    return block({field: one for field, one in value.items() if field != "source" or name == "insert"})


def test_examples() -> None:
    """Each shape has all of its examples, and each is what the code gives, to the letter."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = EXAMPLE.findall(text)
    assert [(shape, name) for shape, name, _ in found] == [
        (shape, name) for shape in KEYS for name in (*STATEMENTS, "key")
    ]
    for shape, name, shown in found:
        expected = example(shape, name)
        assert shown == expected, f"docs/output.md, {shape}, {name}: should be\n{expected}"


@pytest.mark.parametrize("text", [TABLE, *STATEMENTS.values()])
def test_statements(text: str) -> None:
    """The document shows the statements of which its examples are made."""
    assert text in DOCUMENT.read_text(encoding="utf-8")


def test_dead_letter() -> None:
    """The fields of a dead letter are listed, under the version that there is."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f'"v": {FORMAT_VERSION}' in text
