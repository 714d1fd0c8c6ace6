"""The command `status`: shows how far each lane of each table has got, once or every 2 s."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bridge.adapters.connect import open_kafka
from bridge.cli.lane_status import LaneStatus, ProgressSource, TableStatus, read_tables
from bridge.cli.output import print_line, print_notice
from bridge.config.document import BridgeConfig
from bridge.config.file import loader
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, iso_of_millis

COLUMNS: Final = ("table", "lane", "state", "generation", "reached", "lag (s)", "committed", "transactional id")
_WATCH_INTERVAL_S: Final = 2.0


def run(arguments: argparse.Namespace) -> int:
    """Show the lanes: as a table on a terminal, else as aligned lines, or as JSON with `--json`.

    Raises:
        ConfigError: the file has problems.
        StartupError: Kafka refuses to let us read.
        RetriableError: Kafka does not answer.
    """
    config = loader.load(arguments.config)
    source = ProgressSource.of_kafka(config.kafka, open_kafka(config, report=print_notice, patience_s=0))
    console = Console()

    def read_now() -> tuple[list[TableStatus], UnixMicros]:
        return read_tables(config, source), UnixMicros(time.time_ns() // 1000)

    def print_json() -> None:
        print_line(json.dumps(status_document(config, *read_now())))

    def print_aligned() -> None:
        sys.stdout.write(align_columns(status_rows(*read_now())))
        sys.stdout.flush()

    if arguments.json:
        return _show(print_json, repeat=arguments.watch)
    if not console.is_terminal:
        return _show(print_aligned, repeat=arguments.watch)
    if not arguments.watch:
        console.print(_terminal_table(*read_now()))
        return 0
    with Live(_terminal_table(*read_now()), console=console, auto_refresh=False) as live:
        return _show(lambda: live.update(_terminal_table(*read_now()), refresh=True), repeat=True)


def status_document(config: BridgeConfig, tables: list[TableStatus], now_us: UnixMicros) -> dict[str, Any]:
    """Return the status as JSON values.

    A lane's `lag_s` is `now_us` minus the time that it has reached; it includes the confidence window.
    """
    return {
        "v": 1,
        "job": config.name,
        "at": iso_of_micros(now_us),
        "tables": [
            {
                "table": table.name,
                "topic": table.topic,
                "progress_topic": table.progress_topic,
                "layout": None if table.layout is None else table.layout.to_json(),
                "lanes": [_lane_document(lane, now_us) for lane in table.lanes],
            }
            for table in tables
        ],
    }


def status_rows(tables: list[TableStatus], now_us: UnixMicros) -> list[tuple[str, ...]]:
    """Return the status as rows of `COLUMNS`, without retired lanes."""
    rows: list[tuple[str, ...]] = []
    for table in tables:
        lanes = [lane for lane in table.lanes if lane.state != "retired"]
        if all(lane.state == "none" for lane in lanes):
            rows.append((table.cql_name, "-", "no progress yet", "-", "-", "-", "-", "-"))
            continue
        lane_count = "?" if table.layout is None else str(table.layout.lanes)
        for lane in lanes:
            document = _lane_document(lane, now_us)
            state = f"unreadable: {lane.reason}" if lane.reason else lane.state
            values = (document[name] for name in ("generation", "reached", "lag_s", "committed"))
            texts = ("-" if value is None else str(value) for value in values)
            rows.append((table.cql_name, f"{lane.lane} of {lane_count}", state, *texts, lane.transactional_id))
    return rows


def align_columns(rows: list[tuple[str, ...]]) -> str:
    """Return rows of `COLUMNS` as aligned lines below a header."""
    lines = [COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded) + "\n"


def _show(show: Callable[[], object], *, repeat: bool) -> int:
    try:
        show()
        while repeat:
            time.sleep(_WATCH_INTERVAL_S)
            show()
    except KeyboardInterrupt:
        if not repeat:
            raise
    return 0


def _terminal_table(tables: list[TableStatus], now_us: UnixMicros) -> Table:
    table = Table(*COLUMNS)
    for row in status_rows(tables, now_us):
        table.add_row(*row)
    return table


def _lane_document(lane: LaneStatus, now_us: UnixMicros) -> dict[str, Any]:
    progress, reached_us = lane.progress, lane.reached_us
    return {
        "lane": lane.lane,
        "state": lane.state,
        "reason": lane.reason,
        "transactional_id": lane.transactional_id,
        "generation_ms": None if progress is None else progress.cursor.generation_ms,
        "generation": None if progress is None else iso_of_millis(progress.cursor.generation_ms),
        "cursor": None if progress is None else iso_of_micros(progress.cursor.time_us),
        "reached": None if reached_us is None else iso_of_micros(reached_us),
        "committed": None if lane.committed_ms is None else iso_of_millis(UnixMillis(lane.committed_ms)),
        "lag_s": None if reached_us is None else round(max(0, now_us - reached_us) / 1e6, 1),
        "layout": None if progress is None else progress.layout.to_json(),
    }
