"""What the planner learns about a table, for the lanes' progress records."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from bridge.adapters.planner_signals import ReplacedTopic
from bridge.model.table_facts import KnownTopic, TableFacts
from bridge.model.times import UnixMicros
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.engine.planner_fakes import G1, LAYOUT, LOG, SECOND, Clock, Cluster, at, planned, planner_of

BEFORE = TableFacts(LOG, ((UnixMicros(5), 3600),), KnownTopic("ks.t", "a", UnixMicros(7)))


def test_facts_of_the_start_go_on(cluster: Cluster, clock: Clock) -> None:
    """Until the cluster says otherwise; another log's TTLs are forgotten with it."""
    del clock
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 990), facts=BEFORE), confidence_ms=0)
    assert planner.facts == BEFORE
    cluster.ttl_s = 3600
    end = planned(planner, planner.first_offset())
    assert planner.facts == BEFORE
    now_us = cluster.now_us = at(G1, 1010).time_us
    cluster.log_id, cluster.ttl_s = UUID(int=2), 60
    planner.next_offset(end)
    assert planner.facts == TableFacts(UUID(int=2), ((now_us, 60),), BEFORE.topic)
    assert planner_of(cluster, None).facts == TableFacts()


def test_new_facts_do_not_wait_for_changes(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """A table without changes gets a micro-batch, with which the progress topic gets the new facts."""
    file = tmp_path / "changes-came"
    file.touch()
    cluster.ttl_s = 86_400
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 990)), clock=clock, signals=str(file), confidence_ms=0)
    clock.now_s += 600
    end = planned(planner, planner.first_offset())
    cluster.now_us += 10 * SECOND
    clock.now_s += 10
    assert planner.next_offset(end) is None
    cluster.ttl_s = 3600
    slept_s = clock.slept_s
    end = planned(planner, end)
    assert clock.slept_s == slept_s
    assert [ttl_s for _, ttl_s in planner.facts.ttls] == [86_400, 3600]
    cluster.now_us += SECOND
    clock.now_s += 1
    assert planner.next_offset(end) is None


def test_topic_that_the_job_hands_over_counts(cluster: Cluster, tmp_path: Path) -> None:
    """It has replaced the one of the start. A torn file is as good as none."""
    file = tmp_path / "changes-came"
    file.touch()
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 990), facts=BEFORE), signals=str(file))
    assert planner.facts == BEFORE
    topic = KnownTopic("ks.t", "b", UnixMicros(9))
    ReplacedTopic(str(file)).write(topic)
    assert planner.facts.topic == topic
    (tmp_path / "change-topic").write_text("{", "utf-8")
    assert planner.facts == BEFORE
