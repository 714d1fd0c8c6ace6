"""The commands that need a configuration, but for `run`: `validate`, `status`, `consume` and `schemas`.

They print to standard output and raise what goes wrong; `bridge.cli.main` turns that into words and an exit status.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bridge.adapters.connect import call_registry, open_kafka, open_registry, open_scylla
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.registry import registration
from bridge.adapters.scylla.change_log import ChangeLog
from bridge.cli import preflight
from bridge.cli import status as lane_status
from bridge.cli.consume import ChangePrinter, Wanted, records
from bridge.config.document import BridgeConfig, TableSettings
from bridge.config.file import loader
from bridge.errors import StartupError
from bridge.model.cql_names import shown_table
from bridge.model.times import UnixMicros

_WATCH_EVERY_S: Final = 2.0
_NO_PATIENCE_S: Final = 0.0


def validate(arguments: argparse.Namespace) -> int:
    """Check the file, and with `--online` the servers and tables; say what the job would do."""
    config = loader.load(arguments.config)
    if not arguments.online:
        _say(f"{arguments.config}: no problem found")
    else:
        # What the servers say may be another matter.
        _say(f"{arguments.config}: nothing wrong in the file itself; now asking the servers")
        preflight.check(config, report=_say)
        _say(f"Tables: {', '.join(map(_name, config.tables))}: all are captured")
    _say(plan(config))
    return 0


def plan(config: BridgeConfig) -> str:
    """What a job with this configuration would do, in words."""
    lines = [f"Job {config.name}, from ScyllaDB at {', '.join(config.scylla.contact_points)}"]
    lines[0] += f" to Kafka at {', '.join(config.kafka.bootstrap_servers)}:"
    for table in config.tables:
        lanes = table.lanes or config.spark.lanes
        start = table.start if table.start is not None else config.reading.start
        lines += [
            f"  {_name(table)}",
            f"    topic           {config.topic_of(table)} ({config.kafka.partitions} partitions if it is new)",
            f"    progress topic  {config.progress_topic_of(table)}",
            f"    lanes           {lanes if lanes is not None else 'one for each core'}",
            f"    start           {start} (only without progress in Kafka)",
            *_output_lines(config, table),
        ]
    return "\n".join(lines)


def _output_lines(config: BridgeConfig, table: TableSettings) -> list[str]:
    output, letters = config.output_of(table), config.dead_letter_topic_of(table)
    form = output.record_form(dead_letters=letters is not None)
    shape = f"{output.shape}, by {output.record_key.replace('_', ' ')}"
    repeated = "left out" if config.reading.deduplicate else "carried like other changes (reading.deduplicate is off)"
    return [
        f"    shape           {shape}{', with tombstones' if form.tombstones else ''}",
        f"    headers         {', '.join(f'cdc.{name}' for name in output.headers) or 'none'}",
        f"    dead letters    {letters or 'none: a change that can not be carried stops the table'}",
        f"    retried writes  {repeated}",
    ]


def status(arguments: argparse.Namespace) -> int:
    """Show the lanes, once or again and again."""
    config = loader.load(arguments.config)
    source = lane_status.ProgressSource.of_kafka(
        config.kafka, open_kafka(config, report=_complain, patience_s=_NO_PATIENCE_S)
    )
    console = Console()

    def look() -> tuple[list[lane_status.TableStatus], UnixMicros]:
        return lane_status.read(config, source), UnixMicros(time.time_ns() // 1000)

    def show_json() -> None:
        _say(json.dumps(lane_status.document(config, *look())))

    def show_plain() -> None:
        sys.stdout.write(lane_status.plain(lane_status.rows(*look())))
        sys.stdout.flush()

    if arguments.json:
        return _repeat(show_json, watch=arguments.watch)
    if not console.is_terminal:
        return _repeat(show_plain, watch=arguments.watch)
    if not arguments.watch:
        console.print(_table(*look()))
        return 0
    with Live(_table(*look()), console=console, auto_refresh=False) as live:
        return _repeat(lambda: live.update(_table(*look()), refresh=True), watch=True)


def consume(arguments: argparse.Namespace) -> int:
    """Print the changes of a topic until Ctrl-C, or until what was asked for is there."""
    config = loader.load(arguments.config)
    topic = _topic(config, arguments)
    admin = open_kafka(config, report=_complain, patience_s=_NO_PATIENCE_S)
    registry = open_registry(config, report=_complain, patience_s=_NO_PATIENCE_S)
    partitions = admin.partitions(topic)
    if partitions == 0:
        raise StartupError(
            f"topic {topic} does not exist at {', '.join(config.kafka.bootstrap_servers)}; has the job run yet?"
        )
    printer = ChangePrinter(registry.get, as_json=arguments.json)
    wanted = Wanted(
        topic, partitions, from_beginning=arguments.from_beginning, until_end=arguments.until_end, most=arguments.max
    )
    if not (wanted.from_beginning or wanted.until_end):
        _complain(f"waiting for what comes into {topic} from now on (--from-beginning shows all of it); Ctrl-C ends")
    try:
        with CommittedReader(config.kafka, client_id="scylla-cdc-bridge-consume") as reader:
            for record in records(reader, wanted):
                _say(call_registry(partial(printer.line, record)))
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        registry.close()
    return 0


def schemas(arguments: argparse.Namespace) -> int:
    """Print, and if asked to register, the schemas that the tables' changes are written with now."""
    config = loader.load(arguments.config)
    tables = config.tables if arguments.table is None else (_named(config, arguments),)
    session = open_scylla(config, report=_complain, patience_s=_NO_PATIENCE_S)
    try:
        log = ChangeLog(session)
        found = [log.check_captured(table.keyspace, table.table) for table in tables]
    finally:
        session.close()
    needed = [one for table in found for one in registration.needed_by(config, table)]
    if not arguments.register:
        for one in needed:
            _say(one.as_json() if arguments.json else one.as_text())
        return 0
    registry = open_registry(config, report=_complain, patience_s=_NO_PATIENCE_S)
    try:
        for one in needed:
            schema_id = call_registry(partial(registry.register, one.subject, one.schema_text))
            _say(one.as_json(schema_id) if arguments.json else f"{one.subject}: id {schema_id}")
    finally:
        registry.close()
    return 0


def _topic(config: BridgeConfig, arguments: argparse.Namespace) -> str:
    if (arguments.table is None) == (arguments.topic is None):
        raise StartupError("name either a TABLE or a --topic")
    if arguments.topic is not None:
        topic: str = arguments.topic
        return topic
    return config.topic_of(_named(config, arguments))


def _named(config: BridgeConfig, arguments: argparse.Namespace) -> TableSettings:
    for table in config.tables:
        if arguments.table in (table.name, _name(table), f"{table.keyspace}.{table.table}"):
            return table
    raise StartupError(
        f"table {arguments.table} is not among the tables of {arguments.config}: {', '.join(map(_name, config.tables))}"
    )


def _repeat(show: Callable[[], object], *, watch: bool) -> int:
    try:
        show()
        while watch:
            time.sleep(_WATCH_EVERY_S)
            show()
    except KeyboardInterrupt:
        if not watch:
            raise
    return 0


def _table(tables: list[lane_status.TableStatus], now_us: UnixMicros) -> Table:
    table = Table(*lane_status.COLUMNS)
    for row in lane_status.rows(tables, now_us):
        table.add_row(*row)
    return table


def _name(table: TableSettings) -> str:
    return shown_table(table.keyspace, table.table)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")
