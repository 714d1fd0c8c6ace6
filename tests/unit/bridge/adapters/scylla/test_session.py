"""Which node a session asks, with a driver that sends requests to one node after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from cassandra.cqltypes import UTF8Type
from cassandra.query import PreparedStatement

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession, NodeRows
from bridge.errors import RetriableError

NODES = ("10.0.0.1:9042", "10.0.0.2:9042", "10.0.0.3:9042")


class Answer:
    """One page, as the driver's future and as its result."""

    def __init__(self, host: Any, rows: Sequence[bytes], paging_state: bytes | None) -> None:
        self.coordinator_host = host
        self.columns = SimpleNamespace(names=("stream",), driver_types=(UTF8Type,))
        self._paging_state = paging_state
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[bytes]]:
        return iter([(row,) for row in self._rows])

    def add_callbacks(self, callback: Callable[[Any], None], errback: Callable[[Exception], None]) -> None:
        assert errback is not None
        callback(self)


class Driver:
    """A driver's session. Each node has its own view of a table, in pages of two rows."""

    _protocol_version = 4

    def __init__(self, views: dict[str, list[bytes]]) -> None:
        self.views = views
        self.asked: list[str] = []
        self.hosts = {node: SimpleNamespace(endpoint=node) for node in views}
        self._turns = cycle(views)

    def get_pool_state(self) -> dict[Any, None]:
        return dict.fromkeys(map(Hashable, self.hosts.values()))

    def prepare(self, cql: str) -> PreparedStatement:
        return PreparedStatement([], b"", [], cql, "system", 4, [], None)

    def execute_async(self, _bound: object, paging_state: bytes | None = None, host: Any = None) -> Answer:
        node = next(self._turns) if host is None else str(host.endpoint)
        self.asked.append(node)
        begin = int(paging_state or b"0")
        view, end = self.views[node], begin + 2
        return Answer(self.hosts[node], view[begin:end], b"%d" % end if end < len(view) else None)


class Hashable:
    """A host as the key of a mapping."""

    def __init__(self, host: Any) -> None:
        self.endpoint = host.endpoint


def session(driver: Driver) -> CqlSession:
    settings: Any = SimpleNamespace(contact_points=("here:9042",))
    cluster: Any = SimpleNamespace()
    given: Any = driver
    return CqlSession(cluster, given, settings)


def test_all_pages_of_a_list_come_from_one_node() -> None:
    """Another node may lag behind, and would end the list early."""
    streams = [b"%d" % number for number in range(7)]
    driver = Driver({NODES[0]: streams, NODES[1]: streams[:2], NODES[2]: []})
    found = session(driver).rows("SELECT stream FROM system.cdc_streams")
    assert [row["stream"] for row in found] == ["0", "1", "2", "3", "4", "5", "6"]
    assert driver.asked == [NODES[0]] * 4


def test_a_list_names_its_node() -> None:
    """Any node in turn, or the one that is wanted."""
    driver = Driver({node: [node.encode()] for node in NODES})
    cql = session(driver)
    assert cql.nodes == set(NODES)
    for node in (*NODES, NODES[0]):
        answer = cql.node_rows("SELECT stream FROM system.cdc_streams")
        assert (answer.node, answer.rows[0]["stream"]) == (node, node)
    assert cql.node_rows("SELECT stream FROM system.cdc_streams", node=NODES[0]).node == NODES[0]


class ClockSession:
    """Nodes with clocks; some are down, which the driver does not know yet."""

    def __init__(self, down: Sequence[str] = ()) -> None:
        self.nodes = frozenset(NODES)
        self.down = down
        self.asked: list[str | None] = []

    def node_rows(self, _cql: str, *, consistency: str, node: str | None = None) -> NodeRows:
        assert consistency == "ONE"
        self.asked.append(node)
        if node in self.down:
            raise RetriableError("down")
        now = datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
        return NodeRows(node or NODES[0], [{"system.totimestamp(system.now())": now}])


def test_clocks_of_all_nodes_are_asked_in_turn() -> None:
    """So that no node is missed, whatever else the session asks meanwhile."""
    fake: Any = ClockSession()
    log = ChangeLog(fake)
    for _ in range(3):
        assert {log.node_time().node for _ in NODES} == set(NODES)
    assert log.node_time()[1:] == (7_000_000, set(NODES))


def test_a_node_that_is_down_does_not_hide_the_time() -> None:
    """Another node answers in its place."""
    fake: Any = ClockSession(down=NODES[1:])
    log = ChangeLog(fake)
    assert [log.node_time().node for _ in range(6)] == [NODES[0]] * 6
    assert fake.asked.count(None) == 4
