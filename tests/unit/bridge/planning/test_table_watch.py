"""Notices about a captured table that changes while it is read."""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import UUID

import pytest

from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.planning.table_watch import CdcOptions, Notice, TableState, TableWatch
from schemas.cql.table import TableSchema
from schemas.shapes.catalog import shape_of
from tests.unit.schemas.example_tables import table

MINUTE = 60_000_000
NOW = UnixMicros(1_800_000_000_000_000)
REACHED = Cursor(UnixMillis(0), UnixMicros(NOW - MINUTE))
SCHEMA = table({"pk": "int"}, {"ck": "int"}, {"v": "int"})
ON = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=86_400)
OFF = CdcOptions(enabled=False, preimage="false", postimage=False, delta="full", ttl_s=86_400)
KEYS = CdcOptions(enabled=True, preimage="false", postimage=False, delta="keys", ttl_s=86_400)
GONE = TableState(None, None, None)


def made(us: int) -> UUID:
    return UUID(bytes=timeuuid_of(UnixMicros(us), bytes(8)))


FIRST = made(NOW - 600 * MINUTE)


def state(schema: TableSchema = SCHEMA, options: CdcOptions | None = ON, log_id: UUID = FIRST) -> TableState:
    return TableState(log_id, schema, options)


def said(*states: TableState) -> list[list[Notice]]:
    watch = TableWatch("ks", "t", shape_of("full"))
    return [watch.compare(one, UnixMicros(NOW + minute * MINUTE), REACHED) for minute, one in enumerate(states)]


def test_an_unchanged_table_has_no_notices() -> None:
    """A table with good options gives no notice, and the same state gives no second one."""
    assert said(state(), state(), state(options=None)) == [[], [], []]
    first, second, third = said(state(options=OFF), state(options=OFF), GONE)
    assert (len(first), second, len(third)) == (1, [], 1)


def test_cdc_off_and_on_names_the_gap() -> None:
    """The notices name both ends of the gap as far as they are known."""
    _, off, on = said(state(), state(options=OFF), state())
    assert off[0].level == logging.WARNING
    assert "ks.t: CDC is off since about 2027-01-15T08:00:00.000000Z" in off[0].text
    assert "CDC is on again; changes made between about 2027-01-15T08:00:00" in on[0].text
    assert "2027-01-15T08:02:00" in on[0].text
    (unknown,) = said(state(options=OFF))
    assert "since some time ago" in unknown[0].text


def test_keys_only_has_a_notice_when_it_begins_and_ends() -> None:
    """The log itself does not mark that deltas lose their content."""
    _, keys, still, full = said(state(), state(options=KEYS), state(options=KEYS), state())
    assert [one.level for one in keys + full] == [logging.WARNING, logging.INFO]
    assert (
        "ks.t: the cdc option 'delta' is 'keys' since about 2027-01-15T08:01:00.000000Z: the log does not record what"
        in keys[0].text
    )
    assert "'delta' is 'full' since about 2027-01-15T08:03:00" in full[0].text
    assert still == []
    assert "'delta' is 'keys'" in said(state(options=None), state(options=KEYS))[1][0].text


def test_other_images_have_a_notice() -> None:
    """One notice for each changed option names the effect on the table's shape."""
    both = replace(ON, preimage="full", postimage=True)
    _, off, part, full = said(
        *(state(options=one) for one in (both, ON, replace(ON, preimage="true"), replace(ON, preimage="full")))
    )
    assert [one.level for one in off + part + full] == [logging.WARNING] * 3 + [logging.INFO]
    assert "'preimage' is 'false' since about 2027-01-15T08:01:00.000000Z: before is null" in off[0].text
    assert "'postimage' is 'false' since about 2027-01-15T08:01:00.000000Z: after is null" in off[1].text
    assert "'preimage' is 'true' since" in part[0].text
    assert "'preimage' is 'full' since" in full[0].text
    # Older releases reset the other options when CDC is switched off. Only what differs afterwards is reported.
    _, cdc_off, again = said(state(options=both), state(options=OFF), state(options=both))
    assert (len(cdc_off), len(again)) == (1, 1)
    _, _, forgotten = said(state(options=both), state(options=OFF), state())
    assert ["'preimage'" in forgotten[1].text, "'postimage'" in forgotten[2].text] == [True, True]


