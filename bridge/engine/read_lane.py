"""The reading half of a task: the changes of one lane's part of a micro-batch, encoded, in lane order."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from bridge.adapters.scylla.routing import token_of
from bridge.config.document import SourceConfig
from bridge.encoding import grouping
from bridge.encoding.group_encoder import EncodedChange, GroupEncoder
from bridge.encoding.json_values import json_value
from bridge.encoding.key_check import SAMPLE_EVERY, KeyCheck, MisplacedKey
from bridge.engine import process_cache
from bridge.errors import PoisonError, RetriableError
from bridge.model.log_rows import Cells, Group, LogLayout
from bridge.model.micro_batch import Part
from bridge.model.position import Position
from bridge.monitoring.counters import LaneFigures, tally
from bridge.monitoring.measured_log import ObservedLog
from bridge.planning.poll_rate import LONGEST_RETRY_PAUSE_S, load_interval_s
from bridge.publishing.protocol import LaneTask
from bridge.reading import schema_change
from bridge.reading.fast_path import FastPath, encode_chunks
from bridge.reading.lane_merge import keep_rows, read_lane
from bridge.reading.schema_change import Changes
from bridge.reading.stream_probe import StreamCounter
from bridge.reading.table_capture import CapturedTable, Schemas
from schemas.errors import DecodeError
from schemas.shapes import shape_of

_log = logging.getLogger(__name__)

_MOST_MISPLACED = 10

_Thing = TypeVar("_Thing")


class LaneChanges:
    """Reads a lane's part of a micro-batch.

    Attributes:
        task: that part.
    """

    def __init__(self, config: SourceConfig, task: LaneTask, fingerprint: str) -> None:
        """Say which; nothing is asked yet.

        Args:
            config: of the source.
            task: the lane's part of the micro-batch.
            fingerprint: of the table, as of `bridge.engine.process_cache.captured_table`.
        """
        self.task = task
        self._config = config
        self._fingerprint = fingerprint

    def runs(self, parts: Sequence[tuple[int, Part]] | None = None) -> Iterator[tuple[int, Schemas, Changes]]:
        """The changes in runs of one part and one schema each; exhaust a run before you ask for the next.

        Every part has a run, if only one without changes.

        Args:
            parts: what of the micro-batch to read, see `bridge.publishing.protocol.Remainder.parts`; None for all of
            it.

        Yields:
            The number of the micro-batch's part, under which schemas its changes are encoded, and these.

        Raises:
            RetriableError: from here or from a run: another attempt may succeed. What is known of the cluster is
                forgotten by then.
            BridgeError: see `schema_change.runs_by_schema`, `lane_merge.read_lane` and `grouping.groups`.
        """
        return self._forgetting(self._runs(list(enumerate(self.task.batch.parts)) if parts is None else parts))

    def _runs(self, parts: Sequence[tuple[int, Part]]) -> Iterator[tuple[int, Schemas, Changes]]:
        task = self.task
        place = (self._config.scylla, task.keyspace, task.table, self._config.output_options, self._fingerprint)
        captured = process_cache.captured_table(*place)
        for number, part in parts:
            runs = schema_change.runs_by_schema(
                captured,
                partial(self._changes, part),
                lambda: process_cache.recaptured_table(*place),
            )
            for captured, changes in runs:
                yield number, captured.schemas, self._forgetting(changes)

    def _forgetting(self, things: Iterator[_Thing]) -> Iterator[_Thing]:
        try:
            yield from things
        except RetriableError:
            # A session that failed, or a table that is gone: the next attempt looks at everything anew.
            process_cache.drop_cluster(self._config.scylla)
            raise

    def _key_check(self, part: Part, layout: LogLayout) -> KeyCheck | None:
        if self._config.reading.integrity == "off":
            return None
        task = self.task
        name, said = f"{task.keyspace}.{task.table}", 0

        def report(misplaced: MisplacedKey) -> None:
            nonlocal said
            said += 1
            if said <= _MOST_MISPLACED:
                _log.error("%s: %s%s", name, misplaced, "; further ones are counted" * (said == _MOST_MISPLACED))

        return KeyCheck(
            layout,
            lambda: process_cache.lane_key_ranges(self._config.scylla, task, part.selection),
            token_of,
            report,
            every=1 if self._config.reading.integrity == "always" else SAMPLE_EVERY,
        )

    def _changes(self, part: Part, captured: CapturedTable) -> Changes:
        task, reading, scylla = self.task, self._config.reading, self._config.scylla
        streams = process_cache.lane_streams(scylla, task, part.selection)
        if process_cache.is_retry():
            # The attempt before may have asked them all just now.
            lanes_share = scylla.requests_per_second / self._config.sharing / task.batch.layout.lanes
            _pause(min(LONGEST_RETRY_PAUSE_S, load_interval_s(len(streams), lanes_share)))
        opened = {stream.raw: opened_ms for stream, opened_ms in streams.items()}
        output, layout = self._config.table_output, captured.layout
        form = output.record_form(dead_letters=self._config.dead_letters)
        check = self._key_check(part, layout)
        encoder = GroupEncoder(captured.codec, layout, (task.keyspace, task.table), form)
        # What looks at each change, or at each group, goes by way of them.
        by_page = form.is_plain and self._config.payload == "avro" and not reading.deduplicate
        plain = FastPath(captured.codec.page_encoder, layout, opened, check) if by_page else None
        name = f"{task.keyspace}.{task.table}"
        log = ObservedLog(captured.reader, tally, name, task.lane)
        counted = StreamCounter(keep_rows(layout) if plain is None else plain.encode_page)
        chunks = read_lane(
            log,
            captured.probe.streams_to_read(log, list(streams), part.window, scylla.requests_in_flight),
            part.window,
            layout,
            page_rows=scylla.page_rows,
            in_flight=scylla.requests_in_flight,
            page_to_entries=counted,
        )

        def general(log_rows: Iterator[Cells]) -> Iterator[EncodedChange]:
            found = self._groups(log_rows, layout)
            for group in found if check is None else check.check_groups(found):
                changes = encoder.encode(group, opened[group.stream_id])
                yield from changes if self._config.payload == "avro" else _as_json(changes, captured)

        try:
            yield from encode_chunks(chunks, general)
            captured.probe.record_result(name, len(streams), counted.count)
        finally:
            if encoder.unknown_operations:
                _count(task, LaneFigures(unknown_operations=encoder.unknown_operations))
            if check is not None:
                _count(task, LaneFigures(keys_checked=check.checked, keys_misplaced=check.misplaced))

    def _groups(self, log_rows: Iterator[Cells], layout: LogLayout) -> Iterator[Group]:
        found = grouping.groups(
            log_rows,
            layout,
            incomplete=self._config.reading.on_incomplete_group,
            by_row=shape_of(self._config.table_output.shape).by_row,
            keep_poison=self._config.dead_letters,
            is_retry=process_cache.is_retry(),
        )
        if self._config.reading.deduplicate:
            found = grouping.without_repeats(
                found, layout, on_repeat=partial(_count, self.task, LaneFigures(repeats=1))
            )
        return found


def _count(task: LaneTask, figures: LaneFigures) -> None:
    tally.add(f"{task.keyspace}.{task.table}", task.lane, figures)


def _as_json(changes: Iterator[EncodedChange], table: CapturedTable) -> Iterator[EncodedChange]:
    codec = table.codec
    for change in changes:
        if change.is_dead_letter:
            yield change
            continue
        try:
            value = None if change.value is None else _json_of(codec.decode_value(change.value))
            key = _json_of(codec.decode_key(change.key))
        except DecodeError as error:
            # What Avro holds and Python's calendar does not.
            raise PoisonError(
                f"table {table.schema.full_name}: change {Position.from_bytes(change.position)}: {error}; as JSON "
                "there are no timestamps beyond the year 9999, unless `output.timestamps` is millis"
            ) from error
        yield change._replace(key=key, value=value)


def _json_of(record: Mapping[str, object]) -> bytes:
    return json.dumps(json_value(record), ensure_ascii=False).encode()


def _pause(seconds: float) -> None:
    time.sleep(seconds)
