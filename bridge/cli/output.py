"""Writes lines to standard output and standard error, and JSON for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_line(line: str) -> None:
    """Write a line to standard output at once, also where that is a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_notice(line: str) -> None:
    """Write a line to standard error, so that standard output holds only the command's result."""
    sys.stderr.write(line + "\n")


def json_text(document: Mapping[str, Any], *, indent: int | None) -> str:
    """Return a document as JSON text, indented by so many spaces, or on one line.

    Characters beyond ASCII stay readable, unless one of them could control a terminal.
    """
    readable = json.dumps(document, ensure_ascii=False, indent=indent)
    if all(line.isprintable() for line in readable.split("\n")):
        return readable
    return json.dumps(document, indent=indent)
