"""Gaps between a cursor and what the cluster still has."""

from __future__ import annotations

from uuid import UUID

import pytest

from bridge.errors import DataLossError, RetriableError
from bridge.model.cursor import CatchUp, Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.data_loss import ahead_of_servers_us, find_gap, overtaken_generation
from bridge.planning.micro_batches import GenerationStart

SECOND = 1_000_000
LOG = UUID(int=1)
G1, G2, G3 = (UnixMillis(1_700_000_000_000 + minutes * 60_000) for minutes in (0, 1, 2))
ALL = [GenerationStart(one) for one in (G1, G2, G3)]


def at(generation: UnixMillis, seconds: float) -> Cursor:
    return Cursor(generation, UnixMicros(generation * 1000 + int(seconds * SECOND)))


@pytest.mark.parametrize(
    ("cursor", "oldest_us"),
    [(at(G1, 10), None), (at(G1, 10), at(G1, 10).time_us), (at(G3, 0), at(G2, 59).time_us)],
)
def test_no_gap(cursor: Cursor, oldest_us: UnixMicros | None) -> None:
    """The generation is known, and nothing has expired."""
    assert find_gap(cursor, ALL, oldest_us) is None


def test_expired_changes() -> None:
    """The span ends at the retention edge. An accepted loss does not move the cursor."""
    gap = find_gap(at(G1, 10), ALL, at(G2, 30).time_us)
    assert gap is not None
    assert (gap.since_us, gap.until_us, gap.go_on_at) == (at(G1, 10).time_us, at(G2, 30).time_us, at(G1, 10))
    assert str(gap) == (
        "the log's TTL has passed: changes written between 2023-11-14T22:13:30.000000Z and 2023-11-14T22:14:50.000000Z "
        "are affected"
    )
    assert (
        gap.advice()
        == "To continue from 2023-11-14T22:13:30.000000Z in spite of the loss, set reading.accept_data_loss"
    )


def test_lagging_streams_decide() -> None:
    """While opened streams catch up, their time decides whether changes may have expired."""
    behind = Cursor(G2, at(G2, 50).time_us, CatchUp(G1, at(G2, 0).time_us))
    gap = find_gap(behind, ALL, at(G2, 20).time_us)
    assert gap is not None
    assert (gap.since_us, gap.until_us) == (at(G2, 0).time_us, at(G2, 20).time_us)


def test_forgotten_generation() -> None:
    """Streams that the cluster has forgotten can't be read; the reading can continue in the oldest known generation."""
    gap = find_gap(at(G1, 10), ALL[1:], None)
    assert gap is not None
    assert (gap.since_us, gap.until_us, gap.go_on_at) == (at(G1, 10).time_us, at(G2, 0).time_us, at(G2, 0))
    # The next generation was published late, so the reading has passed its start.
    gap = find_gap(at(G1, 90), ALL[1:], None)
    assert gap is not None
    assert (gap.since_us, gap.until_us) == (at(G2, 0).time_us, at(G2, 0).time_us)


def test_log_that_was_created_again() -> None:
    """The span ends when the new log was created, and not when its first stream set began."""
    made_us = at(G2, 5).time_us
    gap = find_gap(at(G1, 59), ALL[1:], None, may_lag=True, log_made_us=made_us)
    assert gap is not None
    assert (gap.since_us, gap.until_us, gap.go_on_at) == (at(G1, 59).time_us, made_us, at(G2, 0))
    assert str(gap.error("ks.t")) == (
        "ks.t: the log was created again at 2023-11-14T22:14:25.000000Z, and does not have the streams of "
        "generation 2023-11-14T22:13:20.000Z, which was read: changes written between 2023-11-14T22:14:19.000000Z and "
        "2023-11-14T22:14:25.000000Z are affected. To continue from 2023-11-14T22:14:20.000000Z in spite of the loss, "
        "set reading.accept_data_loss"
    )
    # A log may be 5 s younger than its first stream set, so here the cluster has deleted old sets.
    gap = find_gap(at(G1, 59), ALL[1:], None, log_made_us=at(G1, 5).time_us)
    assert gap is not None
    assert "has forgotten the streams" in gap.reason


