"""Changes of the streams on a user's request. On a cluster, a joining node or the load balancer causes them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.errors import StartupError
from bridge.model.times import UnixMicros, UnixMillis, iso_of_millis
from sandbox.cql.catalog import TableName
from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Name
from sandbox.errors import LocalStackError
from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.older_versions import forget_upgrade, is_old, publish_old, show_generation, upgrade
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, TabletSet, merge, split
from sandbox.scylla.local_streams import initial_tablets
from sandbox.scylla.refusals import base_of
from sandbox.writing_session import WritingSession
from schemas.cql.names import shown_table

LEAST_LEAD_S: Final = 2.0
"""The nodes must know a change before it begins."""

Resize = Literal["split", "merge"]
Say = Callable[[str], None]

_LONG_AGO: Final = UnixMicros(0)
_OLDER: Final = "system_distributed.cdc_streams_descriptions"
_NEWER: Final = ("system_distributed.cdc_generation_timestamps", "system_distributed.cdc_streams_descriptions_v2")


class Ahead(NamedTuple):
    """The time of a change, and whether to publish it.

    Attributes:
        starts_in_s: seconds from now until the change begins, at least `LEAST_LEAD_S`.
        publish: whether to publish it at once. Otherwise `StreamChanges.publish` does so later.
    """

    starts_in_s: float
    publish: bool


def captured_table(session: WritingSession, text: str) -> TableName:
    """Return the captured table that a text names.

    Args:
        session: session to the server.
        text: `keyspace.table`, each part quoted where CQL requires it.

    Raises:
        LocalStackError: the text names no table, or a table that is not captured.
        RetriableError, BridgeError: the server does not answer, or refuses the request.
    """
    try:
        cursor = Cursor(text)
        named = cursor.name()
        cursor.end()
    except CqlError:
        named = Name(None, text)
    if not named.keyspace:
        raise LocalStackError(f"not a table's name: {text}. Write keyspace.table, quoted where CQL requires it")
    base = base_of(named.name)
    if base is not None:
        raise LocalStackError(f"{text} is a log. Name its base table: {shown_table(named.keyspace, base)}")
    log = ChangeLog(session)
    try:
        has_log = log.describe_table(named.keyspace, named.name) is not None
        log.check_captured(named.keyspace, named.name, even_if_off=has_log)
    except StartupError as error:
        raise LocalStackError(str(error)) from error
    return TableName(named.keyspace, named.name)


def cluster_of(session: WritingSession) -> tuple[SimulatedCluster, tuple[UnixMillis, ...]]:
    """Return the cluster with all its generations, and the starts of its unpublished generations.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    cluster = SimulatedCluster(session, seed=secrets.randbits(64))
    return cluster, cluster.resume(_LONG_AGO)


