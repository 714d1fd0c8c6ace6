"""The stack's state file: its ports and its running processes.

Example of the file, `stack.json`:

    {"v": 1, "ports": {"cql": 24001, "cql_storage": 24002, "kafka": 24003, "kafka_controller": 24004,
     "registry": 24005}, "jars": "/home/me/stack/jars", "cql_password": false, "scylla_version": "2026.2",
     "processes": {"cql": {"pid": 4711, "start_mark": "5c0b…/81234"}}}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from sandbox.errors import LocalStackError
from sandbox.stack.processes import ProcessIdentity
from sandbox.stack.scylla_versions import NEWEST

_VERSION = 1


@dataclass(frozen=True, slots=True)
class PortPlan:
    """Every port of a stack, including the ports that only its servers use."""

    cql: int
    cql_storage: int
    kafka: int
    kafka_controller: int
    registry: int

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all ports."""
        return [item.name for item in fields(cls)]


@dataclass(frozen=True, slots=True)
class StackState:
    """The content of the state file. A component without an entry in `processes` was stopped."""

    ports: PortPlan
    jars: str
    cql_password: bool = False
    scylla_version: str = NEWEST
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)


class StateFile:
    """The state file of one folder. Each write replaces the whole file. Threads of one process may share the object."""

    def __init__(self, folder: Path) -> None:
        """Name the file, without reading or writing it."""
        self.path = folder / "stack.json"
        self._lock = threading.Lock()

    def read(self) -> StackState | None:
        """Return the file's content, or None if there is no file.

        Raises:
            LocalStackError: the file is not a state file of this version.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return _parse_state(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"{self.path} is not a state file of this version ({error!r}). If its servers run, end them by hand "
                f"(`ps -ef` shows them by the folder's name); then delete the file."
            )
            raise LocalStackError(message) from error

    def write(self, state: StackState) -> None:
        """Replace the file."""
        content = {"v": _VERSION, **asdict(state)}
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        scratch.replace(self.path)

    def set_process(self, name: str, identity: ProcessIdentity | None) -> None:
        """Record the process of a component; None records that the component is stopped."""
        with self._lock:
            state = self.read()
            if state is None:
                return
            others = {other: known for other, known in state.processes.items() if other != name}
            self.write(replace(state, processes=others if identity is None else {**others, name: identity}))

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def _parse_state(content: dict[str, object]) -> StackState:
    if content["v"] != _VERSION:
        message = f"version {content['v']!r}, not {_VERSION}"
        raise ValueError(message)
    ports, running, jars = content["ports"], content["processes"], content["jars"]
    if not (isinstance(ports, dict) and isinstance(running, dict) and isinstance(jars, str)):
        message = "ports, processes or jars have another form"
        raise TypeError(message)
    return StackState(
        ports=PortPlan(**{name: int(ports[name]) for name in PortPlan.names()}),
        jars=jars,
        cql_password=bool(content["cql_password"]),
        scylla_version=str(content.get("scylla_version", NEWEST)),
        processes={
            name: ProcessIdentity(int(entry["pid"]), str(entry["start_mark"])) for name, entry in running.items()
        },
    )
