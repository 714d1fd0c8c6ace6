"""Sends the statements of a run to the server, one after the other, and the ALTER TABLE statements between them."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from tests.live.cql_types import Map, set_of
from tests.live.native_types import INT, TEXT
from tests.live.server import RefusedError, Server, UnsettledError, now_us
from tests.live.statements import Stamps, Statement
from tests.live.tables import Column, Table

_AGAIN_FOR_S: Final = 120.0
_PAUSE_S: Final = 0.5
_DROP_LEEWAY_S: Final = 6.0
"""A name that was dropped from a log can't be used again for 5 s."""
_SLOW_SHARE: Final = 0.5
_PASSING: Final = ("attempted to get a stream", "does not have base column")
"""Reasons of refusals at a change of streams (a timestamp of the time before it) or of columns."""
_EXTRA: Final = (Column("extra_int", INT), Column("extra_map", Map(INT, TEXT)), Column("extra_set", set_of(TEXT)))
_NEVER_ALTERED: Final = ("viewed", "keys_only")


class Writing:
    """Runs statements.

    Args:
        server: the server.
        tables: all tables.
        random: decides the ALTER TABLE statements.
        confidence_us: the bridge's confidence window. A write that is confirmed later need not be seen.
        say: receives lines on the progress.
    """

    def __init__(
        self,
        server: Server,
        tables: Sequence[Table],
        random: Random,
        confidence_us: int,
        say: Callable[[str], None],
    ) -> None:
        self._server, self._random, self._say = server, random, say
        self._tables = {one.full_name: one for one in tables}
        self._altered = [one for one in tables if one.name not in _NEVER_ALTERED]
        self._late_us = int(confidence_us * _SLOW_SHARE)
        self._stamps = Stamps(oldest_us=confidence_us // 4)
        self._droppable_s: dict[tuple[str, str], float] = {}
        self._last_us = 0
        self.statements: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unexpected_refusals: list[str] = []
        self.unconfirmed = 0
        self.alters = 0
        self.unsettled: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def run(self, statement: Statement) -> None:
        """Run a statement. If its outcome stays open, reset the partitions that it writes."""
        if statement.is_conditional and not self._server.is_real:
            # This server gives it a timestamp of its own, between this one and that of the answer.
            self._pass_stamps()
        self.kinds[statement.kind] += 1
        self.statements.update(statement.tables)
        start_us = self._next_us()
        try:
            self._server.execute(self._stamps.filled(statement.text, start_us), start_us)
        except RefusedError as error:
            self._refused(statement, error)
        except UnsettledError as error:
            self._settle(statement, start_us, error)
        else:
            if now_us() - start_us > self._late_us:
                self._settle(statement, start_us, "confirmed after too long")
        if statement.is_conditional and not self._server.is_real:
            self._stamps.keep_out(start_us, now_us())

    def _pass_stamps(self) -> None:
        """Wait until no timestamp lies in the future."""
        while now_us() <= self._stamps.latest_us:
            time.sleep(0.01)

    def _next_us(self) -> int:
        self._last_us = max(now_us(), self._last_us + 1)
        return self._last_us

    def _refused(self, statement: Statement, error: RefusedError) -> None:
        self.refused[statement.kind] += 1
        if not statement.may_be_refused and not any(reason in str(error) for reason in _PASSING):
            self.unexpected_refusals.append(str(error))
            self._say(f"refused: {error}")

    def _settle(self, statement: Statement, start_us: int, reason: object) -> None:
        """After a write without a confirmation in time, delete its partitions, until that is confirmed."""
        self.unconfirmed += 1
        self._say(f"{statement.kind}: {reason}")
        for reset in statement.resets:
            self._confirm(reset)
        self._note_unsettled(statement, start_us)

    def _confirm(self, cql: str) -> None:
        deadline_s = time.monotonic() + _AGAIN_FOR_S
        while True:
            start_us = self._next_us()
            try:
                self._server.execute(cql, start_us)
            except UnsettledError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _note_unsettled(self, statement: Statement, start_us: int) -> None:
        # The span includes timestamps of the statement's own.
        span = (start_us - self._stamps.oldest_us, max(now_us(), self._stamps.latest_us))
        for table in statement.tables:
            self.unsettled[table].append(span)

    # -- ALTER TABLE --------------------------------------------------------------------------------------------------

    def alter(self) -> None:
        """Add, drop or add again a column of a random table, or add a field to a type."""
        table = self._random.choice(self._altered)
        extras = [one for one in _EXTRA if one in table.regular]
        absent = [one for one in _EXTRA if one not in table.regular]
        if extras and self._random.random() < 0.5:
            self._drop(table, self._random.choice(extras))
        elif absent and self._random.random() < 0.8:
            self._add(table, self._random.choice(absent))
        else:
            self._add_field(table)

    def _drop(self, table: Table, column: Column) -> None:
        # The server forgets what is not newer than the drop.
        self._pass_stamps()
        self._change(f"ALTER TABLE {table.full_name} DROP {column.quoted}")
        table.regular.remove(column)
        table.retired.append(column)
        table.dropped_us[column.name] = now_us()
        self._droppable_s[table.full_name, column.name] = time.monotonic() + _DROP_LEEWAY_S

    def _add(self, table: Table, column: Column) -> None:
        if time.monotonic() < self._droppable_s.get((table.full_name, column.name), 0):
            return
        # No write of before the drop may have the time of one after it.
        self._change(f"ALTER TABLE {table.full_name} ADD {column.quoted} {column.type.cql}")
        table.regular.append(column)

    def _add_field(self, table: Table) -> None:
        udt = self._random.choice(table.types)
        name = f"f{len(udt.fields)}"
        self._change(f'ALTER TYPE {table.keyspace}.{udt.name} ADD "{name}" text')
        udt.fields.append((name, TEXT))

    def switch_log(self) -> None:
        """Disable the log of a random table, and enable it again before the next write."""
        table = self._random.choice(self._altered)
        for enabled in (False, True):
            self._change(f"ALTER TABLE {table.full_name} WITH cdc = {table.cdc_option(enabled=enabled)}")

    def _change(self, cql: str) -> None:
        self._say(cql)
        self.alters += 1
        self._confirm(cql)


def paced(count: int, rate_per_s: float) -> Iterator[int]:
    """The numbers of statements, each when it is due: at most so many in a second; 0 for no limit."""
    due_s = time.monotonic()
    for number in range(count):
        if rate_per_s > 0:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s = max(due_s + 1 / rate_per_s, time.monotonic() - 1)
        yield number
