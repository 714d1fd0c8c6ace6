"""The command `status`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bridge.cli import status
from bridge.cli.lane_status import ProgressSource, read_tables
from bridge.cli.status import align_columns, status_document, status_rows
from bridge.config.document import validate
from bridge.errors import RetriableError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, lower_bound
from tests.unit.bridge.cli.command_line import run_cli

CONFIG = validate(
    {
        "name": "job",
        "scylla": {"contact_points": "a:1"},
        "kafka": {"bootstrap_servers": "a:1"},
        "registry": {"url": "http://a"},
        "tables": ["shop.orders", "shop.lines"],
    }
)
GENERATION = UnixMillis(1_700_000_000_000)
COMMITTED_MS = 1_700_000_090_000
NOW_US = UnixMicros(1_700_000_100_000_000)


def _at(seconds: int) -> Cursor:
    return Cursor(GENERATION, UnixMicros(1_700_000_000_000_000 + seconds * 1_000_000))


def _source(values: dict[tuple[str, int], bytes | Exception | None]) -> ProgressSource:
    def last_value(topic: str, lane: int) -> tuple[bytes, int] | None:
        value = values[topic, lane]
        if isinstance(value, Exception):
            raise value
        return None if value is None else (value, COMMITTED_MS)

    return ProgressSource(lambda topic: sum(one == topic for one, _ in values), last_value)


ORDERS = "job.progress.shop.orders"


def _orders(*values: LaneProgress | Exception | bytes | None) -> ProgressSource:
    raw = [value.to_bytes() if isinstance(value, LaneProgress) else value for value in values]
    return _source({(ORDERS, lane): value for lane, value in enumerate(raw)})


def test_lanes() -> None:
    """A row has the lane's generation, the time that it has reached, its lag and its transactional id."""
    layout = Layout(2, _at(0))
    tables = read_tables(CONFIG, _orders(LaneProgress(0, layout, _at(60)), LaneProgress(1, layout, _at(40))))
    assert status_rows(tables, NOW_US) == [
        (
            "shop.orders", "0 of 2", "assigned", "2023-11-14T22:13:20.000Z", "2023-11-14T22:14:20.000000Z", "40.0",
            "2023-11-14T22:14:50.000Z", "job.shop.orders.0",
        ),
        (
            "shop.orders", "1 of 2", "assigned", "2023-11-14T22:13:20.000Z", "2023-11-14T22:14:00.000000Z", "60.0",
            "2023-11-14T22:14:50.000Z", "job.shop.orders.1",
        ),
        ("shop.lines", "-", "no progress yet", "-", "-", "-", "-", "-"),
    ]  # fmt: skip


def test_inside_a_window() -> None:
    """A lane whose transaction ended inside a window has reached the last group, not only the window's start."""
    done = LanePosition(0, GroupPosition.of(bytes(16), lower_bound(_at(70).time_us)))
    batch = PlannedBatch(_at(60), _at(80), Layout(1, _at(0)))
    tables = read_tables(CONFIG, _orders(LaneProgress.inside(0, batch, done)))
    assert status_rows(tables, NOW_US)[0][5] == "30.0"


def test_retired_lanes() -> None:
    """Retired lanes are left out of the rows, and marked in the document."""
    old, new = Layout(2, _at(0)), Layout(1, _at(50))
    tables = read_tables(CONFIG, _orders(LaneProgress(0, new, _at(60)), LaneProgress(1, old, _at(50))))
    assert [row[1] for row in status_rows(tables, NOW_US)][:1] == ["0 of 1"]
    assert len(status_rows(tables, NOW_US)) == 2
    lanes = status_document(CONFIG, tables, NOW_US)["tables"][0]["lanes"]
    assert [lane["state"] for lane in lanes] == ["assigned", "retired"]


def test_partitions_without_lanes() -> None:
    """A partition without progress has no row of its own; a topic without records is no progress."""
    tables = read_tables(CONFIG, _orders(LaneProgress(0, Layout(1, _at(0)), _at(60)), None))
    assert len(tables[0].lanes) == 2
    assert len(status_rows(tables, NOW_US)) == 2
    assert status_rows(read_tables(CONFIG, _orders(None, None)), NOW_US)[0][2] == "no progress yet"


