"""Which writes the simulated server takes, as ScyllaDB's own cases have it (seconds; leeway 5 s)."""

from __future__ import annotations

import pytest

from bridge.model.times import UnixMicros
from sandbox.scylla.cluster.acceptance import SimulatorRefusal, accepting_generation

TAKEN = [
    ([100], 1000, 101, 100),
    ([100, 998], 1000, 996, 100),
    ([100, 998], 1000, 998, 998),
    ([100, 1060], 1000, 101, 100),
    ([100, 1060], 1000, 1005, 100),
    ([997, 998, 999], 1000, 998, 998),
    ([100, 500], 1000, 500, 500),
]
REFUSED = [
    ([100, 998], 1000, 995, "from the past"),
    ([100, 998], 1000, 99, "from the past"),
    ([100, 500], 1000, 499, "from the past"),
    ([100, 1060], 1000, 1006, "from the future"),
    ([1060], 1000, 1000, "could not find any CDC stream for timestamp"),
    ([997, 998, 999], 1000, 996, "could not find any CDC stream for timestamp"),
    ([], 1000, 1000, "could not find any CDC stream for timestamp"),
    ([], 1000, 900, "from the past"),
]


def us(seconds: int) -> UnixMicros:
    return UnixMicros(seconds * 1_000_000)


@pytest.mark.parametrize(("starts", "now", "write", "generation"), TAKEN)
def test_a_write_goes_to_the_newest_generation_that_has_started(
    starts: list[int], now: int, write: int, generation: int
) -> None:
    """By its own timestamp, not by the clock."""
    index = accepting_generation([us(start) for start in starts], us(write), us(now))
    assert starts[index] == generation


@pytest.mark.parametrize(("starts", "now", "write", "words"), REFUSED)
def test_a_write_outside_the_open_generations_is_refused(starts: list[int], now: int, write: int, words: str) -> None:
    """In the server's words."""
    with pytest.raises(SimulatorRefusal, match=words):
        accepting_generation([us(start) for start in starts], us(write), us(now))
