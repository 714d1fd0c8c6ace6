"""The servers' time, estimated from slow answers of nodes that differ, on clocks that step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import RetriableError
from bridge.model.times import UnixMicros
from bridge.planning.server_clock import ASK_EVERY_S, NodeTime, ServerTime, ServerTimeEstimate
from tests.unit.any_tables import examples

SECOND = 1_000_000
T = 1_700_000_000 * SECOND


@dataclass
class World:
    """True time, and how far each clock is off it, in s; the nodes answer in turn."""

    now_s: float = 1000.0
    own_off_s: float = 0.0
    servers_off_s: float = 0.0
    slow: dict[str, float] = field(default_factory=dict)
    nodes: int = 1
    takes_s: float = 0.001
    asked: int = 0
    fails: bool = False

    def ask(self) -> NodeTime:
        if self.fails:
            raise RetriableError("away")
        self.asked += 1
        self.now_s += self.takes_s
        node = str(self.asked % self.nodes)
        answer = self.at(self.servers_off_s + self.slow.get(node, 0.0)) // 1000 * 1000
        self.now_s += self.takes_s
        return NodeTime(node, UnixMicros(answer), set(map(str, range(self.nodes))))

    def at(self, off_s: float = 0.0) -> int:
        return T + int((self.now_s + off_s) * SECOND)

    def time(self) -> ServerTime:
        return ServerTime(self.ask, lambda: UnixMicros(self.at(self.own_off_s)), lambda: self.now_s)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, 29), st.floats(-100, 100), st.floats(0, 12), st.floats(0, 300)),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 30),
    st.floats(-100, 100),
)
def test_latest_answer_of_each_node_counts(
    answers: list[tuple[int, float, float, float]], gone: int, own_off_s: float
) -> None:
    """The estimate is at most 0.25 s later than the earliest node, and never earlier by more than the answer took.

    Nodes from `gone` on leave before the last answer; those that were not heard for an hour do not count either.
    """
    clock = ServerTimeEstimate()
    now_s = 50.0
    kept: dict[str, tuple[float, float, float]] = {}
    for place, (number, off_s, took_s, then_s) in enumerate(answers):
        said_us = T + int((now_s + took_s / 2 + off_s) * SECOND)
        is_last = place == len(answers) - 1
        nodes = {str(one) for one in range(30) if one == number or one < gone or not is_last}
        answered_s = now_s + took_s
        clock.add_answer(NodeTime(str(number), UnixMicros(said_us // 1000 * 1000), nodes), now_s, answered_s)
        kept[str(number)] = off_s, took_s, answered_s
        kept = {node: one for node, one in kept.items() if node in nodes and answered_s - one[2] < 3600}
        now_s = answered_s + then_s
    earliest_us = T + (now_s + min(off_s for off_s, _, _ in kept.values())) * SECOND
    slowest_s = max(took_s for _, took_s, _ in kept.values())
    found_us = clock.now_us(now_s)
    assert earliest_us - slowest_s * SECOND - 1002 <= found_us <= earliest_us + 0.25 * SECOND + 1002
    own_us = UnixMicros(T + int((now_s + own_off_s) * SECOND))
    ahead_us = clock.ahead_us(own_us, now_s)
    truly_us = own_us - earliest_us
    assert abs(ahead_us - truly_us) <= slowest_s * SECOND + 0.25 * SECOND + 2004
    assert ahead_us == 0 or own_us - ahead_us == pytest.approx(found_us, abs=slowest_s * SECOND + 2004)


@pytest.mark.parametrize("nodes", [8, 9, 60, 300])
def test_slow_clock_of_one_node_among_many_is_not_forgotten(nodes: int) -> None:
    """It counts from its first answer on, however many others answer before its next one."""
    world = World(nodes=nodes, slow={"3": -7.0}, own_off_s=1)
    found = world.time()
    for _ in range(3):
        found.earlier_us()
        world.now_s += ASK_EVERY_S
    for _ in range(3 * nodes):
        assert found.earlier_us() == pytest.approx(world.at(-7), abs=5_000)
        world.now_s += ASK_EVERY_S


def test_clocks_that_agree_cost_no_time() -> None:
    """Windows are planned by this machine's clock unless an answer contradicts it; servers are asked seldom."""
    world = World(takes_s=0.02)
    found = world.time()
    for _ in range(100):
        assert found.earlier_us() == world.at()
        assert found.ahead_us() == 0
        world.now_s += 0.5
    assert 1 < world.asked <= 1 + 50 / ASK_EVERY_S


def test_clock_that_is_ahead_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    """From the first answer on, and after each step. The log names the difference once."""
    world = World(own_off_s=90)
    found = world.time()
    for step_s in (0, 0, 3600, -1800):
        world.own_off_s += step_s
        world.now_s += 3
        assert found.earlier_us() == pytest.approx(world.at(), abs=5_000)
        assert found.servers_us() == pytest.approx(world.at(), abs=5_000)
        assert found.ahead_us() == pytest.approx(world.own_off_s * SECOND, abs=5_000)
    (words,) = caplog.messages
    assert "is 90.0 s ahead of the ScyllaDB servers' (2023-11-14T22:30:03" in words


def test_clock_that_goes_back_only_delays(caplog: pytest.LogCaptureFixture) -> None:
    """The earlier clock counts. The log says so after the next answer, and again when it is over."""
    world = World()
    found = world.time()
    found.earlier_us()
    world.own_off_s = -50
    assert found.earlier_us() == world.at(-50)
    assert not caplog.messages
    world.now_s += ASK_EVERY_S
    assert found.ahead_us() == pytest.approx(-50 * SECOND, abs=5_000)
    assert "50.0 s behind the ScyllaDB servers'" in caplog.text
    world.own_off_s = 0
    world.now_s += ASK_EVERY_S
    with caplog.at_level("INFO"):
        assert found.ahead_us() == 0
    assert "agrees" in caplog.text


def test_servers_that_are_set_back_are_believed_at_once() -> None:
    """Servers that are set forward are believed when the last node has answered again."""
    world = World(own_off_s=30, servers_off_s=30, nodes=8)
    found = world.time()
    for _ in range(8):
        found.earlier_us()
        world.now_s += ASK_EVERY_S
    world.servers_off_s = 0
    assert found.earlier_us() == pytest.approx(world.at(), abs=5_000)
    for _ in range(8):
        world.now_s += ASK_EVERY_S
        found.earlier_us()
    world.servers_off_s = 30
    for _ in range(7):
        world.now_s += ASK_EVERY_S
        assert found.earlier_us() < world.at(1)
    world.now_s += ASK_EVERY_S
    assert found.earlier_us() == world.at(30)


def test_an_error_of_the_servers_is_raised() -> None:
    """The next call asks again."""
    world = World(fails=True)
    found = world.time()
    for _ in range(2):
        with pytest.raises(RetriableError, match="away"):
            found.earlier_us()
    world.fails = False
    assert found.earlier_us() == world.at()