@pytest.mark.parametrize("bad", [RetriableError("hidden by an open transaction"), b"no JSON", b'{"v":99}'])
def test_unreadable_lane(bad: Exception | bytes) -> None:
    """An unreadable lane has its reason, and the others are still shown."""
    tables = read_tables(CONFIG, _orders(LaneProgress(0, Layout(2, _at(0)), _at(60)), bad))
    first, second, _ = status_rows(tables, NOW_US)
    assert first[2] == "assigned"
    assert second[2].startswith("unreadable: ")


def test_kafka_refuses() -> None:
    """A refusal of Kafka is raised."""

    def refuse(topic: str) -> int:
        raise StartupError(f"not allowed to see {topic}")

    with pytest.raises(StartupError, match="not allowed"):
        read_tables(CONFIG, ProgressSource(refuse, lambda _topic, _lane: None))


def test_document() -> None:
    """The document has all of a lane's state, as JSON values."""
    tables = read_tables(CONFIG, _orders(LaneProgress(0, Layout(1, _at(0)), _at(160))))
    document = json.loads(json.dumps(status_document(CONFIG, tables, NOW_US)))
    assert (document["v"], document["job"], document["at"]) == (1, "job", "2023-11-14T22:15:00.000000Z")
    orders, lines = document["tables"]
    assert lines == {
        "table": "shop.lines", "topic": "shop.lines", "progress_topic": "job.progress.shop.lines", "layout": None,
        "lanes": [],
    }  # fmt: skip
    assert orders["layout"] == {"lanes": 1, "since": [GENERATION, _at(0).time_us]}
    assert orders["lanes"] == [
        {
            "lane": 0,
            "state": "assigned",
            "reason": None,
            "transactional_id": "job.shop.orders.0",
            "generation_ms": GENERATION,
            "generation": "2023-11-14T22:13:20.000Z",
            "cursor": "2023-11-14T22:16:00.000000Z",
            "committed": "2023-11-14T22:14:50.000Z",
            "reached": "2023-11-14T22:16:00.000000Z",
            "lag_s": 0,
            "layout": {"lanes": 1, "since": [GENERATION, _at(0).time_us]},
        }
    ]


def test_plain() -> None:
    """The rows are aligned below a header."""
    text = align_columns([("a.table", "0 of 1", "assigned", "g", "r", "1.0", "c", "id")])
    header, line = text.splitlines()
    assert header.index("lane") == line.index("0 of 1")
    assert line.split() == ["a.table", "0", "of", "1", "assigned", "g", "r", "1.0", "c", "id"]


class TestCommand:
    @pytest.fixture(autouse=True)
    def _kafka(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cursor = Cursor.at_start_of(UnixMillis(1_700_000_000_000))
        raw = LaneProgress(0, Layout(1, cursor), cursor).to_bytes()
        source = ProgressSource(lambda topic: int(topic == "job.progress.shop.lines"), lambda *_: (raw, 0))
        monkeypatch.setattr(status, "open_kafka", lambda *_, **__: None)
        monkeypatch.setattr(ProgressSource, "of_kafka", lambda *_: source)

    def test_plain(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a terminal, the command prints aligned lines."""
        assert run_cli("status", "-c", config) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["table", "shop.orders", "shop.lines"]

    def test_json(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """With --json, the command prints one document."""
        assert run_cli("status", "-c", config, "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert [len(one["lanes"]) for one in document["tables"]] == [0, 1]

    def test_watch(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """With --watch, the status is printed repeatedly until Ctrl-C."""
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(status, "time", SimpleNamespace(sleep=pause, time_ns=lambda: 1_700_000_001_000_000_000))
        assert run_cli("status", "-c", config, "--json", "--watch") == 0
        assert len(capsys.readouterr().out.splitlines()) == 3

    def test_terminal(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """On a terminal, the command prints a table."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert run_cli("status", "-c", config) == 0
        assert "┃" in capsys.readouterr().out
