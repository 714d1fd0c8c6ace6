"""Where a table begins that has no progress yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from bridge.config.document import SourceConfig
from bridge.engine.ports import Clocks, TableAccess
from bridge.errors import NoGenerationError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, iso_of_micros
from bridge.planning import micro_batches
from bridge.planning.data_loss import Gap
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.table_watch import TableState

_log = logging.getLogger(__name__)

_FIRST_GENERATION_EVERY_S: Final = 0.5
_AT_EDGE_US: Final = 60_000_000
"""So near to where changes expire the first micro-batch of `earliest` may be overtaken as soon as it has begun."""


def first_cursor(config: SourceConfig, table: TableAccess) -> Cursor:
    """Where a table without progress begins, by `reading.start`.

    Raises:
        NoGenerationError: there are no streams yet.
        RetriableError, BridgeError: the cluster fails, or refuses.
    """
    generations = table.generations().generations()
    cursor = micro_batches.first_cursor(generations, _start_us(config, table), config.reading.leeway_ms * 1000)
    if cursor is None:
        raise NoGenerationError(
            f"{table.address} has no CDC generation yet; ScyllaDB refuses writes to CDC tables until it has one "
            '("could not find any CDC stream")'
        )
    return cursor


def wait_for_first_cursor(config: SourceConfig, table: TableAccess, clocks: Clocks) -> Cursor:
    """The same, when there are streams; says once that it waits for them."""
    said = False
    while True:
        try:
            cursor = first_cursor(config, table)
        except NoGenerationError as error:
            if not said:
                _log.warning("%s: %s. Waiting for it", config.table.name, error)
            said = True
        else:
            say_what_has_expired(config, table, table.state())
            return cursor
        clocks.sleep(_FIRST_GENERATION_EVERY_S)


def say_what_has_expired(config: SourceConfig, table: TableAccess, state: TableState) -> None:
    """Warn of what is asked for and gone: where a table begins, nobody looks for a gap.

    Args:
        config: of the source.
        table: the table's cluster.
        state: of the table, which has no progress.
    """
    start_us = _instant_us(config)
    expired_us = None if start_us is None else oldest_us(config, table)
    if start_us is None or expired_us is None:
        return
    # Of an older log there is nothing.
    since_us = max(start_us, state.log_made_us or start_us)
    if since_us < expired_us:
        _log.warning(
            "%s: its start (its own or reading.start) is %s, but the log's TTL has passed: what was written between %s "
            "and %s may have expired; what is still there of it is read",
            *(config.table.name, *map(iso_of_micros, (start_us, since_us, expired_us))),
        )


def cursor_behind(
    gap: Gap, config: SourceConfig, generations: Sequence[GenerationStart], expired_us: UnixMicros | None
) -> Cursor | None:
    """Where a table goes on of which nothing was published yet, when a gap has come before that: all that can be read.

    Args:
        gap: between where it was to begin and the log.
        config: of the source.
        generations: the known ones, ascending.
        expired_us: before which write time changes may have expired; None when they do not.

    Returns:
        None where it can't go on.
    """
    if gap.go_on_at is None or _instant_us(config) is not None:
        # What was written under a longer TTL may still be there, and an instant is how to ask for that.
        return gap.go_on_at
    first = micro_batches.first_cursor(generations, expired_us, config.reading.leeway_ms * 1000)
    return gap.go_on_at if first is None else max(gap.go_on_at, first)


def edge_us(config: SourceConfig, cursor: Cursor, expired_us: UnixMicros | None) -> UnixMicros | None:
    """Before which write time changes may have expired, if a first cursor lies there, or behind it; otherwise None.

    Args:
        config: of the source.
        cursor: where the table begins.
        expired_us: before which write time changes may have expired; None when they do not.
    """
    near_us = _AT_EDGE_US if is_earliest(config) else 0
    return expired_us if expired_us is not None and cursor.reached_us <= expired_us + near_us else None


def is_earliest(config: SourceConfig) -> bool:
    """Whether a table without progress begins with all that the log's TTL leaves."""
    return (config.table.start or config.reading.start) == "earliest"


def oldest_us(config: SourceConfig, table: TableAccess) -> UnixMicros | None:
    """Now minus the log's TTL: nothing older is sure to be there; None when changes do not expire."""
    options = table.cdc_options()
    if options is None or options.ttl_s == 0:
        return None
    return UnixMicros(table.server_time.servers_us() - options.ttl_s * 1_000_000)


def _start_us(config: SourceConfig, table: TableAccess) -> UnixMicros | None:
    start_us = _instant_us(config)
    if start_us is not None:
        servers_us = table.server_time.servers_us()
        if start_us > servers_us:
            raise StartupError(
                f"{config.table.name}: its start (its own or reading.start), {iso_of_micros(start_us)}, has not come "
                f"yet: for the ScyllaDB servers it is {iso_of_micros(servers_us)}. Give an instant that has passed "
                "(is its UTC offset right?), or `latest`"
            )
        return start_us
    if (config.table.start or config.reading.start) == "latest":
        return UnixMicros(table.server_time.earlier_us() - config.reading.confidence_ms * 1000)
    # Generations are kept for ever, changes are not: nothing older than this is left.
    return oldest_us(config, table)


def _instant_us(config: SourceConfig) -> UnixMicros | None:
    start = config.table.start or config.reading.start
    return None if isinstance(start, str) else UnixMicros(round(start.timestamp() * 1_000_000))
