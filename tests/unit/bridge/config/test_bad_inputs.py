"""Whatever a user gets wrong is told in words, and as `docs/errors.md` says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.bridge.cli.server_errors import SERVER_CASES
from tests.unit.bridge.config import bad_inputs

_TESTS = Path(__file__).resolve().parents[3]


def test_document_says_what_is_seen() -> None:
    """Each case anew: refused with status 2, in words, with no secret, and as the document has it."""
    found = bad_inputs.try_all()
    assert sum(map(len, found.values())) > 120
    for title, cases in bad_inputs.sections().items():
        for case, seen in zip(cases, found[title], strict=True):
            assert seen.status == 2, (case.tried, seen)
            assert seen.told, case.tried
            for word in ("Traceback", "Error(", "please report", "pydantic", bad_inputs.SECRET):
                assert word not in seen.raw, (case.tried, word, seen)
    assert bad_inputs.DOCUMENT.read_text(encoding="utf-8") == bad_inputs.document(found)


def test_named_tests_exist() -> None:
    """What the document says of servers is held by tests that are there."""
    defined = set()
    for path in _TESTS.rglob("test_*.py"):
        defined |= set(re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    named = {entry.test for entries in SERVER_CASES.values() for entry in entries if entry.test is not None}
    assert named <= defined
