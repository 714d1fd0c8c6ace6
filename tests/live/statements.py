"""The stream of statements of a run: writes, batches, lightweight transactions. The seed decides all of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.live.tables import Table
from tests.live.writes import TableWrites, Using, Write

SHORT_TTL_S: Final = 3
_TTLS_S: Final = (SHORT_TTL_S, 3600, 7200, 86_400)
"""One expires before the comparison, the others after it, and they differ by more than a run takes."""
_TOKEN: Final = re.compile(r"@@(\d+):(-?\d+)@@")
_BACK_US: Final = 800_000
_AHEAD_US: Final = 300_000
_TIE_WITHIN: Final = 12


@dataclass(frozen=True, slots=True)
class Statement:
    """What is sent to the server.

    Attributes:
        kind: a word for what it does.
        text: CQL text, in which `Stamps` replaces the timestamps.
        tables: full names of the written tables.
        resets: statements after which it does not matter whether this one took effect.
        is_conditional: whether the server chooses the timestamp.
        may_be_refused: whether the server refuses it, depending on what the table holds.
    """

    kind: str
    text: str
    tables: tuple[str, ...]
    resets: tuple[str, ...]
    is_conditional: bool = False
    may_be_refused: bool = False


class Stamps:
    """The timestamps of `USING TIMESTAMP`. A statement's text names a number and a distance from the present.

    A number that occurs again is the same timestamp, unless too much time has passed.

    Attributes:
        oldest_us: the most that a timestamp may lie before its execution.
        latest_us: the greatest timestamp so far.
    """

    def __init__(self, oldest_us: int) -> None:
        self.oldest_us = oldest_us
        self._chosen: dict[int, int] = {}
        self._taken: list[tuple[int, int]] = []
        self.latest_us = 0

    def filled(self, text: str, now_us: int) -> str:
        """The text with its timestamps."""

        def stamp(match: re.Match[str]) -> str:
            number, distance = int(match[1]), int(match[2])
            found = self._chosen.get(number)
            if found is None or found < now_us - self.oldest_us:
                found = self._chosen[number] = self._outside(now_us + max(distance, -self.oldest_us), now_us)
            self.latest_us = max(self.latest_us, found)
            return str(found)

        return _TOKEN.sub(stamp, text)

    def keep_out(self, start_us: int, end_us: int) -> None:
        """Choose no timestamp of this span: a server chose one of it for a lightweight transaction."""
        self._taken = [*self._taken[-50:], (start_us, end_us)]

    def _outside(self, stamp_us: int, now_us: int) -> int:
        return now_us if any(start <= stamp_us <= end for start, end in self._taken) else stamp_us


class Statements:
    """Generates statements on some tables.

    Args:
        tables: the tables.
        seed: decides everything.
        real_lists: whether lists can be written element by element, and with a timestamp of the statement's own.
        transactions: full names of the tables that lightweight transactions may write.
    """

    def __init__(self, tables: Sequence[Table], seed: int, *, real_lists: bool, transactions: set[str]) -> None:
        self._random = random = Random(f"{seed}/statements")
        self._real_lists = real_lists
        self._transactions = transactions
        self._writes = [TableWrites(one, random, list_elements=real_lists) for one in tables]
        self._stamps = 0
        self._recent: defaultdict[str, list[int]] = defaultdict(list)
        self._ttls: defaultdict[int, set[int | None]] = defaultdict(set)

    def next(self) -> Statement:
        """The next statement."""
        writes, chance = self._random.choice(self._writes), self._random.random()
        if chance < 0.07 and writes.table.full_name in self._transactions:
            return self._conditional(writes)
        if chance < 0.22:
            return self._batch(writes)
        write = self._write(writes, self._using(writes.table.full_name))
        return _statement(write.kind, write.text, [(writes, write)], may_be_refused=write.needs_read)

    def _write(
        self, writes: TableWrites, using: Using, key: Sequence[str] | None = None, *, in_batch: bool = False
    ) -> Write:
        write = writes.write(using, key, in_batch=in_batch)
        if using.stamp is not None and not self._real_lists and writes.lists_touched(write.text):
            return (
                writes.write(Using(using.ttl_s), key, in_batch=in_batch) if not in_batch else self._plain(writes, key)
            )
        return write

    def _plain(self, writes: TableWrites, key: Sequence[str] | None) -> Write:
        return writes.delete_row(Using(), key or self._random.choice(writes.keys))

    def _using(self, table: str, *, stamped: bool = True) -> Using:
        random = self._random
        ttl_s = random.choice(_TTLS_S) if random.random() < 0.2 else None
        if not stamped or random.random() > 0.3:
            return Using(ttl_s)
        recent = self._recent[table]
        if recent and random.random() < 0.3:
            number = random.choice(recent)
            # Which of two equal timestamps and TTLs ends later, the records do not say.
            if ttl_s in self._ttls[number]:
                ttl_s = None
        else:
            self._stamps += 1
            number = self._stamps
            self._recent[table] = [*recent[1 - _TIE_WITHIN :], number]
        self._ttls[number].update({ttl_s} - {None})
        return Using(ttl_s, f"@@{number}:{random.randint(-_BACK_US, _AHEAD_US)}@@")

    def _conditional(self, writes: TableWrites) -> Statement:
        key, random = random_key(writes, self._random), self._random
        made = [writes.conditional(self._using("", stamped=False), key)]
        text = made[0].text
        if random.random() < 0.2:
            made += [writes.write(self._using("", stamped=False), key, in_batch=True) for _ in range(2)]
            text = _batch_text("", "", made)
        made_at = [(writes, one) for one in made]
        return _statement("transaction", text, made_at, is_conditional=True, may_be_refused=len(made) > 1)

    def _batch(self, writes: TableWrites) -> Statement:
        random = self._random
        logged = random.choice(("", "", "UNLOGGED "))
        one_key = random_key(writes, random) if random.random() < 0.6 else None
        others = random.random() < 0.15
        clause, stamped = "", random.random() < 0.5
        if random.random() < 0.25:
            clause, stamped = self._using(writes.table.full_name).clause(with_ttl=False), False
        made: list[tuple[TableWrites, Write]] = []
        for _ in range(random.randint(2, 5)):
            at = random.choice(self._writes) if others else writes
            key = None if at is not writes else one_key
            using = self._using(at.table.full_name, stamped=stamped)
            made.append((at, self._write(at, using, key, in_batch=True)))
        if clause and not self._real_lists and any(at.lists_touched(write.text) for at, write in made):
            clause = ""
        text = _batch_text(logged, clause, [write for _, write in made])
        return _statement(f"{logged.lower()}batch", text, made)


def random_key(writes: TableWrites, random: Random) -> Sequence[str]:
    """The literals of one of the table's partition keys."""
    return random.choice(writes.keys)


def _batch_text(logged: str, clause: str, writes: Sequence[Write]) -> str:
    return f"BEGIN {logged}BATCH{clause} {'; '.join(one.text for one in writes)}; APPLY BATCH"


def _statement(
    kind: str,
    text: str,
    made: Sequence[tuple[TableWrites, Write]],
    *,
    is_conditional: bool = False,
    may_be_refused: bool = False,
) -> Statement:
    tables = dict.fromkeys(writes.table.full_name for writes, _ in made)
    resets = dict.fromkeys(writes.reset(one) for writes, write in made for one in write.partitions)
    return Statement(kind, text, tuple(tables), tuple(resets), is_conditional, may_be_refused)
