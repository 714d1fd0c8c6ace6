"""The local stack: starts and stops its servers, all together or one by one.

A stack has one folder: `stack.json` (ports, and process ids with their start marks), `data/`, `logs/` and, unless
stacks share them, `jars/`. Several stacks may run at once in different folders.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from bridge.config.document import ScyllaSettings, Secret
from bridge.runtime.java import find_java
from sandbox.errors import LocalStackError
from sandbox.stack import processes, server
from sandbox.stack.cql_server import SUPERUSER, CqlServer
from sandbox.stack.jars import Jars, jars_folder
from sandbox.stack.kafka_server import KafkaServer
from sandbox.stack.ports import LOOPBACK, Ports, free_ports, require_free
from sandbox.stack.processes import ProcessIdentity
from sandbox.stack.registry_server import RegistryServer
from sandbox.stack.scylla_versions import NEWEST, VERSIONS, check_upgrade
from sandbox.stack.state import PortPlan, StackState, StateFile
from sandbox.writing_session import WritingSession

Component = Literal["kafka", "cql", "registry"]
COMPONENTS: tuple[Component, ...] = get_args(Component)

_LOGIN_VARIABLE: Final = "SCYLLA_CDC_BRIDGE_LOCAL_LOGIN"
_START_TIMEOUT_S = 180.0
_STOP_GRACE_S = 30.0

Report = Callable[[str], None]


def _discard_report(_line: str) -> None:
    """Drop a line on the progress."""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """The state of one server; `problem` is None if the server answers its own protocol."""

    name: Component
    address: str
    pid: int | None
    problem: str | None

    @property
    def is_up(self) -> bool:
        """Whether the server runs and answers."""
        return self.problem is None


class LocalStack:
    """A stack in a folder. `up` starts its servers; `load` attaches to servers that run already.

    Not thread-safe, with one exception: different threads may stop and start different components.
    """

    def __init__(self, folder: Path, state: StackState) -> None:
        """Attach to a stack that a state file describes. Callers use `up` or `load`."""
        self.folder = folder
        self._state_file = StateFile(folder)
        ports = state.ports
        java = find_java()
        jars = Jars(Path(state.jars), java)
        data, logs = folder / "data", folder / "logs"
        self._jars = jars
        self._cql_password = state.cql_password
        self._registry = RegistryServer(data / "registry", logs / "registry.log", ports.registry, java, jars)
        self._servers: dict[Component, server.Server] = {
            "kafka": KafkaServer(data / "kafka", logs / "kafka.log", ports.kafka, ports.kafka_controller, java, jars),
            "cql": CqlServer(
                *(data / "cql", logs / "cql.log", ports.cql, ports.cql_storage, java, jars),
                password=state.cql_password,
                version=state.scylla_version,
            ),
            "registry": self._registry,
        }
        self.cql = f"{LOOPBACK}:{ports.cql}"
        self.kafka = f"{LOOPBACK}:{ports.kafka}"
        self.registry = self._registry.url
        self.start_seconds: dict[Component, float] = {}

    @classmethod
    def up(
        cls,
        folder: Path,
        *,
        ports: Ports | None = None,
        report: Report = _discard_report,
        jars: Path | None = None,
        cql_password: bool = False,
        scylla_version: str | None = None,
    ) -> Self:
        """Start the three servers in `folder` and wait until all answer.

        A stack that stopped or crashed comes back with its data. Only servers that do not run already are started.

        Args:
            folder: the stack's folder; created if it does not exist.
            ports: ports for clients. A port that is None keeps its last number; in a new stack it is a free port.
            report: receives lines on the progress.
            jars: folder of the jars, which stacks may share; None: SCYLLA_CDC_BRIDGE_JARS, else one in `folder`.
            cql_password: whether the CQL server requires a login (user cassandra, password cassandra).
            scylla_version: one of `scylla_versions.VERSIONS`; None: that of the last run, or the newest.

        Raises:
            LocalStackError: the whole stack runs there already, the version is not allowed, or a step failed. Servers
                that this call started are stopped again.
        """
        folder = folder.absolute()
        began_s = time.monotonic()
        with _exclusive_lock(folder):
            state_file = StateFile(folder)
            former = state_file.read()
            running = _running_servers(former)
            _require_incomplete(folder, running)
            if former is not None and former.processes:
                found = f"{', '.join(sorted(running))} still running" if running else "nothing left running"
                report(f"A stack in {folder} was not stopped properly ({found}): starting what is missing")
            plan = _choose_ports(ports or Ports(), former, running)
            state = StackState(
                ports=plan,
                jars=str(jars.absolute() if jars is not None else jars_folder(folder)),
                cql_password=former.cql_password if former is not None and "cql" in running else cql_password,
                scylla_version=_choose_version(scylla_version, former, running),
                processes=running,
            )
            stack = cls(folder, state)
            stack._jars.ensure(report)
            state_file.write(state)
            stack._start_all([name for name in COMPONENTS if name not in running], report)
            report(f"The local stack is up after {time.monotonic() - began_s:.1f} s")
        return stack

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Attach to the stack that runs in `folder`.

        Raises:
            LocalStackError: no stack was started there, or it was stopped.
        """
        folder = folder.absolute()
        state = StateFile(folder).read()
        if state is None or not state.processes:
            message = f"No local stack runs in {folder}. Start one: scylla-cdc-bridge local up --folder {folder}"
            raise LocalStackError(message)
        return cls(folder, state)

    def down(self, *, delete_data: bool = False, report: Report = _discard_report) -> None:
        """Stop every running server. The ports and the data stay for the next `up`.

        Args:
            delete_data: also delete the servers' data and logs.
            report: receives lines on the progress.

        Raises:
            LocalStackError: a server did not end, or another `up` or `down` runs in the folder.
        """
        with _exclusive_lock(self.folder):
            with ThreadPoolExecutor(max_workers=len(COMPONENTS)) as pool:
                for name, ended_in_time in zip(COMPONENTS, pool.map(self._end, COMPONENTS), strict=True):
                    if ended_in_time is not None:
                        report(f"{name} stopped" if ended_in_time else f"{name} did not stop in time and was killed")
            if delete_data:
                for part in ("data", "logs"):
                    shutil.rmtree(self.folder / part, ignore_errors=True)
                self._state_file.delete()
                report("Data deleted")

    def status(self) -> list[ComponentStatus]:
        """Probe every server with its own protocol."""
        addresses: dict[Component, str] = {"kafka": self.kafka, "cql": self.cql, "registry": self.registry}
        found = []
        for name in COMPONENTS:
            pid = self.pid(name)
            problem = "not running" if pid is None else self._servers[name].problem()
            found.append(ComponentStatus(name, addresses[name], pid, problem))
        return found

    def cql_session(self) -> WritingSession:
        """Connect to the CQL server; log in if the server requires it.

        Raises:
            RetriableError, StartupError: the server does not answer, or refuses the login.
        """
        login: dict[str, Any] = {}
        if self._cql_password:
            os.environ[_LOGIN_VARIABLE] = SUPERUSER.password
            login = {"username": SUPERUSER.user, "password": Secret(env=_LOGIN_VARIABLE)}
        return WritingSession.connect(ScyllaSettings(contact_points=(self.cql,), consistency="ONE", **login))

    def pid(self, component: Component) -> int | None:
        """Return the pid of a server, or None if it doesn't run."""
        identity = self._identity(component)
        return identity.pid if identity is not None and identity.is_alive() else None

    def stop(self, component: Component) -> None:
        """Stop one server with SIGTERM, and with SIGKILL after 30 s. Does nothing if the server does not run."""
        self._end(component)

    def kill(self, component: Component) -> None:
        """Kill one server with SIGKILL and wait until it has ended. Does nothing if the server does not run."""
        identity = self._identity(component)
        if identity is not None:
            processes.kill(identity)
            self._state_file.set_process(component, None)

    def start(self, component: Component) -> None:
        """Start one server on its data and its ports, and wait until it answers.

        Raises:
            LocalStackError: the server runs already, or did not become ready. In the latter case it is stopped.
        """
        pid = self.pid(component)
        if pid is not None:
            message = f"{component} of the stack in {self.folder} runs already (process {pid})"
            raise LocalStackError(message)
        self._start(component)

    def _identity(self, component: Component) -> ProcessIdentity | None:
        # Read the file each time: another program may have stopped or started the server since.
        state = self._state_file.read()
        return None if state is None else state.processes.get(component)

    def _start_all(self, names: list[Component], report: Report) -> None:
        report(f"Starting {', '.join(names)}")
        pool = ThreadPoolExecutor(max_workers=len(COMPONENTS))
        given_up = threading.Event()
        try:
            starts = {pool.submit(self._start, name, given_up): name for name in names}
            for done in as_completed(starts):
                done.result()
                report(f"  {starts[done]} is ready after {self.start_seconds[starts[done]]:.1f} s")
        except BaseException:
            # Also on Ctrl-C, no server may stay behind. Killing the servers ends the waits for them. A thread that has
            # not started its server yet sees the event.
            given_up.set()
            for name in names:
                self.kill(name)
            raise
        finally:
            pool.shutdown()

    def _start(self, component: Component, given_up: threading.Event | None = None) -> None:
        began_s = time.monotonic()
        what = self._servers[component]
        process = server.launch(what)
        self._state_file.set_process(component, process)
        if given_up is not None and given_up.is_set():
            self.kill(component)
            message = f"{component} was stopped again, because another server could not be started"
            raise LocalStackError(message)
        try:
            server.wait_ready(what, process, timeout_s=_START_TIMEOUT_S)
        except BaseException:
            self.kill(component)
            raise
        self.start_seconds[component] = time.monotonic() - began_s

    def _end(self, component: Component) -> bool | None:
        """End one server: True after SIGTERM, False after SIGKILL, None if it did not run."""
        identity = self._identity(component)
        if identity is None:
            return None
        ended_in_time = processes.stop(identity, grace_s=_STOP_GRACE_S) if identity.is_alive() else None
        self._state_file.set_process(component, None)
        return ended_in_time


