"""`python -m tests.live.vectors --scylla HOST:PORT`: holds a server's CDC log against the simulator and the bridge.

Every vector of `tests/unit/sandbox/scylla/log_vectors.json` runs on the server, in a keyspace of its own, which is
removed again. The server's log rows are compared with the vector, with what the simulator logs for the same statements,
and with the records that the bridge makes of them. Without `--scylla`, the vectors run on a new local stack, whose logs
the simulator writes.

One line of JSON for each vector: `{"name": ..., "result": ..., "detail": ...}`. Results:

- `same`: all agree; for a vector of a refusal, server and simulator refuse with the same text.
- `differs`: they do not.
- `refused`: the server refuses a statement that it should carry out.
- `not applicable`: the server's release cannot do what the vector is about, or a setting of the server is against it;
  the detail has the server's words.

The last line has the counts and the server's release. Exit status: 0, or 1 if a vector differs or is refused.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bridge.config.scylla import ScyllaSettings
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.live.vector_run import Stopped, VectorRun
from tests.live.vector_server import Refusal, ScyllaServer, StackServer, VectorServer
from tests.unit.sandbox.scylla.vectors import Vector, load

_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "preimage_delete_no_clustering_key_full": (2026, 1),
    "preimage_delete_no_clustering_key_true": (2026, 1),
    "recreate_dropped_column_too_soon": (2025, 4),
    "row_ttl_expiration_partition": (2026, 1),
    "row_ttl_expiration_row": (2026, 1),
    "vector_index_enables_cdc": (2025, 4),
}
"""The first release that behaves as a vector says, where not every release does."""

_NEWEST_RULES: Final = (2026, 1)
_PATIENCE_S: Final = 10.0


class Outcome(NamedTuple):
    """The result of one vector: `same`, `differs`, `refused` or `not applicable`, and its reason."""

    name: str
    result: str
    detail: str

    @property
    def is_fault(self) -> bool:
        """Whether the run must fail."""
        return self.result in ("differs", "refused")


def run_vectors(
    server: VectorServer, vectors: Sequence[Vector], *, patience_s: float = _PATIENCE_S
) -> Iterator[Outcome]:
    """Run vectors one after the other.

    Args:
        server: where to run them; the keyspace is cleared before each of them, and dropped at the end.
        vectors: with their placeholders.
        patience_s: how long to wait for the server's delete of an expired row.

    Raises:
        RetriableError, BridgeError: the server does not answer.
    """
    is_current = release_of(server.release) >= _NEWEST_RULES
    try:
        for vector in vectors:
            limit = server.limit(vector)
            if limit is not None:
                yield Outcome(vector["name"], "not applicable", f"the local stack: {limit}")
                continue
            server.clear()
            yield judge(VectorRun(server, vector, is_current=is_current, patience_s=patience_s), server.release)
    finally:
        server.drop()


def judge(run: VectorRun, release: str | None) -> Outcome:
    """Carry a vector out and judge what it shows.

    Args:
        run: of the vector.
        release: the server's; None for the local stack.

    Raises:
        RetriableError, BridgeError: the server does not answer.
    """
    vector, name = run.vector, run.vector["name"]
    is_too_old = release_of(release) < _SINCE.get(name, release_of(release))
    try:
        run.carry_out()
    except Stopped as stopped:
        if "error" in vector and stopped.is_last:
            return _judge_refusal(run, stopped.refusal)
        if is_too_old or release is None or stopped.is_setting:
            where = "the local stack" if release is None else f"ScyllaDB {release}"
            return Outcome(name, "not applicable", f"{where}: {stopped.refusal.message}")
        return Outcome(name, "refused", stopped.refusal.message)
    facts = list(run.facts)
    if "error" in vector:
        facts.append(f"the last statement is carried out; expected {vector['error']}")
    if run.differences or (facts and not is_too_old):
        return Outcome(name, "differs", "; ".join([*run.differences, *facts]))
    if facts:
        since = ".".join(map(str, _SINCE[name]))
        return Outcome(name, "not applicable", f"ScyllaDB {release}; since {since}: {'; '.join(facts)}")
    return Outcome(name, "same", f"{run.row_count} log rows")


def _judge_refusal(run: VectorRun, refusal: Refusal) -> Outcome:
    name, wanted, simulated = run.vector["name"], run.vector["error"], run.simulated_refusal()
    faults = list(run.differences)
    if refusal.code is not None and refusal.code != int(wanted["code"], 16):
        faults.append(f"the code is {refusal.code:#06x}, expected {wanted['code']}")
    if wanted.get("message", refusal.message) != refusal.message or wanted.get("message_contains", "") not in (
        refusal.message
    ):
        faults.append(f"the server says {refusal.message!r}, expected {wanted}")
    if simulated is None:
        faults.append("the simulator carries the statement out")
    elif simulated.code is not None and simulated.message != refusal.message:
        faults.append(f"the server says {refusal.message!r}, the simulator {simulated.message!r}")
    return Outcome(name, "differs", "; ".join(faults)) if faults else Outcome(name, "same", refusal.message)


def release_of(version: str | None) -> tuple[int, int]:
    """The first two numbers of a server's version; those of the newest rules for None, the local stack."""
    if version is None:
        return _NEWEST_RULES
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@contextmanager
def _server(arguments: argparse.Namespace) -> Iterator[VectorServer]:
    keyspace = f"vectors_{secrets.token_hex(4)}"
    if arguments.scylla:
        session = WritingSession.connect(ScyllaSettings(contact_points=(arguments.scylla,)))
        try:
            yield ScyllaServer(session, keyspace, tablets=arguments.tablets)
        finally:
            session.close()
        return
    with tempfile.TemporaryDirectory(prefix="vectors-") as folder:
        stack = LocalStack.up(Path(folder), report=lambda line: print(line, file=sys.stderr))
        try:
            session = stack.cql_session()
            yield StackServer(session, keyspace)
            session.close()
        finally:
            stack.down()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.vectors")
    parser.add_argument("--scylla", metavar="HOST:PORT", help="a ScyllaDB node; without it, a new local stack")
    parser.add_argument("--tablets", action="store_true", help="use a keyspace with tablets, not with vnodes")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these vectors")
    arguments = parser.parse_args(argv)
    vectors = load()
    if arguments.only:
        unknown = set(arguments.only) - {vector["name"] for vector in vectors}
        if unknown:
            parser.error(f"argument --only: there is no vector {', '.join(sorted(unknown))}")
        vectors = [vector for vector in vectors if vector["name"] in arguments.only]
    if arguments.tablets and not arguments.scylla:
        parser.error("argument --tablets: needs --scylla")
    counts: Counter[str] = Counter()
    is_faulty = False
    with _server(arguments) as server:
        for outcome in run_vectors(server, vectors):
            counts[outcome.result] += 1
            is_faulty = is_faulty or outcome.is_fault
            print(json.dumps(outcome._asdict()), flush=True)
        release = server.release or "local stack"
    kind = "tablets" if arguments.tablets else "vnodes"
    print(json.dumps({"vectors": len(vectors), **counts, "release": release, "streams": kind}))
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main())
