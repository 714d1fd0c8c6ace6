"""What the engine needs from outside: one table's cluster, the clocks of its process, and the running task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import CdcOptions, TableState


class Generations(Protocol):
    """Which generations of streams a table's log has; every method raises RetriableError or BridgeError."""

    @property
    def may_lag(self) -> bool:
        """Whether the node that answers may not know yet what another node has answered before."""
        ...

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; empty while there is none."""
        ...

    def count(self, generation_ms: UnixMillis) -> int:
        """Return how many streams a generation has; 0 when the node that answers does not know it yet."""
        ...


class TableAccess(Protocol):
    """The cluster of one captured table.

    Every method that asks the cluster raises RetriableError when the cluster fails, and BridgeError when it refuses.
    """

    @property
    def address(self) -> str:
        """The cluster's contact points, for error messages."""
        ...

    @property
    def server_time(self) -> ServerTime:
        """The clocks of the cluster's nodes; for one thread."""
        ...

    def state(self) -> TableState:
        """Return the table's log, columns and CDC options as they are now."""
        ...

    def cdc_options(self) -> CdcOptions | None:
        """Return the table's CDC options as they are now; None when they were never set."""
        ...

    def generations(self) -> Generations:
        """Return the source of the log's generations; it may keep answers until `forget_streams`."""
        ...

    def forget_streams(self) -> None:
        """Forget which streams the table has and whether they belong to vnodes or to tablets."""
        ...

    def disconnect(self) -> None:
        """Close the connection to the cluster, and forget everything that was learned over it."""
        ...


def wall_clock_us() -> UnixMicros:
    """This machine's clock."""
    return UnixMicros(time.time_ns() // 1000)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a process, and how it waits.

    Attributes:
        monotonic_s: a clock that never goes back, in s; all processes of a machine read the same one.
        wall_us: this machine's time of day.
        sleep: waits for so many seconds.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    wall_us: Callable[[], UnixMicros] = wall_clock_us
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class RunningTask:
    """The Spark task that a process runs.

    Attributes:
        attempt_number: 0 for the first attempt.
        executor_folder: a folder that all tasks of the executor share, and no other executor uses.
    """

    attempt_number: int
    executor_folder: Path