def _require_incomplete(folder: Path, running: dict[str, ProcessIdentity]) -> None:
    if len(running) < len(COMPONENTS):
        return
    pids = ", ".join(f"{name} {identity.pid}" for name, identity in sorted(running.items()))
    message = (
        f"A local stack already runs in {folder} (process ids: {pids}). Use it, or stop it first: "
        f"scylla-cdc-bridge local down --folder {folder}"
    )
    raise LocalStackError(message)


def _running_servers(state: StackState | None) -> dict[str, ProcessIdentity]:
    if state is None:
        return {}
    return {name: identity for name, identity in state.processes.items() if identity.is_alive()}


def _choose_version(wanted: str | None, former: StackState | None, running: dict[str, ProcessIdentity]) -> str:
    """Choose the version of ScyllaDB: that of a running server, else the user's, that of the last run, or the newest.

    Raises:
        LocalStackError: the version is unknown, or older than that of the last run.
    """
    if former is None:
        check_upgrade(VERSIONS[0], wanted or NEWEST)
        return wanted or NEWEST
    if "cql" in running or wanted is None:
        return former.scylla_version
    check_upgrade(former.scylla_version, wanted)
    return wanted


def _choose_ports(wanted: Ports, former: StackState | None, running: dict[str, ProcessIdentity]) -> PortPlan:
    """Choose every port: that of a running server, else the user's, else that of the last run, else a free one."""
    old = None if former is None else former.ports
    asked: dict[Component, int | None] = {"cql": wanted.cql, "kafka": wanted.kafka, "registry": wanted.registry}
    chosen: dict[str, int] = {}
    if old is not None:
        chosen |= {name: getattr(old, name) for name in asked}
        chosen |= {"kafka_controller": old.kafka_controller, "cql_storage": old.cql_storage}
    for name, port in asked.items():
        if port is None or port == chosen.get(name):
            continue
        if name in running:
            message = f"{name} still runs on port {chosen[name]}, so it can't get port {port}. Stop the stack first."
            raise LocalStackError(message)
        chosen[name] = port
    missing = [name for name in PortPlan.names() if name not in chosen]
    chosen |= dict(zip(missing, free_ports(len(missing), avoid=chosen.values()), strict=True))
    owner = {"kafka_controller": "kafka", "cql_storage": "cql"}
    for used_for, number in chosen.items():
        if owner.get(used_for, used_for) not in running:
            require_free(used_for, number)
    if len(set(chosen.values())) < len(chosen):
        message = f"The same port is named for two servers: {chosen}"
        raise LocalStackError(message)
    return PortPlan(**chosen)


@contextmanager
def _exclusive_lock(folder: Path) -> Iterator[None]:
    """Lock the folder against a second `up` or `down`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock_file = folder.joinpath(".lock").open("w", encoding="ascii")
    except OSError as error:
        message = f"{folder} cannot be created or written to: {error.strerror}. Name another folder with --folder"
        raise LocalStackError(message) from None
    with lock_file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another `local up` or `local down` runs in {folder}. Wait until it is done."
            raise LocalStackError(message) from None
        yield
