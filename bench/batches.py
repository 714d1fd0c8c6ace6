"""`python -m bench.batches`: what compression and linger of Kafka's record batches cost, and what they save.

Encodes synthetic changes once, hardly two of them alike, and publishes them to a real broker as a lane's task does,
with one setting after the other, in turns; of several rounds each figure's middle counts. One JSON line for each
setting, then a table, on standard output. Exit statuses: as of `bench.command`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from bench import command, figures, topics
from bench.figures import Figures
from bench.path import Lane, plain_changes
from bench.place import a_stack, machine_now, say
from bench.processes import everyone
from bench.tables import TABLES
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.config.document import KafkaSettings
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedRun
from sandbox.stack.stack import LocalStack
from schemas.compiled.page_loop import PlainChange

_Setting = tuple[str, int]
_LINGER_MS: Final[int] = KafkaSettings.model_fields["linger_ms"].default
_COMPRESSION: Final[str] = KafkaSettings.model_fields["compression"].default
_SETTINGS: Final[tuple[_Setting, ...]] = (
    *((name, _LINGER_MS) for name in ("none", "lz4", "zstd", "snappy")),
    *((_COMPRESSION, linger_ms) for linger_ms in (0, 5, 100)),
)
_TOPIC: Final = "bench.batches"
_PARTITIONS: Final = 12
_PER_TRANSACTION: Final = 50_000
_FRAME: Final = bytes(5)
_FEW: Final = 20
"""Changes of a small transaction: what a caught-up lane has."""
_OFTEN: Final = 25
_WARM_UP: Final = 20_000
_COLUMNS: Final = (
    ("table", "table"),
    ("compression", "compression"),
    ("linger_ms", "linger ms"),
    ("client_us", "client: us of CPU a change"),
    ("broker_us", "broker"),
    ("bytes", "bytes a change on disk"),
    ("changes_per_s", "changes/s"),
    ("small_ms", f"transaction of {_FEW}, ms"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser("bench.batches", "Measure compression and linger of record batches.")
    command.add_tables(parser, ("narrow", "wide", "collections"), TABLES)
    parser.add_argument("--changes", type=command.count, default=100_000, help="changes of each table")
    parser.add_argument("--rounds", type=command.count, default=3, help="each figure's middle of so many rounds counts")
    arguments = parser.parse_args(argv)
    return command.carry_out(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    lines: list[Figures] = []
    with a_stack(arguments.folder) as stack:
        KafkaAdmin(KafkaSettings(bootstrap_servers=(stack.kafka,))).ensure_topic(_TOPIC, _PARTITIONS, {})
        machine = machine_now()
        try:
            for table in arguments.tables:
                for line in _measure(stack, table, arguments.changes, arguments.rounds):
                    print(figures.json_line(line), flush=True)
                    lines.append(line)
        finally:
            topics.delete(stack.kafka, _TOPIC)
    shown = figures.markdown_table if arguments.markdown else figures.plain_table
    print(f"\n{shown(lines, _COLUMNS)}\n{figures.machine_line([machine])}")


def _measure(stack: LocalStack, table: str, changes: int, rounds: int) -> Iterator[Figures]:
    say(f"{table}: encoding {changes:,} changes")
    records = _records(table, changes)
    producers = {setting: _producer(stack, setting) for setting in _SETTINGS}
    try:
        for producer in producers.values():
            _publish(producer, records[:_WARM_UP])
        found: dict[_Setting, list[Figures]] = {setting: [] for setting in _SETTINGS}
        for number in range(1, rounds + 1):
            say(f"{table}: {len(producers)} settings, one after the other ({number} of {rounds})")
            for setting, producer in producers.items():
                found[setting].append(_round(stack, producer, records))
    finally:
        for producer in producers.values():
            producer.close()
    for (compression, linger_ms), each in found.items():
        middle = {name: median(one[name] for one in each) for name in each[0]}
        yield {"table": table, "compression": compression, "linger_ms": linger_ms, **middle}


def _records(table: str, changes: int) -> list[PlainChange]:
    found: list[PlainChange] = []
    for change in plain_changes(Lane.of(table, changes, pool=changes))():
        if isinstance(change, EncodedRun):
            found += change.records
        else:
            # A page's last row takes the general path, since its group may go on.
            found.append((b"", change.key, change.value or b"", change.position))
    return found


def _producer(stack: LocalStack, setting: _Setting) -> TransactionalProducer:
    compression, linger_ms = setting
    settings = KafkaSettings.model_validate(
        {"bootstrap_servers": (stack.kafka,), "compression": compression, "linger_ms": linger_ms}
    )
    producer = TransactionalProducer(settings, f"bench-{compression}-{linger_ms}", known_topic=_TOPIC)
    producer.init()
    return producer


def _publish(producer: TransactionalProducer, records: Sequence[PlainChange]) -> None:
    for at in range(0, len(records), _PER_TRANSACTION):
        producer.begin()
        producer.produce_run(_TOPIC, (_FRAME, _FRAME), records[at : at + _PER_TRANSACTION], POSITION_HEADER)
        producer.commit()


def _round(stack: LocalStack, producer: TransactionalProducer, records: Sequence[PlainChange]) -> Figures:
    counters: dict[str, Callable[[], float]] = {
        "s": time.perf_counter,
        "client": time.process_time,
        "broker": lambda: _broker_s(stack),
        "bytes": lambda: _bytes_on_disk(stack),
    }
    before = {name: count() for name, count in counters.items()}
    _publish(producer, records)
    used = {name: count() - before[name] for name, count in counters.items()}
    small_ms = []
    for at in range(_OFTEN):
        began_s = time.perf_counter()
        _publish(producer, records[at * _FEW : (at + 1) * _FEW])
        small_ms.append((time.perf_counter() - began_s) * 1000)
    return {
        "client_us": used["client"] / len(records) * 1e6,
        "broker_us": used["broker"] / len(records) * 1e6,
        "bytes": used["bytes"] / len(records),
        "changes_per_s": len(records) / used["s"],
        "small_ms": median(small_ms),
    }


def _broker_s(stack: LocalStack) -> float:
    pid = stack.pid("kafka")
    return sum(one.own_s for one in everyone() if one.pid == pid)


def _bytes_on_disk(stack: LocalStack) -> int:
    return sum(file.stat().st_size for file in stack.folder.glob(f"data/kafka/**/{_TOPIC}-*/*.log"))


if __name__ == "__main__":
    sys.exit(main())
