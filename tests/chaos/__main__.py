"""`python -m tests.chaos --seed N --minutes M`: random faults on the real stack, then what every consumer would see.

It ends with one line of counts. Exit statuses: 0 all is right; 1 something is not; 2 the run itself failed.
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

from bridge.local.stack import LocalStack
from tests.chaos.plan import ISOLATED, KINDS
from tests.chaos.run import Run

_INSIDE: Final = "SCYLLA_CDC_BRIDGE_TEST_ISOLATED"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, required=True, help="decides the faults and what is written")
    parser.add_argument("--minutes", type=float, default=1.5, help="how long at least; a fault for every ten seconds")
    parser.add_argument("--kinds", help=f"only these faults, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--variant", help="a deliberately broken protocol, see tests/chaos/broken.py")
    parser.add_argument("--folder", type=Path, help="where everything goes, and stays")
    arguments = parser.parse_args(argv)
    isolated = os.environ.get(_INSIDE) == "1"
    if not isolated:
        _isolate()
        _say(f"no namespaces of our own here (unshare fails): without {', '.join(ISOLATED)}")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    kinds = arguments.kinds.split(",") if arguments.kinds else KINDS
    stack = LocalStack.up(folder / "stack", report=_say)
    try:
        run = Run(stack, folder, seed=arguments.seed, say=_say, isolated=isolated, variant=arguments.variant)
        outcome = run.carry_out(arguments.minutes, kinds)
    finally:
        stack.down()
    for fault, took_s in outcome.faults:
        _say(f"{fault}: publishing again after {'-' if took_s is None else f'{took_s:.1f} s'}")
    for line in outcome.counts.examples + outcome.problems:
        _say(line)
    if not outcome.clean:
        _say(f"everything lies in {folder}")
    print(outcome, flush=True)
    return 0 if outcome.clean else 1


def _isolate() -> None:
    """Go on in a mount and a network namespace of our own, where there can be such; else return."""
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
