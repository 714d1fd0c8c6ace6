"""What the stack decides before it starts anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.errors import LocalStackError
from sandbox.local import command
from sandbox.stack import processes, stack
from sandbox.stack.ports import Ports
from sandbox.stack.processes import ProcessIdentity
from sandbox.stack.state import PortPlan, StackState, StateFile

_PLAN = PortPlan(cql=20_001, cql_storage=20_002, kafka=20_003, kafka_controller=20_004, registry=20_005)
_FORMER = StackState(ports=_PLAN, jars="/jars")


@pytest.fixture
def every_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "require_free", lambda _name, _port: None)


@pytest.mark.usefixtures("every_port_is_free")
def test_ports_are_the_users_then_the_former_ones() -> None:
    """A returning stack keeps its ports; the user's choice wins."""
    assert stack._choose_ports(Ports(), _FORMER, {}) == _PLAN
    moved = stack._choose_ports(Ports(kafka=30_000), _FORMER, {})
    assert (moved.kafka, moved.cql, moved.registry) == (30_000, _PLAN.cql, _PLAN.registry)


@pytest.mark.usefixtures("every_port_is_free")
def test_a_running_server_keeps_its_port() -> None:
    """Asking for another port of a server that runs is refused; asking for the same is not."""
    running = {"kafka": ProcessIdentity(1, "x")}
    assert stack._choose_ports(Ports(kafka=_PLAN.kafka), _FORMER, running) == _PLAN
    with pytest.raises(LocalStackError, match="kafka still runs on port 20003"):
        stack._choose_ports(Ports(kafka=30_000), _FORMER, running)


@pytest.mark.usefixtures("every_port_is_free")
def test_one_port_for_two_servers_is_refused() -> None:
    """A mistake of the user is reported before anything starts."""
    with pytest.raises(LocalStackError, match="same port"):
        stack._choose_ports(Ports(kafka=30_000, cql=30_000), None, {})


def _this_process() -> ProcessIdentity:
    return ProcessIdentity(os.getpid(), processes.start_mark(os.getpid()) or "")


def test_up_on_a_running_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is touched, and the message says how to stop the stack."""
    processes_of_all: dict[str, ProcessIdentity] = dict.fromkeys(list[str](stack.COMPONENTS), _this_process())
    StateFile(tmp_path).write(StackState(ports=_PLAN, jars="/jars", processes=processes_of_all))
    with pytest.raises(LocalStackError, match=f"already runs in {tmp_path}.*local down --folder {tmp_path}"):
        stack.LocalStack.up(tmp_path)


def test_load_of_a_folder_without_a_stack_is_refused(tmp_path: Path) -> None:
    """Never started, or stopped: the message says how to start one."""
    with pytest.raises(LocalStackError, match=r"No local stack runs in .*local up"):
        stack.LocalStack.load(tmp_path)
    StateFile(tmp_path).write(_FORMER)
    with pytest.raises(LocalStackError, match=r"No local stack runs in .*local up"):
        stack.LocalStack.load(tmp_path)


def test_down_never_ends_a_process_with_a_recycled_pid(tmp_path: Path) -> None:
    """The recorded pids now belong to this very test: it survives, and the records are gone."""
    stale: dict[str, ProcessIdentity] = dict.fromkeys(
        list[str](stack.COMPONENTS), ProcessIdentity(os.getpid(), "another boot/1")
    )
    StateFile(tmp_path).write(StackState(ports=_PLAN, jars="/jars", processes=stale))
    stack.LocalStack.load(tmp_path).down()
    state = StateFile(tmp_path).read()
    assert state is not None
    assert state.processes == {}


def test_the_command_refuses_with_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal goes to standard error in one piece, without a traceback."""
    for action in ("down", "status"):
        assert command.run(command.parse([action, "--folder", str(tmp_path)])) == 2
        assert "No local stack runs in" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_the_command_refuses_bad_ports(port: str) -> None:
    """A port that can't be one is a usage error."""
    with pytest.raises(SystemExit):
        command.parse(["up", "--kafka-port", port])
