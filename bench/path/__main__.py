"""`python -m bench.path`: measures the CPU time of one change in the bridge's own Python, step by step.

It needs no servers. Synthetic result pages of one lane take the general path and the fast path in turns, so that other
processes affect the caches of both alike. A step's time is the time up to its end minus the time up to its beginning.
The JVM and the CQL driver's receiving are not included. `--produce` adds the Kafka client with its mock broker, whose
thread in this process is counted separately.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench import command
from bench.path.lane import CHECKED, STREAMS, TABLES, Lane
from bench.path.steps import bench_config, fast_path_changes, fast_path_steps, general_path_steps, publish
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.engine.process.memory_tuning import tune_memory

_PRODUCED: Final = 200_000


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.path", description="CPU time of one change, step by step.")
    command.add_tables(parser, TABLES, TABLES)
    parser.add_argument("--changes", type=command.count, default=40_000, help="changes of each table")
    parser.add_argument("--streams", type=command.count, default=STREAMS, help="streams of the lane")
    parser.add_argument(
        "--page-rows", type=command.count, help="rows of a page; default: as many as a lane of so many streams asks for"
    )
    parser.add_argument(
        "--integrity", choices=tuple(CHECKED), default="sample", help="which rows' keys are held against their stream"
    )
    parser.add_argument("--rounds", type=command.count, default=5, help="the least time of so many counts")
    parser.add_argument("--produce", action="store_true", help="also the Kafka client, against its own mock")
    parser.add_argument("--profile", choices=("fast", "general"), help="print where the time of one way goes instead")
    arguments = parser.parse_args(argv)
    for name in arguments.tables:
        every = CHECKED[arguments.integrity]
        lane = Lane.of(
            name, arguments.changes, streams=arguments.streams, page_rows=arguments.page_rows, check_every=every
        )
        tune_memory()
        if arguments.profile:
            _profile(lane, arguments.profile)
            continue
        found = measure(lane, arguments.rounds)
        if arguments.produce:
            found["produce"] = _produced(lane, arguments.changes)
        print(json.dumps({"table": name, "us_per_change": found}), flush=True)
        print(_text(name, found), file=sys.stderr)
    return 0


def measure(lane: Lane, rounds: int) -> dict[str, dict[str, float]]:
    """Return the us of CPU time per change, for both paths and their steps."""
    ways: dict[str, dict[str, Callable[[], Any]]] = {"general": general_path_steps(lane), "fast": fast_path_steps(lane)}
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            for step, run in way.items():
                began_s = time.process_time()
                run()
                us = (time.process_time() - began_s) * 1e6 / lane.changes
                least[name, step] = min(us, least.get((name, step), us))
    found: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        before = 0.0
        found[name] = steps = {}
        for step in way:
            steps[step] = max(0.0, least[name, step] - before)
            before = least[name, step]
        steps["all"] = sum(steps.values())
    return found


def _produced(lane: Lane, changes: int) -> dict[str, float]:
    """Return the us of CPU time per change of the Kafka client, in the calling thread and in its own threads."""
    config = bench_config(**{"test.mock.num.brokers": 1})
    producer = TransactionalProducer(config.kafka, "bench", known_topic="progress")
    # Many changes, so that opening the transactional id does not count.
    times = max(1, _PRODUCED // changes)
    plain = list(fast_path_changes(lane)()) * times
    changes *= times
    before, began_s = _threads(), time.thread_time()
    publish(iter(plain), producer)
    calling_s, after = time.thread_time() - began_s, _threads()
    own_s = sum(seconds - before.get(name, 0.0) for name, seconds in after.items() if name[0].startswith("rdk:b"))
    return {"publisher and calls": calling_s / changes * 1e6, "client's threads": own_s / changes * 1e6}


def _threads() -> dict[tuple[str, str], float]:
    """CPU seconds of this process's threads by name and id."""
    found = {}
    for folder in Path("/proc/self/task").iterdir():
        name = (folder / "comm").read_text().strip()
        found[name, folder.name] = int((folder / "schedstat").read_text().split()[0]) / 1e9
    return found


def _profile(lane: Lane, way: str) -> None:
    steps = fast_path_steps(lane) if way == "fast" else general_path_steps(lane)
    steps["publish"]()
    profile = cProfile.Profile()
    profile.runcall(steps["publish"])
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _text(name: str, found: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"{name:12} {way:8} " + "  ".join(f"{step} {us:.2f}" for step, us in steps.items())
        for way, steps in found.items()
    )


if __name__ == "__main__":
    sys.exit(main())
