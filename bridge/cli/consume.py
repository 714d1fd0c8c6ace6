"""The command `consume`: prints the committed records of a topic as JSON documents."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from bridge.adapters.connect import call_registry, open_kafka, open_registry
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.records import Record
from bridge.cli.output import json_text, print_line, print_notice
from bridge.cli.record_documents import RecordDocuments
from bridge.cli.table_argument import find_table
from bridge.config.document import BridgeConfig
from bridge.config.file import loader
from bridge.errors import StartupError

_INDENT: Final = 2
_RECORDS_PER_POLL: Final = 500
_POLL_S: Final = 0.5
_READ_TO_END_TIMEOUT_S: Final = 24 * 3600.0
"""Long enough for any topic that a person wants to see whole."""


def run(arguments: argparse.Namespace) -> int:
    """Print the records of a topic until Ctrl-C, or until the wanted number or the topic's end is reached.

    Raises:
        ConfigError: the file has problems.
        StartupError: there is no such table or topic, or a server refuses.
        RetriableError: a server does not answer.
    """
    config = loader.load(arguments.config)
    topic = _choose_topic(config, arguments)
    admin = open_kafka(config, report=print_notice, patience_s=0)
    registry = open_registry(config, report=print_notice, patience_s=0)
    partitions = admin.partitions(topic)
    if partitions == 0:
        raise StartupError(
            f"topic {topic} does not exist at {', '.join(config.kafka.bootstrap_servers)}; has the job run yet?"
        )
    documents = RecordDocuments(registry.get)
    indent = None if arguments.json else _INDENT
    wanted = Wanted(
        topic, partitions, from_beginning=arguments.from_beginning, until_end=arguments.until_end, limit=arguments.max
    )
    if not (wanted.from_beginning or wanted.until_end):
        print_notice(f"waiting for new records in {topic} (--from-beginning prints all of it); Ctrl-C ends")
    try:
        with CommittedReader(config.kafka, client_id="scylla-cdc-bridge-consume") as reader:
            for record in read_records(reader, wanted):
                print_line(json_text(call_registry(partial(documents.document, record)), indent=indent))
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        registry.close()
    return 0


class Reader(Protocol):
    """Reads committed records; `bridge.adapters.kafka.consumer.CommittedReader` is one."""

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        """Let `poll` read these partitions from their beginning, or from their end."""

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Return the next records; none after the timeout."""

    def read_to_end(self, topic: str, partitions: list[int], timeout_s: float) -> Iterator[Record]:
        """Yield every record from the beginning to the end that the partitions have at the call."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records to read.

    Attributes:
        partitions: how many partitions the topic has.
        from_beginning: whether to read what the topic holds already; otherwise only new records.
        until_end: whether to stop at the end that the topic has at the start.
        limit: stop after so many records; None for no limit.
    """

    topic: str
    partitions: int
    from_beginning: bool = False
    until_end: bool = False
    limit: int | None = None


def read_records(reader: Reader, wanted: Wanted) -> Iterator[Record]:
    """Yield the wanted records as they come; in order within a partition.

    Raises:
        RetriableError: Kafka does not answer.
        StartupError: Kafka refuses to let us read.
    """
    if wanted.until_end:
        # Without from_beginning reading begins at the end, and ends there.
        partitions = list(range(wanted.partitions)) if wanted.from_beginning else []
        found = reader.read_to_end(wanted.topic, partitions, _READ_TO_END_TIMEOUT_S)
    else:
        found = _poll_forever(reader, wanted)
    return islice(found, wanted.limit)


def _poll_forever(reader: Reader, wanted: Wanted) -> Iterator[Record]:
    reader.follow(wanted.topic, list(range(wanted.partitions)), from_end=not wanted.from_beginning)
    while True:
        yield from reader.poll(_RECORDS_PER_POLL, _POLL_S)


def _choose_topic(config: BridgeConfig, arguments: argparse.Namespace) -> str:
    if (arguments.table is None) == (arguments.topic is None):
        raise StartupError("name either a TABLE or a --topic")
    if arguments.topic is not None:
        topic: str = arguments.topic
        return topic
    return config.topic_of(find_table(config, arguments))
