"""What the planner's tests share."""

from __future__ import annotations

import pytest

from tests.unit.bridge.engine.planner_fakes import G1, Clock, Cluster, at


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock(cluster: Cluster) -> Clock:
    """A clock for tests of the request rate; the cluster then has one generation, which began 1,000 s ago."""
    cluster.starts, cluster.now_us = [G1], at(G1, 1000).time_us
    return Clock()
