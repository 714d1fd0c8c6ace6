"""Changes of streams that a user asks for: what on a cluster a joining node or the load balancer brings about."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.errors import StartupError
from bridge.model.cql_names import shown_table
from bridge.model.streams import Generation
from bridge.model.times import UnixMicros, UnixMillis, iso_of_millis
from sandbox.cql.catalog import TableName
from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Name
from sandbox.cql.writing_session import WritingSession
from sandbox.errors import LocalStackError
from sandbox.scylla.cluster.older_versions import forget_upgrade, is_old, publish_old, show_generation, upgrade
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, TabletSet, merge, split
from sandbox.scylla.local_streams import initial_tablets
from sandbox.scylla.refusals import base_of

LEAST_LEAD_S: Final = 2.0
"""Nodes must have heard of a change before it begins."""

Resize = Literal["split", "merge"]
Say = Callable[[str], None]

_LONG_AGO: Final = UnixMicros(0)
_OLDER: Final = "system_distributed.cdc_streams_descriptions"
_NEWER: Final = ("system_distributed.cdc_generation_timestamps", "system_distributed.cdc_streams_descriptions_v2")


class Ahead(NamedTuple):
    """When a change begins, and whether readers may see it.

    Attributes:
        starts_in_s: from now; `LEAST_LEAD_S` at least.
        publish: at once; else `StreamChanges.publish` does so later.
    """

    starts_in_s: float
    publish: bool


def captured_table(session: WritingSession, text: str) -> TableName:
    """The table that a text names, which has a log.

    Args:
        session: to the server.
        text: `keyspace.table`, each quoted where CQL wants it.

    Raises:
        LocalStackError: it names none, or one that is not captured.
        RetriableError, BridgeError: the server does not answer, or refuses us.
    """
    try:
        cursor = Cursor(text)
        named = cursor.name()
        cursor.end()
    except CqlError:
        named = Name(None, text)
    if not named.keyspace:
        raise LocalStackError(f"not a table's name: {text}. Name it as keyspace.table, quoted where CQL wants it")
    base = base_of(named.name)
    if base is not None:
        raise LocalStackError(f"{text} is a log; name the table that it is of: {shown_table(named.keyspace, base)}")
    log = ChangeLog(session)
    try:
        has_log = log.describe_table(named.keyspace, named.name) is not None
        log.check_captured(named.keyspace, named.name, even_if_off=has_log)
    except StartupError as error:
        raise LocalStackError(str(error)) from error
    return TableName(named.keyspace, named.name)


def cluster_of(session: WritingSession) -> tuple[SimulatedCluster, tuple[UnixMillis, ...]]:
    """The cluster with all of its generations, and which of them are not published.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    cluster = SimulatedCluster(session, seed=secrets.randbits(64))
    return cluster, cluster.resume(_LONG_AGO)


