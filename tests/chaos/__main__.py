"""`python -m tests.chaos --seed N --minutes M`: injects random faults on the real stack, then checks the topics.

`--seed 1-30` runs one seed after the other on the same stack, each with its own topics, tables and job. Each run ends
with a line of counts. Exit statuses: 0 no fault found; 1 a fault found, or a planned fault hit nothing; 2 an unknown
kind of fault or variant, or one that is not possible on this machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sandbox.stack.stack import LocalStack
from tests.chaos.broken import IN_JOB
from tests.chaos.outcome import Leg
from tests.chaos.plan import ISOLATED, KINDS
from tests.chaos.run import Run

_INSIDE: Final = "SCYLLA_CDC_BRIDGE_TEST_ISOLATED"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument(
        "--seed", type=_seeds, required=True, help="decides the faults and what is written; FIRST-LAST: a run for each"
    )
    parser.add_argument("--minutes", type=float, default=1.5, help="how long at least; a fault for every ten seconds")
    parser.add_argument(
        "--kinds", type=_kinds, default=KINDS, help=f"only these faults, separated by commas: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--variant",
        choices=list(IN_JOB),
        metavar="VARIANT",
        help=f"a deliberately broken protocol, see tests/chaos/broken.py: {', '.join(IN_JOB)}",
    )
    parser.add_argument("--folder", type=Path, help="where everything goes, and stays")
    arguments = parser.parse_args(argv)
    isolated = os.environ.get(_INSIDE) == "1"
    if not isolated:
        _isolate()
        _say(f"no namespaces of our own here (unshare fails): without {', '.join(ISOLATED)}")
        if set(arguments.kinds) <= set(ISOLATED):
            parser.error("argument --kinds: none of these can be done here")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    stack = LocalStack.up(folder / "stack", report=_say)
    unclean = []
    try:
        for seed in arguments.seed:
            of_seed = folder / f"seed{seed}"
            legs = [Leg(seed, arguments.minutes, arguments.kinds)]
            (outcome,) = Run(stack, of_seed, legs, say=_say, isolated=isolated, variant=arguments.variant).carry_out()
            if not outcome.clean:
                unclean.append(seed)
                _say(f"everything lies in {of_seed}")
            print(outcome, flush=True)
    finally:
        stack.down()
    if len(arguments.seed) > 1:
        print(f"{len(arguments.seed)} runs, not clean: {', '.join(map(str, unclean)) or 'none'}", flush=True)
    return 1 if unclean else 0


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _kinds(text: str) -> list[str]:
    kinds = [kind.strip() for kind in text.split(",")]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(unknown)} (choose from {', '.join(KINDS)})")
    return kinds


def _isolate() -> None:
    """Restart this program in its own mount and network namespaces; return if that is not possible."""
    options = ["--mount", "--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount", "--net"]
    unshare = ["unshare", *options, "sh", "-c"]
    # A mount that is shared with the outside would appear there.
    ready = "mount --make-rprivate / && ip link set lo up mtu 1500 && tc qdisc show dev lo"
    if subprocess.run([*unshare, ready], capture_output=True, check=False).returncode != 0:
        return
    os.environ[_INSIDE] = "1"
    command = [*unshare, f'{ready} > /dev/null && exec "$@"', "sh", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    sys.stdout.flush()
    os.execvp("unshare", command)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
