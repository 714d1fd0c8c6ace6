"""The facts about a table that outlive a job."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, canonical_json
from bridge.model.micro_batch import Layout
from bridge.model.table_facts import KnownTopic, TableFacts
from bridge.model.times import UnixMicros, UnixMillis

FACTS = TableFacts(
    UUID(int=7), ((UnixMicros(5), 60), (UnixMicros(9), 0)), KnownTopic("shop.item", "kX_-", UnixMicros(11))
)
TEXT = (
    '{"log":"00000000-0000-0000-0000-000000000007","topic":{"id":"kX_-","name":"shop.item","seen_us":11},'
    '"ttl":[[5,60],[9,0]]}'
)


def test_facts_have_fixed_bytes() -> None:
    """The next release reads them, too."""
    assert canonical_json(FACTS.to_json()) == TEXT
    assert TableFacts.from_json(json.loads(TEXT)) == FACTS
    assert TableFacts.from_json(json.loads(canonical_json(TableFacts().to_json()))) == TableFacts()


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '{"log":5,"ttl":[],"topic":null}',
        '{"log":"x","ttl":[],"topic":null}',
        '{"log":null,"ttl":[[5]],"topic":null}',
        '{"log":null,"ttl":[["x",5]],"topic":null}',
        '{"log":null,"ttl":[],"topic":{"name":"t","id":"a"}}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """A record with another format is an error that names it."""
    with pytest.raises(BridgeError, match=r"not a (table's facts|change topic): "):
        TableFacts.from_json(json.loads(text))


def test_progress_keeps_facts() -> None:
    """And a record without facts has none."""
    cursor = Cursor(UnixMillis(1), UnixMicros(1000))
    progress = LaneProgress(0, Layout(1, cursor), cursor, first=True, edge_us=UnixMicros(3))
    assert b"facts" not in progress.to_bytes()
    known = replace(progress, facts=FACTS)
    assert LaneProgress.from_bytes(known.to_bytes()) == known
    assert f'"facts":{TEXT},' in known.to_bytes().decode()
    with pytest.raises(BridgeError, match="not a table's facts"):
        LaneProgress.from_bytes(known.to_bytes().replace(b'"ttl":[[5,60]', b'"ttl":[[5]'))
