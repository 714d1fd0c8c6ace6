"""How the vectors on a real server are judged, by what a run found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.live.vector_run import Stopped
from tests.live.vector_server import Refusal
from tests.live.vectors import judge, release_of

ACCEPTED = {"name": "map_add", "log": []}
REFUSED = {"name": "alter_log", "error": {"code": "0x2200", "message_contains": "directly"}}
NEW = {"name": "row_ttl_expiration_row", "log": []}
NO = Refusal(0x2200, "You cannot modify the set of columns of a CDC log table directly.")

OFF = Refusal(
    0x2200, "Disabled. To enable, set the 'enable_create_table_with_compact_storage' config option to 'true'."
)


@dataclass
class FakeRun:
    """A run that finds what it is given."""

    vector: dict[str, Any]
    stopped: Stopped | None = None
    simulated: Refusal | None = None
    differences: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    row_count: int = 3

    def carry_out(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    def simulated_refusal(self) -> Refusal | None:
        return self.simulated


def stopped(refusal: Refusal = NO, *, is_last: bool = True, is_setting: bool = False) -> Stopped:
    return Stopped(refusal, is_last=is_last, is_setting=is_setting)


@pytest.mark.parametrize(
    ("run", "release", "result", "detail"),
    [
        (FakeRun(ACCEPTED), "5.2.18", "same", "3 log rows"),
        (FakeRun(ACCEPTED, differences=["x"]), "5.2.18", "differs", "x"),
        (FakeRun(ACCEPTED, facts=["y"]), "5.2.18", "differs", "y"),
        (FakeRun(ACCEPTED, stopped()), "5.2.18", "refused", NO.message),
        (FakeRun(ACCEPTED, stopped()), None, "not applicable", f"the local stack: {NO.message}"),
        (FakeRun(NEW, stopped()), "5.2.18-0.20240101", "not applicable", f"ScyllaDB 5.2.18-0.20240101: {NO.message}"),
        (FakeRun(NEW, stopped()), "2026.1.0", "refused", NO.message),
        (FakeRun(NEW, stopped(Refusal(None, "every 86400 s"), is_setting=True)), "2026.1.0", "not applicable", "86400"),
        (FakeRun(ACCEPTED, stopped(OFF)), "2026.1.0", "not applicable", OFF.message),
        (FakeRun(NEW, facts=["y"]), "2025.4.1", "not applicable", "ScyllaDB 2025.4.1; since 2026.1: y"),
        (FakeRun(NEW, differences=["x"], facts=["y"]), "2025.4.1", "differs", "x; y"),
        (FakeRun(REFUSED, stopped(), NO), "5.2.18", "same", NO.message),
        (FakeRun(REFUSED, stopped(), Refusal(None, "no")), "5.2.18", "same", NO.message),
        (FakeRun(REFUSED, stopped()), "5.2.18", "differs", "the simulator carries the statement out"),
        (FakeRun(REFUSED, stopped(), Refusal(0x2200, "no")), "5.2.18", "differs", "the simulator 'no'"),
        (FakeRun(REFUSED, stopped(Refusal(0x2100, NO.message)), NO), "5.2.18", "differs", "the code is 0x2100"),
        (FakeRun(REFUSED, stopped(Refusal(0x2200, "no")), NO), "5.2.18", "differs", "the server says 'no'"),
        (FakeRun(REFUSED, stopped(is_last=False), NO), "5.2.18", "refused", NO.message),
        (FakeRun(REFUSED), "5.2.18", "differs", "the last statement is carried out"),
    ],
)
def test_a_run_is_judged_by_what_it_found(run: FakeRun, release: str | None, result: str, detail: str) -> None:
    """Nothing that a server does otherwise passes, unless its release is too old for it."""
    outcome = judge(run, release)
    assert outcome.name == run.vector["name"]
    assert outcome.result == result
    assert detail in outcome.detail
    assert outcome.is_fault == (result in ("differs", "refused"))


def test_the_local_stack_counts_as_the_newest_release() -> None:
    assert release_of(None) >= release_of("2026.1.3")
    assert release_of("5.2.18-0.20240101.abc") == (5, 2)
