"""What becomes of a captured table while it is read: its options, its columns, its log. Pure; the clock is given.

Nothing here stops a table. It says what the log does not say: between which instants changes are missing from it, and
which columns lost their history (spec section 7).
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, iso_of_micros, micros_of
from schemas.cql.table import LOG_TABLE_SUFFIX, ColumnKind, TableSchema
from schemas.cql.table_changes import changes_between, renamed_keys
from schemas.shapes import Shape

LOOK_EVERY_S: Final = 5.0

_TIMEUUID_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """The `cdc` option of a base table (spec section 1.4).

    Attributes:
        ttl_s: for how long the log keeps a change, in s; 0 is for ever.
    """

    enabled: bool
    preimage: str
    postimage: bool
    delta: str
    ttl_s: int


_PLAIN: Final = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=0)
"""What holds where the option was never set."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What the cluster says of a captured table at one moment.

    Attributes:
        log_id: of the log table: the same when CDC is switched off and on, another when the table is made anew; None
            when table or log do not exist.
        schema: of the base table; None together with `log_id`.
        options: None when the option was never set: an index that needs CDC has switched it on then.
    """

    log_id: UUID | None
    schema: TableSchema | None
    options: CdcOptions | None

    @property
    def exists(self) -> bool:
        """Whether there is a log to read."""
        return self.log_id is not None

    @property
    def is_off(self) -> bool:
        """Whether CDC is switched off, so that the log gets no more changes."""
        return self.exists and self.options is not None and not self.options.enabled

    @property
    def log_made_us(self) -> UnixMicros | None:
        """When the log table was made, if its id says so: ScyllaDB names tables by timeuuids."""
        # Not `UUID.version`: it is None unless the variant is RFC 4122's, which servers do not always set.
        if self.log_id is None or self.log_id.bytes[6] >> 4 != _TIMEUUID_VERSION:
            return None
        return micros_of(self.log_id.bytes)

    @property
    def fingerprint(self) -> str:
        """The same as long as log and columns are."""
        if self.log_id is None or self.schema is None:
            return ""
        return hashlib.sha256(self.log_id.bytes + self.schema.to_json().encode()).hexdigest()[:16]


class Notice(NamedTuple):
    """Something to be said once.

    Attributes:
        level: as in `logging`.
    """

    level: int
    text: str


class TableWatch:
    """Compares each state of a table with the one before; says each thing once."""

    def __init__(self, keyspace: str, table: str, shape: Shape) -> None:
        self._shape = shape
        self._name = f"{keyspace}.{table}"
        self._log_name = self._name + LOG_TABLE_SUFFIX
        self._known: TableState | None = None
        self._looked_us: UnixMicros | None = None
        self._is_missing = False
        self._off_since: str | None = None
        # As last seen with CDC on: what an older server makes of them when it is switched off says nothing.
        self._content: CdcOptions | None = None

    def see(self, state: TableState, now_us: UnixMicros, reached: Cursor) -> list[Notice]:
        """What is to be said about a table now.

        Args:
            state: as it is at this moment.
            now_us: this moment.
            reached: every change before it was read.
        """
        if state.exists:
            notices = self._back(state, reached) + self._option_changes(state, now_us) + self._column_changes(state)
            self._known, self._is_missing = state, False
            if state.options is not None and state.options.enabled:
                self._content = state.options
        else:
            notices = [] if self._is_missing else [self._missing(reached)]
            self._is_missing = True
        self._looked_us = now_us
        return notices

    def _missing(self, reached: Cursor) -> Notice:
        return _warning(
            f"{self._name}: the table or its log {self._log_name} does not exist (dropped?). Nothing is read until it "
            f"is back; what was written after {iso_of_micros(reached.reached_us)} and was not read can't be delivered"
        )

    def _back(self, state: TableState, reached: Cursor) -> list[Notice]:
        known = self._known
        if known is None or known.log_id == state.log_id:
            return [_warning(f"{self._name}: the table is back, with its log")] if self._is_missing else []
        return [_warning(f"{self._name}: {made_anew_in_words(state, reached)}")]

    def _option_changes(self, state: TableState, now_us: UnixMicros) -> list[Notice]:
        notices = []
        options, known = state.options, self._known
        if state.is_off and self._off_since is None:
            since_us = self._looked_us
            self._off_since = "some time ago" if since_us is None else f"about {iso_of_micros(since_us)}"
            notices.append(
                _warning(
                    f"{self._name}: CDC is off since {self._off_since}. What the log holds is read; changes made while "
                    "CDC is off are not in the log and can never be delivered"
                )
            )
        elif not state.is_off and self._off_since is not None:
            notices.append(
                _warning(
                    f"{self._name}: CDC is on again; changes made between {self._off_since} and about "
                    f"{iso_of_micros(now_us)} are not in the log and can never be delivered"
                )
            )
            self._off_since = None
        if known is not None and known.options is not None and options is not None and known.log_id == state.log_id:
            notices += self._ttl_changes(known.options.ttl_s, options.ttl_s, now_us)
        if known is not None and options is not None and options.enabled:
            notices += self._content_changes(self._content or _PLAIN, options, now_us)
        return notices

    def _content_changes(self, before: CdcOptions, options: CdcOptions, now_us: UnixMicros) -> list[Notice]:
        """What the log says of a change from now on, or no longer says."""
        shape = self._shape
        found = (
            ("delta", before.delta, options.delta, shape.delta_effect(options.delta)),
            ("preimage", before.preimage, options.preimage, shape.preimage_effect(options.preimage)),
            ("postimage", before.postimage, options.postimage, shape.postimage_effect(options.postimage)),
        )
        return [
            Notice(
                logging.WARNING if effect.is_loss else logging.INFO,
                f"{self._name}: the cdc option '{name}' is {str(now).lower()!r} since about {iso_of_micros(now_us)}: "
                f"{effect.text}",
            )
            for name, was, now, effect in found
            if was != now
        ]

    def _ttl_changes(self, before_s: int, ttl_s: int, now_us: UnixMicros) -> list[Notice]:
        if before_s == ttl_s:
            return []
        since = f"the cdc option 'ttl' is {_kept_in_words(ttl_s)} since about {iso_of_micros(now_us)}"
        if ttl_s == 0 or 0 < before_s < ttl_s:
            words = f"changes from before are still kept for {_kept_in_words(before_s)} only"
            return [Notice(logging.INFO, f"{self._name}: {since}; {words}")]
        words = (
            "changes from then on are lost when they are not read within it, and with tablets the streams of earlier "
            "ones may be forgotten at once"
        )
        return [_warning(f"{self._name}: {since}, and was {_kept_in_words(before_s)}: {words}")]

    def _column_changes(self, state: TableState) -> list[Notice]:
        known = self._known
        if known is None or known.schema is None or state.schema is None or known.schema == state.schema:
            return []
        notices = [
            Notice(logging.INFO, f"{self._name}: {words}") for words in changes_between(known.schema, state.schema)
        ]
        if known.log_id != state.log_id:
            return notices
        since = "some time ago" if self._looked_us is None else f"about {iso_of_micros(self._looked_us)}"
        for old, new in renamed_keys(known.schema, state.schema):
            kind = next(column.kind for column in state.schema.columns if column.name == new)
            what = "can't be carried"
            if kind is ColumnKind.CLUSTERING:
                what += ", and a range delete among them may read as one of more rows, without its bound there"
            notices.append(
                _warning(
                    f"{self._name}: key column {old} was renamed to {new} since {since}. The log lost the values of "
                    f"{old}: changes from before, as far as they were not read, {what}"
                )
            )
        return notices


def made_anew_in_words(state: TableState, reached: Cursor) -> str:
    """That a table has another log than that which was read up to a cursor, and what of that one can't be delivered."""
    made_us = state.log_made_us
    if made_us is not None and made_us <= reached.reached_us:
        return "the table was dropped and made anew; all of its former log was read"
    until = "its end" if made_us is None else iso_of_micros(made_us)
    return (
        "the table was dropped and made anew: what was written to the former one between "
        f"{iso_of_micros(reached.reached_us)}, up to where it was read, and {until} can't be delivered"
    )


def _kept_in_words(ttl_s: int) -> str:
    return f"{ttl_s} s" if ttl_s else "0 (for ever)"


def _warning(text: str) -> Notice:
    return Notice(logging.WARNING, text)