def test_nothing_of_a_log_that_is_younger_than_its_ttl_has_expired() -> None:
    """Changes of the former log are not considered here."""
    oldest_us = at(G2, 30).time_us
    assert find_gap(at(G2, 1), ALL, oldest_us, log_made_us=at(G2, 31).time_us) is None
    assert find_gap(at(G2, 1), ALL, oldest_us, log_made_us=oldest_us) is not None
    assert find_gap(at(G2, 1), ALL, oldest_us) is not None


def test_forgotten_predecessor_of_streams_that_catch_up() -> None:
    """Which streams were opened is not known, so the part that they lag behind is lost."""
    behind = Cursor(G2, at(G2, 50).time_us, CatchUp(G1, at(G2, 5).time_us))
    gap = find_gap(behind, ALL[1:], None)
    assert gap is not None
    assert (gap.since_us, gap.until_us, gap.go_on_at) == (at(G2, 5).time_us, at(G2, 50).time_us, at(G2, 50))


@pytest.mark.parametrize("known", [[], ALL[:1]])
def test_another_cluster(known: list[GenerationStart]) -> None:
    """If cursor and cluster do not belong together, the reading can't continue."""
    gap = find_gap(at(G2, 10), known, None)
    assert gap is not None
    assert (gap.since_us, gap.until_us, gap.go_on_at) == (at(G2, 10).time_us, None, None)
    assert "an unknown time" in str(gap)
    assert gap.advice() == (
        "The progress is kept. Check scylla.contact_points, that all nodes are up and that system_distributed is "
        "repaired, then restart the job: if the cluster knows the generation again, nothing is lost. Otherwise see "
        "'Unknown generation' in docs/failures.md"
    )
    # Without any generation the state passes: the table was read in one.
    assert type(gap.error("ks.t")) is (DataLossError if known else RetriableError)


def test_lagging_node_is_asked_again() -> None:
    """With tablets, a node may not know the latest generation yet; a generation that it has skipped is a gap."""
    gap = find_gap(at(G3, 10), ALL[:2], None, may_lag=True)
    assert gap is not None
    assert isinstance(gap.error("ks.t"), RetriableError)
    gap = find_gap(at(G2, 10), [ALL[0], ALL[2]], None, may_lag=True)
    assert gap is not None
    error = gap.error("ks.t")
    assert isinstance(error, DataLossError)
    assert str(error).startswith("ks.t: the cluster does not know generation 2023-11-14T22:14:20.000Z")


def test_generation_that_comes_out_of_order() -> None:
    """A generation that appears behind the one being read is found; one that a lagging node has forgotten is not."""
    assert overtaken_generation(at(G3, 1), {G1, G3}, ALL) == G2
    assert overtaken_generation(at(G3, 1), {G1, G2, G3}, ALL) is None
    assert overtaken_generation(at(G2, 1), {G1, G2}, ALL) is None
    assert overtaken_generation(at(G3, 1), {G2, G3}, ALL) is None
    assert overtaken_generation(at(G3, 1), set(), ALL) is None
    assert overtaken_generation(at(G3, 1), set(), ALL, G1) == G2  # a new planner knows `entered_from_ms` from Kafka
    assert overtaken_generation(at(G3, 1), set(), ALL, G2) is None
    assert overtaken_generation(at(G2, 1), {G2}, ALL, G1) is None


def test_cursor_is_ahead_of_the_servers_unless_it_is_a_generations_start() -> None:
    """No change is older than the start of its generation."""
    assert ahead_of_servers_us(at(G2, 10), at(G2, 7).time_us) == 3 * SECOND
    assert ahead_of_servers_us(at(G2, 10), at(G2, 10).time_us) == 0
    assert ahead_of_servers_us(Cursor.at_start_of(G2), at(G1, 7).time_us) == 0
