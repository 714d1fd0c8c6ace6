"""Decides where a table without progress begins."""

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
"""Changes this near to their expiry may expire while the first micro-batch of `earliest` is read."""


def first_cursor(config: SourceConfig, table: TableAccess) -> Cursor:
    """Return the cursor at which a table without progress begins, by its own start or `reading.start`.

    Raises:
        NoGenerationError: there are no streams yet.
        StartupError: the start is an instant in the future.
        RetriableError: the cluster fails.
        BridgeError: the cluster refuses a request.
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
    """Return the cursor at which a table without progress begins; wait while it has no streams, and log that once.

    Raises:
        StartupError: the start is an instant in the future.
        RetriableError: the cluster fails.
        BridgeError: the cluster refuses a request.
    """
    is_logged = False
    while True:
        try:
            cursor = first_cursor(config, table)
        except NoGenerationError as error:
            if not is_logged:
                _log.warning("%s: %s. Waiting for it", config.table.name, error)
            is_logged = True
        else:
            warn_of_expired_start(config, table, table.state())
            return cursor
        clocks.sleep(_FIRST_GENERATION_EVERY_S)


def warn_of_expired_start(config: SourceConfig, table: TableAccess, state: TableState) -> None:
    """Warn when a start lies before the log's TTL: no gap is looked for where a table begins.

    Args:
        config: of the source.
        table: the table's cluster.
        state: of the table, which has no progress.
    """
    start_us = _instant_us(config)
    expired_us = None if start_us is None else oldest_us(config, table)
    if start_us is None or expired_us is None:
        return
    # The log holds nothing that is older than itself.
    since_us = max(start_us, state.log_made_us or start_us)
    if since_us < expired_us:
        _log.warning(
            "%s: its start (its own or reading.start) is %s, but the log's TTL has passed: what was written between %s "
            "and %s may have expired; what is still there of it is read",
            *(config.table.name, *map(iso_of_micros, (start_us, since_us, expired_us))),
        )


def cursor_after_gap(
    gap: Gap, config: SourceConfig, generations: Sequence[GenerationStart], expired_us: UnixMicros | None
) -> Cursor | None:
    """Return where a table begins again when a gap appeared before anything was published: at all that can be read.

    Args:
        gap: between the former start and the log.
        config: of the source.
        generations: the known ones, ascending.
        expired_us: before which write time changes may have expired; None when they do not.

    Returns:
        None when the table can't go on.
    """
    if gap.go_on_at is None or _instant_us(config) is not None:
        # Changes that were written under a longer TTL may still be there; only an instant asks for them.
        return gap.go_on_at
    first = micro_batches.first_cursor(generations, expired_us, config.reading.leeway_ms * 1000)
    return gap.go_on_at if first is None else max(gap.go_on_at, first)


def edge_us(config: SourceConfig, cursor: Cursor, expired_us: UnixMicros | None) -> UnixMicros | None:
    """Return the write time before which changes may have expired, if a first cursor lies near or before it.

    Args:
        config: of the source.
        cursor: where the table begins.
        expired_us: before which write time changes may have expired; None when they do not.

    Returns:
        None when nothing near the cursor expires.
    """
    near_us = _AT_EDGE_US if is_earliest(config) else 0
    return expired_us if expired_us is not None and cursor.reached_us <= expired_us + near_us else None


def is_earliest(config: SourceConfig) -> bool:
    """Return whether a table without progress begins with everything that the log's TTL leaves."""
    return (config.table.start or config.reading.start) == "earliest"


def oldest_us(config: SourceConfig, table: TableAccess) -> UnixMicros | None:
    """Return the servers' time minus the log's TTL; older changes may be gone. None when changes do not expire."""
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
    # The cluster keeps generations for ever, but no changes older than this.
    return oldest_us(config, table)


def _instant_us(config: SourceConfig) -> UnixMicros | None:
    start = config.table.start or config.reading.start
    return None if isinstance(start, str) else UnixMicros(round(start.timestamp() * 1_000_000))
