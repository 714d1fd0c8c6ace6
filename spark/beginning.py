"""Where a table begins that has no progress yet."""

from __future__ import annotations

import logging
import time
from typing import Final

from bridge import planning
from bridge.config import SourceConfig
from bridge.errors import NoGenerationError, StartupError
from bridge.instants import iso_of_micros
from bridge.model.cursors import Cursor
from bridge.model.times import UnixMicros
from spark import worker

_log = logging.getLogger(__name__)

_FIRST_GENERATION_EVERY_S: Final = 0.5


def first_cursor(config: SourceConfig) -> Cursor:
    """Where a table without progress begins, by `reading.start`.

    Raises:
        NoGenerationError: there are no streams yet.
        RetriableError, BridgeError: the cluster fails, or refuses.
    """
    log = worker.change_log(config.scylla)
    metadata = worker.stream_metadata(config.scylla, config.table.keyspace, config.table.table)
    cursor = planning.first_cursor(metadata.generations(), _start_us(config), config.reading.leeway_ms * 1000)
    if cursor is None:
        raise NoGenerationError(
            f"{log.session.address} has no CDC generation yet; ScyllaDB refuses writes to CDC tables until it has one "
            '("could not find any CDC stream")'
        )
    return cursor


def wait_for_first_cursor(config: SourceConfig) -> Cursor:
    """The same, when there are streams; says once that it waits for them."""
    said = False
    while True:
        try:
            return first_cursor(config)
        except NoGenerationError as error:
            if not said:
                _log.warning("%s: %s. Waiting for it", config.table.name, error)
            said = True
        time.sleep(_FIRST_GENERATION_EVERY_S)


def oldest_us(config: SourceConfig) -> UnixMicros | None:
    """Now minus the log's TTL: nothing older is sure to be there; None when changes do not expire."""
    log = worker.change_log(config.scylla)
    options = log.cdc_options(config.table.keyspace, config.table.table)
    if options is None or options.ttl_s == 0:
        return None
    return UnixMicros(worker.server_time(config.scylla).servers_us() - options.ttl_s * 1_000_000)


def _start_us(config: SourceConfig) -> UnixMicros | None:
    start = config.table.start or config.reading.start
    if not isinstance(start, str):
        start_us = UnixMicros(round(start.timestamp() * 1_000_000))
        servers_us = worker.server_time(config.scylla).servers_us()
        if start_us > servers_us:
            raise StartupError(
                f"{config.table.name}: its start (its own or reading.start), {iso_of_micros(start_us)}, has not come "
                f"yet: for the ScyllaDB servers it is {iso_of_micros(servers_us)}. Give an instant that has passed "
                "(is its UTC offset right?), or `latest`"
            )
        return start_us
    if start == "latest":
        return UnixMicros(worker.server_time(config.scylla).earlier_us() - config.reading.confidence_ms * 1000)
    # Generations are kept for ever, changes are not: nothing older than this is left.
    return oldest_us(config)