def tablets_of(session: WritingSession, table: TableName) -> tuple[SimulatedTablets, tuple[TabletSet, ...]]:
    """Return the tablets of a table with all its stream sets, and its unpublished stream sets.

    Raises:
        LocalStackError: the table's keyspace has vnodes.
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    if initial_tablets(session, table.keyspace) is None:
        raise LocalStackError(
            f"{shown_table(*table)} has no tablets: its keyspace uses vnodes. Change the streams of vnodes with "
            "`local streams new-generation`. To get tablets, create the keyspace "
            "WITH ... AND tablets = {'enabled': true}"
        )
    found = SimulatedTablets(session, *table, seed=secrets.randbits(64))
    waiting = found.resume()
    if not found.sets:
        raise LocalStackError(f"{shown_table(*table)} has no streams: `local cql` did not create its log")
    return found, waiting


class StreamChanges:
    """The actions of `local streams`. Every method raises RetriableError and BridgeError if the server fails."""

    def __init__(self, session: WritingSession, say: Say, clock: Callable[[], UnixMicros]) -> None:
        """Take the server and a clock.

        Args:
            session: session to the stack's server.
            say: receives a line for each action.
            clock: returns the current time in Unix us.
        """
        self._session = session
        self._say = say
        self._clock = clock

    def new_generation(self, ahead: Ahead) -> UnixMillis:
        """Simulate a joining node: a new generation replaces all streams of the tables without tablets.

        Returns:
            The generation's start.

        Raises:
            LocalStackError: the generation would not start after the existing ones.
        """
        cluster, unpublished = cluster_of(self._session)
        newest = cluster.generations[-1].start_ms if cluster.generations else None
        start_ms = self._start_ms(ahead, newest, unpublished, "generation", "")
        made = cluster.add_generation(start_ms, publish=False)
        # Writes use what the nodes know, so tell the nodes before publishing.
        cluster.remember(made)
        if ahead.publish:
            self._publish_generations([made], cluster)
        count = sum(1 for _ in made.streams())
        self._say(f"generation {_format_start(start_ms, self._clock())}: {count} streams, {_publication(ahead, '')}")
        return start_ms

    def resize(self, table: TableName, how: Resize, ahead: Ahead, *, partial: bool) -> UnixMillis:
        """Split each tablet of a table in two, or merge each pair of tablets into one.

        Args:
            table: a table with tablets.
            how: "split" or "merge".
            ahead: the time of the change.
            partial: split only the first tablet, or merge only the first pair. ScyllaDB's format allows this; today's
                ScyllaDB resizes all tablets.

        Returns:
            The start of the new stream set.

        Raises:
            LocalStackError: the table has vnodes, there is only one tablet to merge, or the stream set would not start
                after the existing ones.
        """
        tablets, waiting = tablets_of(self._session, table)
        last = tablets.sets[-1]
        name = shown_table(*table)
        start_ms = self._start_ms(ahead, last.start_ms, [one.start_ms for one in waiting], f"{name}: stream set", name)
        tokens = [stream.token for stream in last.streams]
        if how == "merge" and len(tokens) == 1:
            raise LocalStackError(f"{name} has only one tablet: there is nothing to merge it with")
        resized = (split if how == "split" else merge)(tokens, [0] if partial else None)
        made = tablets.resize(start_ms, resized, partial=partial, publish=False)
        tablets.remember(made)
        if ahead.publish:
            tablets.publish(made)
        kept = len(set(last.streams) & set(made.streams))
        self._say(
            f"{name}: stream set {_format_start(start_ms, self._clock())}: {len(last.streams)} streams become "
            f"{len(made.streams)}{f', {kept} of them stay' if kept else ''}, {_publication(ahead, f' {name}')}"
        )
        return start_ms

    def publish(self, table: TableName | None) -> None:
        """Publish the unpublished generations of the cluster, or the unpublished stream sets of a table.

        Raises:
            LocalStackError: all are published, or the table has vnodes.
        """
        if table is None:
            cluster, unpublished = cluster_of(self._session)
            self._publish_generations((one for one in cluster.generations if one.start_ms in unpublished), cluster)
            self._say_published("generation", unpublished)
            return
        tablets, waiting = tablets_of(self._session, table)
        for one in waiting:
            tablets.publish(one)
        self._say_published(f"{shown_table(*table)}: stream set", [one.start_ms for one in waiting])

    def collect(self, table: TableName) -> None:
        """Delete stream sets that are older than the log's TTL, as ScyllaDB does for tablets every minute.

        Raises:
            LocalStackError: the table has vnodes.
        """
        tablets, _ = tablets_of(self._session, table)
        options = ChangeLog(self._session).cdc_options(*table)
        before = len(tablets.sets)
        base = tablets.collect(UnixMillis(self._clock() // 1000), 0 if options is None else options.ttl_s)
        gone = before - len(tablets.sets)
        self._say(
            f"{shown_table(*table)}: {gone} stream set{'' if gone == 1 else 's'} deleted, "
            f"the oldest one starts at {iso_of_millis(base.start_ms)}"
        )

    def old_format(self) -> None:
        """Publish all generations in the table of ScyllaDB before 4.4 instead of today's tables.

        Raises:
            LocalStackError: the cluster uses the old format already.
        """
        if is_old(self._session):
            raise LocalStackError("the cluster publishes its generations in the old format already")
        cluster, unpublished = cluster_of(self._session)
        self._session.execute(f"TRUNCATE {_OLDER}")
        for generation in cluster.generations:
            cluster.remember(generation)  # the old table does not hold the ranges of its streams
            if generation.start_ms not in unpublished:
                publish_old(self._session, generation)
        forget_upgrade(self._session)
        for table in _NEWER:
            self._session.execute(f"TRUNCATE {table}")
        self._say(
            f"{_counted(len(cluster.generations), 'generation')} in system_distributed.cdc_streams_descriptions only, "
            "as before ScyllaDB 4.4. A job that runs already does not read that table"
        )

    def upgrade(self) -> None:
        """Copy the generations of a cluster of the old format to today's tables, and mark the copy as done.

        Raises:
            LocalStackError: the cluster does not use the old format.
        """
        if not is_old(self._session):
            raise LocalStackError("the cluster uses today's tables already: `local streams old-format` changes that")
        cluster, unpublished = cluster_of(self._session)
        shown = [one for one in cluster.generations if one.start_ms not in unpublished]
        marked = ", and marked so in system.cdc_local" if upgrade(self._session, shown) else ""
        self._say(f"{_counted(len(shown), 'generation')} copied to today's tables{marked}")

    def _publish_generations(self, generations: Iterable[Generation], cluster: SimulatedCluster) -> None:
        for generation in generations:
            show_generation(self._session, cluster, generation)

    def _start_ms(
        self, ahead: Ahead, newest: UnixMillis | None, unpublished: Iterable[UnixMillis], what: str, table: str
    ) -> UnixMillis:
        """Return the start of a change that comes after all others."""
        now_us = self._clock()
        start_ms = UnixMillis(now_us // 1000 + int(ahead.starts_in_s * 1000))
        waiting = [iso_of_millis(one) for one in unpublished]
        if ahead.publish and waiting:
            raise LocalStackError(
                f"{what} {waiting[0]} is not published yet, and ScyllaDB publishes in order. Publish it first "
                f"(`{_publish_command(f' {table}' if table else '')}`), or create this one --unpublished, too"
            )
        if newest is not None and start_ms <= newest:
            wait_s = -(-(newest - now_us // 1000) // 1000) + 1
            raise LocalStackError(
                f"{what} {_format_start(newest, now_us)} exists, and the new one must begin after it: --in {wait_s}"
            )
        return start_ms

    def _say_published(self, what: str, starts_ms: Iterable[UnixMillis]) -> None:
        now_us = self._clock()
        found = [f"{what} {_format_start(one, now_us)} published" for one in starts_ms]
        if not found:
            raise LocalStackError(f"{what}: all are published")
        for line in found:
            self._say(line)


def _format_start(start_ms: UnixMillis, now_us: UnixMicros) -> str:
    away_s = start_ms / 1000 - now_us / 1_000_000
    return f"{iso_of_millis(start_ms)} ({f'in {away_s:.1f} s' if away_s > 0 else f'since {-away_s:.1f} s'})"


def _publication(ahead: Ahead, table: str) -> str:
    if ahead.publish:
        return "published"
    return f"not published: writes use it from then on, but readers see it only after `{_publish_command(table)}`"


def _publish_command(table: str) -> str:
    return f"scylla-cdc-bridge local streams publish{table}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
