"""The reading half of a task: reads one lane's part of a micro-batch and encodes its changes, in lane order."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from bridge.adapters.scylla.routing import token_of
from bridge.config.document import SourceConfig
from bridge.encoding import grouping
from bridge.encoding.group_encoder import EncodedChange, GroupEncoder
from bridge.encoding.json_values import json_value
from bridge.encoding.key_check import SAMPLE_EVERY, KeyCheck, MisplacedKey
from bridge.engine.process.scylla_cache import ScyllaCache
from bridge.errors import RetriableError, UnpublishableError
from bridge.model.counters import LaneCounters
from bridge.model.log_rows import Cells, Group, LogLayout
from bridge.model.micro_batch import Part
from bridge.model.position import Position
from bridge.monitoring.counters import CounterStore, process_counters
from bridge.monitoring.measured_log import MeasuredLog
from bridge.planning.poll_rate import LONGEST_RETRY_PAUSE_S, load_interval_s
from bridge.publishing.lane_recovery import LaneTask
from bridge.reading import schema_change
from bridge.reading.fast_path import FastPath, encode_chunks
from bridge.reading.lane_merge import keep_rows, read_lane
from bridge.reading.schema_change import Changes
from bridge.reading.stream_probe import StreamCounter
from bridge.reading.table_capture import CapturedTable, Schemas
from schemas.errors import DecodeError
from schemas.shapes.catalog import shape_of

_log = logging.getLogger(__name__)

_MOST_MISPLACED_LOGGED: Final = 10

_Item = TypeVar("_Item")


class LaneChanges:
    """Reads a lane's part of a micro-batch.

    Attributes:
        task: the lane's part of the micro-batch.
    """

    def __init__(
        self,
        config: SourceConfig,
        task: LaneTask,
        fingerprint: str,
        cache: ScyllaCache,
        *,
        is_retry: bool,
        sleep: Callable[[float], None] = time.sleep,
        counters: CounterStore = process_counters,
    ) -> None:
        """Prepare; this asks the cluster nothing.

        Args:
            config: of the source.
            task: the lane's part of the micro-batch.
            fingerprint: of the table at the planner's last look; another one than the cache's makes the task capture
                the table again.
            cache: of this process.
            is_retry: whether Spark has tried the task before.
            sleep: waits for so many seconds.
            counters: where to count.
        """
        self.task = task
        self._config = config
        self._fingerprint = fingerprint
        self._cache = cache
        self._is_retry = is_retry
        self._sleep = sleep
        self._counters = counters
        self._name = task.table_name

    def runs(
        self, parts: Sequence[tuple[int, Part]] | None = None, *, while_waiting: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Schemas, Changes]]:
        """Yield the changes in runs of one part and one schema each; exhaust a run before you ask for the next.

        Every part has at least one run, which may be empty.

        Args:
            parts: the parts of the micro-batch to read, each with its number; None for all of them.
            while_waiting: called every quarter of a second while a run waits for a page of the log. The groups
                yielded before are whole.

        Yields:
            The number of the part, the schemas of the run's changes, and the changes.

        Raises:
            RetriableError: the cluster failed, here or in a run; its connection is dropped, and another attempt may
                succeed.
            BridgeError: what `schema_change.runs_by_schema`, `lane_merge.read_lane` and `grouping.groups` raise.
        """
        return self._dropping_failed_cluster(
            self._runs(list(enumerate(self.task.batch.parts)) if parts is None else parts, while_waiting)
        )

    def _runs(
        self, parts: Sequence[tuple[int, Part]], while_waiting: Callable[[], None]
    ) -> Iterator[tuple[int, Schemas, Changes]]:
        task = self.task
        key = (self._config.scylla, task.keyspace, task.table, self._config.output_options, self._fingerprint)
        captured = self._cache.captured_table(*key)
        for number, part in parts:
            runs = schema_change.runs_by_schema(
                captured,
                partial(self._changes, part, while_waiting),
                lambda: self._cache.recaptured_table(*key),
            )
            for captured, changes in runs:
                yield number, captured.schemas, self._dropping_failed_cluster(changes)

    def _dropping_failed_cluster(self, items: Iterator[_Item]) -> Iterator[_Item]:
        try:
            yield from items
        except RetriableError:
            # The session may have failed, or the table may be gone; the next attempt asks for everything again.
            self._cache.drop_cluster(self._config.scylla)
            raise

    def _key_check(self, part: Part, layout: LogLayout) -> KeyCheck | None:
        if self._config.reading.integrity == "off":
            return None
        task = self.task
        logged = 0

        def report(misplaced: MisplacedKey) -> None:
            nonlocal logged
            logged += 1
            if logged <= _MOST_MISPLACED_LOGGED:
                last = "; further ones are only counted" if logged == _MOST_MISPLACED_LOGGED else ""
                _log.error("%s: %s%s", self._name, misplaced, last)

        return KeyCheck(
            layout,
            lambda: self._cache.lane_key_ranges(self._config.scylla, task, part.selection),
            token_of,
            report,
            every=1 if self._config.reading.integrity == "always" else SAMPLE_EVERY,
        )

    def _changes(self, part: Part, while_waiting: Callable[[], None], captured: CapturedTable) -> Changes:
        task, reading, scylla = self.task, self._config.reading, self._config.scylla
        streams = self._cache.lane_streams(scylla, task, part.selection)
        if self._is_retry:
            # The requests of the attempt before count.
            lanes_share = scylla.requests_per_second / self._config.sharing / task.batch.layout.lanes
            self._sleep(min(LONGEST_RETRY_PAUSE_S, load_interval_s(len(streams), lanes_share)))
        opened = {stream.raw: opened_ms for stream, opened_ms in streams.items()}
        output, layout = self._config.table_output, captured.layout
        form = output.record_form(dead_letters=self._config.dead_letters)
        check = self._key_check(part, layout)
        encoder = GroupEncoder(captured.codec, layout, (task.keyspace, task.table), form)
        # Records that depend on each change or group, beyond key, value and position, need the general path.
        by_page = form.is_plain and self._config.payload == "avro" and not reading.deduplicate
        plain = FastPath(captured.codec.page_encoder, layout, opened, check) if by_page else None
        log = MeasuredLog(captured.reader, self._counters, self._name, task.lane)
        counted = StreamCounter(keep_rows(layout) if plain is None else plain.encode_page)
        chunks = read_lane(
            log,
            captured.probe.streams_to_read(log, list(streams), part.window, scylla.requests_in_flight),
            part.window,
            layout,
            page_rows=scylla.page_rows,
            in_flight=scylla.requests_in_flight,
            page_to_entries=counted,
            while_waiting=while_waiting,
        )

        def general(log_rows: Iterator[Cells]) -> Iterator[EncodedChange]:
            found = self._groups(log_rows, layout)
            for group in found if check is None else check.check_groups(found):
                changes = encoder.encode(group, opened[group.stream_id])
                yield from changes if self._config.payload == "avro" else as_json(changes, captured)

        try:
            yield from encode_chunks(chunks, general)
            captured.probe.record_result(self._name, len(streams), counted.count)
        finally:
            if encoder.unknown_operations:
                self._count(LaneCounters(unknown_operations=encoder.unknown_operations))
            if check is not None:
                self._count(LaneCounters(keys_checked=check.checked, keys_misplaced=check.misplaced))

    def _groups(self, log_rows: Iterator[Cells], layout: LogLayout) -> Iterator[Group]:
        found = grouping.groups(
            log_rows,
            layout,
            incomplete=self._config.reading.on_incomplete_group,
            by_row=shape_of(self._config.table_output.shape).by_row,
            keep_failures=self._config.dead_letters,
            is_retry=self._is_retry,
        )
        if self._config.reading.deduplicate:
            found = grouping.without_repeats(found, layout, on_repeat=partial(self._count, LaneCounters(repeats=1)))
        return found

    def _count(self, counters: LaneCounters) -> None:
        self._counters.add(self._name, self.task.lane, counters)


def as_json(changes: Iterator[EncodedChange], table: CapturedTable) -> Iterator[EncodedChange]:
    """Yield changes with their keys and values as JSON in place of Avro.

    Raises:
        UnpublishableError: a value cannot be JSON; names the table and the change.
    """
    codec = table.codec
    for change in changes:
        if change.is_dead_letter:
            yield change
            continue
        try:
            value = None if change.value is None else _json_of(codec.decode_value(change.value))
            key = _json_of(codec.decode_key(change.key))
        except DecodeError as error:
            # Avro carries instants that Python's calendar does not have.
            raise UnpublishableError(
                f"table {table.schema.full_name}: change {Position.from_bytes(change.position)}: {error}; as JSON "
                "there are no timestamps beyond the year 9999, unless `output.timestamps` is millis"
            ) from error
        yield change._replace(key=key, value=value)


def _json_of(record: Mapping[str, object]) -> bytes:
    return json.dumps(json_value(record), ensure_ascii=False).encode()