@pytest.mark.parametrize(
    ("before_s", "ttl_s", "level", "words"),
    [
        (3_600, 86_400, logging.INFO, "is 86400 s since about {}; changes from before are still kept for 3600 s only"),
        (3_600, 0, logging.INFO, "is 0 (for ever) since about {}; changes from before are still kept for 3600 s only"),
        (86_400, 3_600, logging.WARNING, "is 3600 s since about {}, and was 86400 s: changes from then on are lost"),
        (0, 3_600, logging.WARNING, "is 3600 s since about {}, and was 0 (for ever): changes from then on are lost"),
    ],
)
def test_changed_ttl_has_a_notice(before_s: int, ttl_s: int, level: int, words: str) -> None:
    """It holds for later changes only."""
    _, changed, still = said(*(state(options=replace(ON, ttl_s=one)) for one in (before_s, ttl_s, ttl_s)))
    assert [notice.level for notice in changed] == [level]
    assert f"ks.t: the cdc option 'ttl' {words.format('2027-01-15T08:01:00.000000Z')}" in changed[0].text
    assert still == []


def test_table_created_again_names_what_is_lost() -> None:
    """From where the former log was read up to when the new one was created."""
    recreated = state(log_id=made(NOW + MINUTE // 2))
    _, gone, still_gone, back = said(state(), GONE, GONE, recreated)
    assert "does not exist" in gone[0].text
    assert "written after 2027-01-15T07:59:00" in gone[0].text
    assert still_gone == []
    assert "dropped and created again" in back[0].text
    assert "between 2027-01-15T07:59:00.000000Z, up to where it was read, and 2027-01-15T08:00:30" in back[0].text
    at_once = said(state(), recreated)[1]
    assert [notice.text for notice in at_once] == [notice.text for notice in back]


def test_table_created_again_long_ago_lost_nothing() -> None:
    """A log that is older than the cursor was read from its beginning."""
    _, back = said(state(), state(log_id=made(NOW - 2 * MINUTE)))
    assert "all of its former log was read" in back[0].text
    (_, _, same) = said(state(), GONE, state())
    assert same == [Notice(logging.WARNING, "ks.t: the table and its log exist again")]


def test_log_whose_id_is_no_timeuuid() -> None:
    """Then it is not known when the log was created."""
    other = state(log_id=UUID("5bc52802-de25-45ed-aeab-188eecebb090"))
    assert other.log_made_us is None
    assert "and its end can't be published" in said(state(), other)[1][0].text


@pytest.mark.parametrize(
    ("schema", "old", "new", "words"),
    [
        (table({"id": "int"}, {"ck": "int"}, {"v": "int"}), "pk", "id", "can't be published"),
        (
            table({"pk": "int"}, {"line": "int"}, {"v": "int"}),
            "ck",
            "line",
            "can't be published, and a range delete among them may cover more rows",
        ),
    ],
)
def test_renamed_key_is_a_warning(schema: TableSchema, old: str, new: str, words: str) -> None:
    """It names the time, and what happens to the changes from before."""
    notices = said(state(), state(schema))[1]
    assert [notice.level for notice in notices] == [logging.INFO, logging.WARNING]
    assert f"key column {old} was renamed to {new} since about 2027-01-15T08:00:00" in notices[1].text
    assert words in notices[1].text


def test_other_columns_have_a_notice_and_another_fingerprint() -> None:
    """Also a static column that becomes a regular one, which the log's columns do not show."""
    static = table({"pk": "int"}, {"ck": "int"}, static={"v": "int"})
    assert said(state(), state(static))[1] == [Notice(logging.INFO, "ks.t: column v was regular and is static")]
    wide = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "w": "int"})
    assert [notice.text for notice in said(state(), state(wide))[1]] == [
        "ks.t: column w int was added",
        "ks.t: column v was int and is text",
    ]
    assert len({one.fingerprint for one in (state(), state(static), state(wide), GONE, state(log_id=made(1)))}) == 5
