"""Stream sets of tablets, from nodes that lag behind or answer with a part of a list."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.adapters.scylla.stream_metadata import select
from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.errors import RetriableError
from bridge.model.micro_batch import Role, Selection
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, lane_range
from bridge.model.times import UnixMillis
from bridge.planning.micro_batches import GenerationStart
from tests.unit.bridge.adapters.scylla.fake_session import TABLET_STREAMS, TABLET_TIMES, FakeSession, time

WHOLE = lane_range(0, 1)
G1, G2, G3 = UnixMillis(1000), UnixMillis(2000), UnixMillis(3000)


def stream(token: int, number: int = 0) -> StreamId:
    return StreamId.build(Token(token), 0, number)


Set = tuple[UnixMillis, set[StreamId], set[StreamId]]


def tablet_rows(*sets: Set) -> dict[str, list[dict[str, Any]]]:
    """The rows of stream sets, given their current and their opened streams, in ScyllaDB's order."""
    name = {"keyspace_name": "ks", "table_name": "t"}
    before: list[set[StreamId]] = [set(), *(current for _, current, _ in sets)]
    return {
        TABLET_TIMES: [name | {"timestamp": time(start)} for start, _, _ in reversed(sets)],
        TABLET_STREAMS: [
            name | {"timestamp": time(start), "stream_state": state, "stream_id": one.raw}
            for (start, current, opened), former in zip(sets, before, strict=False)
            for state, streams in ((0, current), (1, former - current), (2, opened))
            for one in sorted(streams, key=lambda one: one.token)
        ],
    }


A, B, B1, B2 = stream(-5), stream(MAX_TOKEN), stream(2, 1), stream(MAX_TOKEN, 1)
FIRST = (G1, {A, B}, {A, B})
SPLIT = (G2, {A, B1, B2}, {B1, B2})
REPLACED = (G3, {stream(MAX_TOKEN, 2)}, {stream(MAX_TOKEN, 2)})


def tablets(session: FakeSession) -> TabletStreams:
    return TabletStreams(session, "ks", "t")


def test_kept_streams_of_tablets_are_recognized() -> None:
    """A change that keeps some streams is distinguished from one that replaces all."""
    session = FakeSession(tablet_rows(FIRST, SPLIT, REPLACED))
    metadata = tablets(session)
    expected = [GenerationStart(G1), GenerationStart(G2, replaces_all=False), GenerationStart(G3)]
    assert metadata.generations() == expected
    assert TabletStreams(session, "ks", "other").generations() == []
    asked = len(session.asked)
    assert metadata.generations() == expected
    assert len(session.asked) == asked + 1  # known sets are not read again


def test_streams_have_the_set_that_opened_them() -> None:
    """So the generation of a change does not depend on when it is read."""
    metadata = tablets(FakeSession(tablet_rows(FIRST, SPLIT)))
    here, before = metadata.streams(G2, WHOLE), metadata.streams(G1, WHOLE)
    assert here == {A: G1, B1: G2, B2: G2}
    assert metadata.streams(G2, lane_range(0, 2)) == {A: G1}
    assert select(Selection(G2), here, {}) == here
    assert select(Selection(G2, Role.KEPT, G1), here, before) == {A: G1}
    assert select(Selection(G2, Role.OPENED, G1), here, before) == {B1: G2, B2: G2}
    assert select(Selection(G2, Role.CLOSED, G1), here, before) == {B: G1}


def test_answer_of_a_lagging_node_is_ignored() -> None:
    """The node may not know the newest set, or know its time but not its streams."""
    session = FakeSession(tablet_rows(FIRST, SPLIT))
    metadata = tablets(session)
    both = metadata.generations()
    session.tables = tablet_rows(FIRST)
    assert metadata.generations() == both
    session.tables = {TABLET_TIMES: tablet_rows(FIRST, SPLIT, REPLACED)[TABLET_TIMES], TABLET_STREAMS: []}
    assert metadata.generations() == both
    with pytest.raises(RetriableError, match=r"ks\.t: the streams of 2000 are not known"):
        metadata.streams(G2, WHOLE)
    session.tables = tablet_rows(FIRST, SPLIT, REPLACED)
    assert [one.start_ms for one in metadata.generations()] == [G1, G2, G3]


