"""Runs the command line inside the test's process."""

from __future__ import annotations

import argparse
from typing import Any

from bridge.cli import main


def run_cli(*words: str) -> int:
    """Run `scylla-cdc-bridge` with these words and return its exit status."""
    return main.main(words)


def raising(error: BaseException) -> Any:
    """Return a function that takes any positional arguments and raises an error."""

    def fail(_argument: argparse.Namespace | None, *_: object) -> int:
        raise error

    return fail
