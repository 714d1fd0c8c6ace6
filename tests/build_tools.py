"""Builds what tests need through the Go module proxy: python -m tests.build_tools [--chart].

A tool that cannot be built is reported. The exit status is then 0, because the tests that need the tool are skipped. It
is 1 on CI (variable CI), and with `--chart`, which also builds what only `make chart` uses.
"""

from __future__ import annotations

import os
import sys

from tests.chart.kubernetes_schemas import VERSIONS, build_schemas
from tests.go_tools import BUILT_FOR_TESTS, PROMTOOL, ToolMissingError


def main(words: list[str]) -> int:
    """Build the missing tools and return the exit status."""
    for_chart = words == ["--chart"]
    try:
        for program in (*BUILT_FOR_TESTS, *([PROMTOOL] if for_chart else [])):
            if not program.path.exists():
                print(f"building {program.path}", file=sys.stderr, flush=True)
                program.build()
        for version in VERSIONS:
            build_schemas(version)
    except (ToolMissingError, RuntimeError) as error:
        print(f"tools of the tests: {error}", file=sys.stderr)
        return int(for_chart or "CI" in os.environ)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