def tablets_of(session: WritingSession, table: TableName) -> tuple[SimulatedTablets, tuple[TabletSet, ...]]:
    """The tablets of a table with all of its stream sets, and which of them are not published.

    Raises:
        LocalStackError: its keyspace has vnodes.
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    if initial_tablets(session, table.keyspace) is None:
        raise LocalStackError(
            f"{shown_table(*table)} has no tablets: its keyspace has vnodes, whose streams change with "
            "`local streams new-generation`. Tables with tablets are those of keyspaces that were made "
            "WITH ... AND tablets = {'enabled': true}"
        )
    found = SimulatedTablets(session, *table, seed=secrets.randbits(64))
    waiting = found.resume()
    if not found.sets:
        raise LocalStackError(f"{shown_table(*table)} has no streams; its log was not made by `local cql`")
    return found, waiting


class StreamChanges:
    """What `local streams` does. Every method raises as `CqlSession.rows` and its writes."""

    def __init__(self, session: WritingSession, say: Say, clock: Callable[[], UnixMicros]) -> None:
        """Take the server.

        Args:
            session: to the stack's server.
            say: gets a line on what was done.
            clock: us since 1970.
        """
        self._session = session
        self._say = say
        self._clock = clock

    def new_generation(self, ahead: Ahead) -> UnixMillis:
        """Let a node join: all streams of the tables without tablets are replaced; returns the generation's start.

        Raises:
            LocalStackError: it would not come after those that are there.
        """
        cluster, unpublished = cluster_of(self._session)
        newest = cluster.generations[-1].start_ms if cluster.generations else None
        start_ms = self._start_ms(ahead, newest, unpublished, "generation", "")
        made = cluster.add_generation(start_ms, publish=False)
        # Writes go by what the nodes know, so that comes before what readers see.
        cluster.remember(made)
        if ahead.publish:
            self._show([made], cluster)
        count = sum(1 for _ in made.streams())
        self._say(f"generation {_from(start_ms, self._clock())}: {count} streams, {_seen(ahead, '')}")
        return start_ms

    def resize(self, table: TableName, how: Resize, ahead: Ahead, *, partial: bool) -> UnixMillis:
        """Split every tablet of a table in two, or merge each two into one; returns the stream set's start.

        Args:
            table: which has tablets.
            how: what to do.
            ahead: when.
            partial: only the first tablet, or the first two. ScyllaDB's format allows it; today's ScyllaDB resizes all.

        Raises:
            LocalStackError: the table has vnodes, or one tablet is to be merged; or as `new_generation`.
        """
        tablets, waiting = tablets_of(self._session, table)
        last = tablets.sets[-1]
        name = shown_table(*table)
        start_ms = self._start_ms(ahead, last.start_ms, [one.start_ms for one in waiting], f"{name}: stream set", name)
        tokens = [stream.token for stream in last.streams]
        if how == "merge" and len(tokens) == 1:
            raise LocalStackError(f"{name} has one tablet, which has no other to be merged with")
        resized = (split if how == "split" else merge)(tokens, [0] if partial else None)
        made = tablets.resize(start_ms, resized, partial=partial, publish=False)
        tablets.remember(made)
        if ahead.publish:
            tablets.publish(made)
        kept = len(set(last.streams) & set(made.streams))
        self._say(
            f"{name}: stream set {_from(start_ms, self._clock())}: {len(last.streams)} streams become "
            f"{len(made.streams)}{f', {kept} of them go on' if kept else ''}, {_seen(ahead, f' {name}')}"
        )
        return start_ms

    def publish(self, table: TableName | None) -> None:
        """Show readers what they do not see yet: the cluster's generations, or a table's stream sets.

        Raises:
            LocalStackError: there is nothing of the kind; or as `resize`.
        """
        if table is None:
            cluster, unpublished = cluster_of(self._session)
            self._show((one for one in cluster.generations if one.start_ms in unpublished), cluster)
            self._say_published("generation", unpublished)
            return
        tablets, waiting = tablets_of(self._session, table)
        for one in waiting:
            tablets.publish(one)
        self._say_published(f"{shown_table(*table)}: stream set", [one.start_ms for one in waiting])

    def collect(self, table: TableName) -> None:
        """Forget what lies so far back that the log's TTL has passed, as ScyllaDB does with tablets every minute.

        Raises:
            LocalStackError: as `resize`.
        """
        tablets, _ = tablets_of(self._session, table)
        options = ChangeLog(self._session).cdc_options(*table)
        before = len(tablets.sets)
        base = tablets.collect(UnixMillis(self._clock() // 1000), 0 if options is None else options.ttl_s)
        gone = before - len(tablets.sets)
        self._say(
            f"{shown_table(*table)}: {gone} stream set{'' if gone == 1 else 's'} forgotten, "
            f"the oldest is of {iso_of_millis(base.start_ms)} now"
        )

    def old_format(self) -> None:
        """Let the cluster be one of before ScyllaDB 4.4, which shows its generations in another table.

        Raises:
            LocalStackError: it is one.
        """
        if is_old(self._session):
            raise LocalStackError("the cluster shows its generations in the old format already")
        cluster, unpublished = cluster_of(self._session)
        self._session.execute(f"TRUNCATE {_OLDER}")
        for generation in cluster.generations:
            cluster.remember(generation)  # for of the old table's streams nobody can tell the ranges
            if generation.start_ms not in unpublished:
                publish_old(self._session, generation)
        forget_upgrade(self._session)
        for table in _NEWER:
            self._session.execute(f"TRUNCATE {table}")
        self._say(
            f"{_counted(len(cluster.generations), 'generation')} in system_distributed.cdc_streams_descriptions alone, "
            "as before ScyllaDB 4.4; a job that runs already does not look there"
        )

    def upgrade(self) -> None:
        """Let a cluster of the old format copy its generations to today's tables, and say so.

        Raises:
            LocalStackError: it is none.
        """
        if not is_old(self._session):
            raise LocalStackError("the cluster shows its generations in today's tables: see `local streams old-format`")
        cluster, unpublished = cluster_of(self._session)
        shown = [one for one in cluster.generations if one.start_ms not in unpublished]
        upgrade(self._session, shown)
        self._say(f"{_counted(len(shown), 'generation')} copied to today's tables; system.cdc_local says so")

    def _show(self, generations: Iterable[Generation], cluster: SimulatedCluster) -> None:
        for generation in generations:
            show_generation(self._session, cluster, generation)

    def _start_ms(
        self, ahead: Ahead, newest: UnixMillis | None, unpublished: Iterable[UnixMillis], what: str, table: str
    ) -> UnixMillis:
        """When a change begins that comes after all others."""
        now_us = self._clock()
        start_ms = UnixMillis(now_us // 1000 + int(ahead.starts_in_s * 1000))
        waiting = [iso_of_millis(one) for one in unpublished]
        if ahead.publish and waiting:
            raise LocalStackError(
                f"{what} {waiting[0]} is not published yet, and ScyllaDB publishes in order: do that first "
                f"(`{_publish(f' {table}' if table else '')}`), or make this one --unpublished, too"
            )
        if newest is not None and start_ms <= newest:
            wait_s = -(-(newest - now_us // 1000) // 1000) + 1
            raise LocalStackError(
                f"{what} {_from(newest, now_us)} comes already, and the new one must begin after it: --in {wait_s}"
            )
        return start_ms

    def _say_published(self, what: str, starts_ms: Iterable[UnixMillis]) -> None:
        now_us = self._clock()
        found = [f"{what} {_from(one, now_us)} published" for one in starts_ms]
        if not found:
            raise LocalStackError(f"{what}: all are published")
        for line in found:
            self._say(line)


def _from(start_ms: UnixMillis, now_us: UnixMicros) -> str:
    away_s = start_ms / 1000 - now_us / 1_000_000
    return f"{iso_of_millis(start_ms)} ({f'in {away_s:.1f} s' if away_s > 0 else f'since {-away_s:.1f} s'})"


def _seen(ahead: Ahead, table: str) -> str:
    if ahead.publish:
        return "published"
    return f"not published: writes go by it from then on, but readers see it only after `{_publish(table)}`"


def _publish(table: str) -> str:
    return f"scylla-cdc-bridge local streams publish{table}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
