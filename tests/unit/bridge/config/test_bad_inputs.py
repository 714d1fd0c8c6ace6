"""Every mistake of a user is refused with a message, and `docs/errors.md` quotes it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.bridge.cli.server_errors import SERVER_CASES
from tests.unit.bridge.config import bad_inputs
from tests.unit.bridge.config.bad_input_cases import SECRET, sections

_TESTS = Path(__file__).resolve().parents[3]


def test_document_is_current() -> None:
    """Each case is refused with status 2 and a message without secrets, which the document quotes."""
    outcomes = bad_inputs.try_all()
    assert sum(map(len, outcomes.values())) > 120
    for title, cases in sections().items():
        for case, outcome in zip(cases, outcomes[title], strict=True):
            assert outcome.status == 2, (case.tried, outcome)
            assert outcome.messages, case.tried
            for word in ("Traceback", "Error(", "please report", "pydantic", SECRET):
                assert word not in outcome.raw, (case.tried, word, outcome)
    assert bad_inputs.DOCUMENT.read_text(encoding="utf-8") == bad_inputs.document(outcomes)


def test_named_tests_exist() -> None:
    """The tests that the document names exist."""
    defined = set()
    for path in _TESTS.rglob("test_*.py"):
        defined |= set(re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    named = {entry.test for entries in SERVER_CASES.values() for entry in entries if entry.test is not None}
    assert named <= defined
