"""The state file keeps what `down` needs, and a strange one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import LocalStackError
from sandbox.stack.processes import ProcessIdentity
from sandbox.stack.state import PortPlan, StackState, StateFile

_STATE = StackState(
    ports=PortPlan(cql=1, cql_storage=2, kafka=3, kafka_controller=4, registry=5),
    jars="/somewhere",
    cql_password=True,
    processes={"cql": ProcessIdentity(17, "boot/99")},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A round trip loses nothing."""
    file = StateFile(tmp_path)
    assert file.read() is None
    file.write(_STATE)
    assert file.read() == _STATE


def test_processes_are_set_and_forgotten_one_by_one(tmp_path: Path) -> None:
    """Setting one component's process leaves the others as they were."""
    file = StateFile(tmp_path)
    file.write(_STATE)
    file.set_process("kafka", ProcessIdentity(18, "boot/100"))
    file.set_process("cql", None)
    state = file.read()
    assert state is not None
    assert state.processes == {"kafka": ProcessIdentity(18, "boot/100")}


def test_setting_a_process_without_a_file_makes_none(tmp_path: Path) -> None:
    """A stack whose data were deleted stays deleted."""
    StateFile(tmp_path).set_process("kafka", None)
    assert StateFile(tmp_path).read() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 2}', '{"v": 1, "ports": {}, "processes": {}, "jars": "j"}'])
def test_a_strange_file_is_refused(tmp_path: Path, text: str) -> None:
    """What isn't our state file is named, with what to do; it is not overwritten."""
    file = StateFile(tmp_path)
    file.path.write_text(text, encoding="utf-8")
    with pytest.raises(LocalStackError, match=r"stack\.json is not a state file"):
        file.read()
    assert file.path.read_text(encoding="utf-8") == text
