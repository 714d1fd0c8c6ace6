"""The demo's writer, a process of its own: it writes to the simulated tables at a steady rate while nodes join.

It appends each acknowledged change as a line to a file of the change's table (`written_file`), and prints its events:

```
{"event":"begin","at_us":1700000000000000}
{"event":"generation","start_ms":1700000015000,"publish_us":1700000011000000}
{"event":"published","start_ms":1700000015000,"at_us":1700000011001234}
{"event":"end","at_us":1700000045000000}
```
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from bridge.config.document import ScyllaSettings
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from sandbox.demo.plan import DemoTable, generation_changes, tables
from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.oracle import Oracle
from sandbox.scylla.write_times import paced, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession
from schemas.cql.table import TableSchema


def written_file(folder: Path, table: TableSchema) -> Path:
    """The writer's file of a table's acknowledged changes."""
    return folder / f"written-{table.name}.jsonl"


class Writer:
    """Writes for some time and changes the generation meanwhile."""

    def __init__(self, session: WritingSession, folder: Path, *, seed: int, first_generation_ms: UnixMillis) -> None:
        """Attach to a cluster whose first generation is published.

        Args:
            session: session for the generation tables and the writes.
            folder: folder for the files of acknowledged changes.
            seed: seed of everything except the times. It must be the seed of the first generation.
            first_generation_ms: start of the first generation, in Unix ms.
        """
        self._session = session
        self._folder = folder
        self._seed = seed
        self._cluster = SimulatedCluster(session, seed=seed)
        self._cluster.add_generation(first_generation_ms, publish=False)

    def run(self, *, seconds: float, rate_per_s: float) -> None:
        """Write for `seconds`, and return when everything is written and every generation is published.

        Raises:
            RetriableError, BridgeError: the server failed.
        """
        begin_us = system_clock_us()
        end_us = UnixMicros(begin_us + int(seconds * 1_000_000))
        _print_event("begin", at_us=begin_us)
        to_publish: list[tuple[UnixMicros, Generation]] = []
        for change in generation_changes(seconds):
            start_ms = UnixMillis(begin_us // 1000 + int(change.starts_s * 1000))
            publish_us = UnixMicros(millis_to_micros(start_ms) + int(change.late_s * 1_000_000))
            to_publish.append((publish_us, self._cluster.add_generation(start_ms, publish=False)))
            _print_event("generation", start_ms=start_ms, publish_us=publish_us)
        with ThreadPoolExecutor() as threads:
            writing = [
                threads.submit(self._write_table, one, one.share * rate_per_s, seconds, end_us) for one in tables()
            ]
            for publish_us, generation in to_publish:
                _sleep_until(publish_us)
                self._cluster.publish(generation)
                _print_event("published", start_ms=generation.start_ms, at_us=system_clock_us())
            for one in writing:
                one.result()
        _print_event("end", at_us=system_clock_us())

    def _write_table(self, what: DemoTable, rate_per_s: float, seconds: float, end_us: UnixMicros) -> None:
        path = written_file(self._folder, what.table.table_schema)
        # Line-buffered, because the checker reads each change as soon as it is acknowledged.
        with path.open("w", encoding="utf-8", buffering=1) as lines:
            simulator = Simulator(
                self._session, self._cluster, [what.table], seed=self._seed + 1, oracle=Oracle(lines), rfc_variant=True
            )
            # A machine that cannot keep up ends in time, with fewer writes.
            mutations = paced(what.workload(self._seed), count=int(rate_per_s * seconds), rate_per_s=rate_per_s)
            simulator.write_many(what.table, takewhile(lambda timed: timed[0] < end_us, mutations))


def _print_event(event: str, **details: int) -> None:
    sys.stdout.write(json.dumps({"event": event, **details}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _sleep_until(instant_us: UnixMicros) -> None:
    time.sleep(max(0, instant_us - system_clock_us()) / 1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of `python -m sandbox.demo.writer`."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo.writer")
    parser.add_argument("--cql", required=True, help="host:port of the CQL server")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--first-generation-ms", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True, help="writes each second, of all tables")
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args(argv)
    session = WritingSession.connect(ScyllaSettings(contact_points=(arguments.cql,), consistency="ONE"))
    try:
        writer = Writer(
            session,
            arguments.folder,
            seed=arguments.seed,
            first_generation_ms=UnixMillis(arguments.first_generation_ms),
        )
        writer.run(seconds=arguments.seconds, rate_per_s=arguments.rate)
    finally:
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
