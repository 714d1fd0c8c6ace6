"""Tries what users get wrong, and writes `docs/errors.md`: `python -m tests.unit.bridge.config.bad_inputs`.

Cases that need no server run in this process, whenever the document is written or checked. Cases that need servers are
quoted as seen, with the test that checks them, or without a test if they were tried by hand.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from bridge.cli import main
from bridge.runtime import log_setup
from tests.unit.bridge.cli.server_errors import SERVER_CASES
from tests.unit.bridge.config.bad_input_cases import FILE, Case, sections

DOCUMENT: Final = Path(__file__).resolve().parents[4] / "docs" / "errors.md"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the user gets.

    Attributes:
        messages: the lines on standard error, without the program's name.
        status: the exit status.
        raw: all of standard error and standard output.
    """

    messages: tuple[str, ...]
    status: int
    raw: str


def try_case(case: Case) -> Outcome:
    """Run the command line of a case in the working folder."""
    path = Path(FILE)
    path.unlink(missing_ok=True)
    if case.text is not None:
        path.write_bytes(case.text.encode() if isinstance(case.text, str) else case.text)
    errors, output = io.StringIO(), io.StringIO()
    # A log handler would keep the stream of this case.
    with redirect_stderr(errors), redirect_stdout(output), patch.object(log_setup, "setup"):
        status = main.main(case.words)
    lines = errors.getvalue().splitlines()
    if lines and lines[0].startswith("usage: "):
        lines = lines[-1:]
    messages = tuple(line.partition("error: ")[2] or line.replace(str(Path.cwd()), "...") for line in lines)
    return Outcome(messages, status, errors.getvalue() + output.getvalue())


@contextmanager
def empty_folder() -> Iterator[None]:
    """Work in an empty folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


_HEAD: Final = """\
# Errors

This page lists what you see after a mistake. [When things go wrong](failures.md) describes failures of servers and
processes.

No mistake in the file, on the command line or at a server ends in a traceback. A message names the fault, its place
(file and line, setting, table, topic, address) and the remedy. No message contains a secret. The bridge reports all
problems of a file at once, each on its own line.

| Exit status | Meaning |
|---|---|
| 0 | Done, or stopped as requested. |
| 1 | Failed while running. |
| 2 | Refused before anything was written. |
| 130 | Ended by Ctrl-C. |
| 143 | `run` ended by SIGTERM before it started anything. |

The tables are generated (`make docs`), and a test compares them with what the commands print.
"""


_WITHOUT_SERVERS: Final = """\
Every command that reads the file refuses what `validate -c bridge.yaml` refuses.
"""


_WITH_SERVERS: Final = """\
`...` marks text that is left out. At its start the job checks all servers and tables, and reports all problems
together. It tries a server that does not answer again for `startup.patience_s`. A running job retries what can
recover.

The last column names the test that checks the message.
"""


def document(outcomes: dict[str, list[Outcome]]) -> str:
    """Return the whole of `docs/errors.md`, given the outcomes of each section's cases."""
    lines = [_HEAD, "## Without servers\n", _WITHOUT_SERVERS]
    for title, cases in sections().items():
        lines += [f"### {title}\n", "| You try | You see | Exit |", "|---|---|---:|"]
        for case, outcome in zip(cases, outcomes[title], strict=True):
            messages = "<br>".join(map(_literal, outcome.messages))
            lines.append(_row(case.tried, messages, str(outcome.status)))
        lines.append("")
    lines += ["## With servers\n", _WITH_SERVERS]
    for title, entries in SERVER_CASES.items():
        lines += [f"### {title}\n", "| You try | You see | Exit | Test |", "|---|---|---:|---|"]
        lines += [
            _row(
                one.tried, "<br>".join(map(_literal, one.told)), one.status, f"`{one.test}`" if one.test else "by hand"
            )
            for one in entries
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _literal(text: str) -> str:
    mark = "``" if "`" in text else "`"
    return f"{mark} {text} {mark}" if mark == "``" else f"`{text}`"


def try_all() -> dict[str, list[Outcome]]:
    """Run every case, by section, with argparse's messages in English."""
    with empty_folder(), patch.dict(os.environ, LANGUAGE="C"):
        return {title: [try_case(case) for case in cases] for title, cases in sections().items()}


if __name__ == "__main__":
    sys.stdout.write(document(try_all()))
