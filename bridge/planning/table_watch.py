"""Compares the states of a captured table over time, and words what changed: its log, CDC options and columns. Pure.

Nothing here stops a table. The notices say what the log itself does not show: in which time changes are missing from
it, and which key columns lost their values.
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
from schemas.shapes.base import Shape

LOOK_EVERY_S: Final = 5.0
"""The interval between two looks at a table."""

_TIMEUUID_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """The `cdc` option of a base table.

    Attributes:
        enabled: whether the log gets new changes.
        preimage: `false`, `true` or `full`.
        postimage: whether the log has post-images.
        delta: `full` or `keys`.
        ttl_s: how long the log keeps a change, in s; 0 keeps it for ever.
    """

    enabled: bool
    preimage: str
    postimage: bool
    delta: str
    ttl_s: int


_DEFAULT_OPTIONS: Final = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=0)
"""The options of a table whose option was never set."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a captured table at one moment.

    Attributes:
        log_id: id of the log table. It stays when CDC is switched off and on, and differs if the table was dropped and
            created again. None if table or log do not exist.
        schema: the base table; None together with `log_id`.
        options: its CDC options; None if they were never set, because an index switched CDC on.
    """

    log_id: UUID | None
    schema: TableSchema | None
    options: CdcOptions | None

    @property
    def exists(self) -> bool:
        """Whether the table has a log."""
        return self.log_id is not None

    @property
    def is_off(self) -> bool:
        """Whether CDC is switched off, so that the log gets no new changes."""
        return self.exists and self.options is not None and not self.options.enabled

    @property
    def log_made_us(self) -> UnixMicros | None:
        """When the log table was created, in us; None if its id is no timeuuid."""
        # `UUID.version` is None unless the variant is RFC 4122's, which servers do not always set.
        if self.log_id is None or self.log_id.bytes[6] >> 4 != _TIMEUUID_VERSION:
            return None
        return micros_of(self.log_id.bytes)

    @property
    def fingerprint(self) -> str:
        """A short text that changes if the log or the columns change; empty if the table does not exist."""
        if self.log_id is None or self.schema is None:
            return ""
        return hashlib.sha256(self.log_id.bytes + self.schema.to_json().encode()).hexdigest()[:16]


class Notice(NamedTuple):
    """A message to log once.

    Attributes:
        level: a level of `logging`.
        text: the message.
    """

    level: int
    text: str


class TableWatch:
    """Compares each state of a table with the one before, and words each change once."""

    def __init__(self, keyspace: str, table: str, shape: Shape) -> None:
        """Begin without a known state; `shape` is the shape of the table's records."""
        self._shape = shape
        self._name = f"{keyspace}.{table}"
        self._log_name = self._name + LOG_TABLE_SUFFIX
        self._known: TableState | None = None
        self._looked_us: UnixMicros | None = None
        self._is_missing = False
        self._off_since: str | None = None
        # The options when CDC was last on: older servers reset them when CDC is switched off.
        self._options_while_on: CdcOptions | None = None

    def compare(self, state: TableState, now_us: UnixMicros, reached: Cursor) -> list[Notice]:
        """Return notices about what changed since the last call.

        Args:
            state: the state of the table now.
            now_us: the current time in us.
            reached: how far the table is read.
        """
        if state.exists:
            notices = [
                *self._compare_logs(state, reached),
                *self._compare_options(state, now_us),
                *self._compare_columns(state),
            ]
            self._known, self._is_missing = state, False
            if state.options is not None and state.options.enabled:
                self._options_while_on = state.options
        else:
            notices = [] if self._is_missing else [self._describe_missing(reached)]
            self._is_missing = True
        self._looked_us = now_us
        return notices

    def _describe_missing(self, reached: Cursor) -> Notice:
        return _warning(
            f"{self._name}: the table or its log {self._log_name} does not exist (dropped?). The job waits until it "
            f"exists; changes written after {iso_of_micros(reached.reached_us)} that were not read can't be published"
        )

    def _compare_logs(self, state: TableState, reached: Cursor) -> list[Notice]:
        known = self._known
        if known is None or known.log_id == state.log_id:
            return [_warning(f"{self._name}: the table and its log exist again")] if self._is_missing else []
        return [_warning(f"{self._name}: {describe_recreated_table(state, reached)}")]

    def _compare_options(self, state: TableState, now_us: UnixMicros) -> list[Notice]:
        notices = []
        options, known = state.options, self._known
        if state.is_off and self._off_since is None:
            since_us = self._looked_us
            self._off_since = "some time ago" if since_us is None else f"about {iso_of_micros(since_us)}"
            notices.append(
                _warning(
                    f"{self._name}: CDC is off since {self._off_since}. The job reads what the log holds; changes made "
                    "while CDC is off are not in the log and can never be published"
                )
            )
        elif not state.is_off and self._off_since is not None:
            notices.append(
                _warning(
                    f"{self._name}: CDC is on again; changes made between {self._off_since} and about "
                    f"{iso_of_micros(now_us)} are not in the log and can never be published"
                )
            )
            self._off_since = None
        if known is not None and known.options is not None and options is not None and known.log_id == state.log_id:
            notices += self._compare_ttls(known.options.ttl_s, options.ttl_s, now_us)
        if known is not None and options is not None and options.enabled:
            notices += self._compare_content(self._options_while_on or _DEFAULT_OPTIONS, options, now_us)
        return notices

    def _compare_content(self, before: CdcOptions, options: CdcOptions, now_us: UnixMicros) -> list[Notice]:
        """Compare the options that decide what the log holds of a change."""
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

    def _compare_ttls(self, before_s: int, ttl_s: int, now_us: UnixMicros) -> list[Notice]:
        if before_s == ttl_s:
            return []
        since = f"the cdc option 'ttl' is {_format_ttl(ttl_s)} since about {iso_of_micros(now_us)}"
        if ttl_s == 0 or 0 < before_s < ttl_s:
            words = f"changes from before are still kept for {_format_ttl(before_s)} only"
            return [Notice(logging.INFO, f"{self._name}: {since}; {words}")]
        words = (
            "changes from then on are lost if they are not read within it, and with tablets ScyllaDB may forget the "
            "streams of earlier ones at once"
        )
        return [_warning(f"{self._name}: {since}, and was {_format_ttl(before_s)}: {words}")]

    def _compare_columns(self, state: TableState) -> list[Notice]:
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
            what = "can't be published"
            if kind is ColumnKind.CLUSTERING:
                what += ", and a range delete among them may cover more rows, because it lacks this bound"
            notices.append(
                _warning(
                    f"{self._name}: key column {old} was renamed to {new} since {since}. The log lost the values of "
                    f"{old}: changes from before that were not read {what}"
                )
            )
        return notices


def describe_recreated_table(state: TableState, reached: Cursor) -> str:
    """Return a message that the table was dropped and created again, and which changes of the former log are lost.

    Args:
        state: the table, with its new log.
        reached: how far the former log was read.
    """
    made_us = state.log_made_us
    if made_us is not None and made_us <= reached.reached_us:
        return "the table was dropped and created again; all of its former log was read"
    until = "its end" if made_us is None else iso_of_micros(made_us)
    return (
        "the table was dropped and created again: changes of the former one that were written between "
        f"{iso_of_micros(reached.reached_us)}, up to where it was read, and {until} can't be published"
    )


def _format_ttl(ttl_s: int) -> str:
    return f"{ttl_s} s" if ttl_s else "0 (for ever)"


def _warning(text: str) -> Notice:
    return Notice(logging.WARNING, text)