def test_set_is_not_used_before_its_predecessor() -> None:
    """A node may know the newest set, but of the set before it only the time; that one must not be skipped."""
    whole = tablet_rows(FIRST, SPLIT, REPLACED)
    session = FakeSession(
        whole | {TABLET_STREAMS: [row for row in whole[TABLET_STREAMS] if row["timestamp"] != time(G2)]}
    )
    metadata = tablets(session)
    assert [one.start_ms for one in metadata.generations()] == [G1]
    session.tables = whole
    assert [one.start_ms for one in metadata.generations()] == [G1, G2, G3]


def test_deleted_sets_vanish() -> None:
    """All streams of the oldest remaining set count as opened by it."""
    session = FakeSession(tablet_rows(FIRST, SPLIT, REPLACED))
    metadata = tablets(session)
    metadata.generations()
    session.tables = tablet_rows((G2, SPLIT[1], SPLIT[1]), REPLACED)
    assert [one.start_ms for one in metadata.generations()] == [G2, G3]
    assert metadata.streams(G2, WHOLE) == dict.fromkeys(sorted(SPLIT[1]), G2)


def test_key_ranges_of_tablets() -> None:
    """The keys up to the stream's own token; a kept stream has the same range in each set."""
    b, b1, b2, last = stream(5), stream(2, 1), stream(5, 1), stream(MAX_TOKEN)
    metadata = tablets(FakeSession(tablet_rows((G1, {A, b, last}, {A, b, last}), (G2, {A, b1, b2, last}, {b1, b2}))))
    for generation, one, after, until in ((G1, A, None, -5), (G2, A, None, -5), (G1, b, -5, 5), (G2, b2, 2, 5)):
        range_ = metadata.key_ranges(generation, WHOLE)[one]
        assert range_.holds(one, Token(until))
        assert not range_.holds(one, Token(until + 1))
        assert range_.holds(one, Token(MIN_TOKEN + 1 if after is None else after + 1))
        assert not range_.holds(one, Token(MAX_TOKEN if after is None else after))


def test_streams_of_tablets_are_counted() -> None:
    """0 if the node does not know the generation yet."""
    split = tablets(FakeSession(tablet_rows(FIRST, SPLIT)))
    assert [split.count(one) for one in (G1, G2, G3)] == [2, 3, 0]


EIGHT = {stream(token) for token in (-900, -600, -300, 0, 300, 600, 900, MAX_TOKEN)}
SIXTEEN = {stream(token, 1) for token in (*range(-900, 900, 120), MAX_TOKEN)}
REPLACEMENT = [(G1, EIGHT, EIGHT), (G2, SIXTEEN, SIXTEEN)]
KEPT = [(G1, EIGHT, EIGHT), (G2, EIGHT - {stream(0)} | {stream(0, 1)}, {stream(0, 1)})]


@pytest.mark.parametrize("sets", [REPLACEMENT[:1], REPLACEMENT, KEPT, REPLACEMENT[1:]])
@pytest.mark.parametrize("in_token_order", [True, False])
def test_part_of_a_list_is_never_taken_for_all_of_it(sets: list[Set], in_token_order: bool) -> None:
    """Wherever the list of the newest set ends early, the error names table, generation and node, or the node lags."""
    whole = tablet_rows(*sets)
    if not in_token_order:
        whole[TABLET_STREAMS].sort(key=lambda row: (row["timestamp"], row["stream_state"], row["stream_id"]))
    newest, current, _ = sets[-1]
    places = [place for place, row in enumerate(whole[TABLET_STREAMS]) if row["timestamp"] == time(newest)]
    for place in places:
        session = FakeSession(whole | {TABLET_STREAMS: whole[TABLET_STREAMS][:place]})
        metadata = tablets(session)
        for read in (lambda m=metadata: m.streams(newest, WHOLE), lambda m=metadata: m.key_ranges(newest, WHOLE)):
            with pytest.raises(
                RetriableError, match=rf"^ks\.t: the (list of the )?streams of .*{newest} .*10\.0\.0\.1"
            ):
                read()
        if place > places[0]:
            with pytest.raises(RetriableError, match="incomplete"):
                metadata.generations()
            with pytest.raises(RetriableError, match="incomplete"):
                metadata.count(newest)
        session.tables = whole
        assert metadata.generations()[-1].start_ms == newest
        assert metadata.streams(newest, WHOLE).keys() == current
