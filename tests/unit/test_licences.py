"""Every installed package has an allowed licence, and docs/licences.md lists it."""

from __future__ import annotations

import re

import pytest

from deploy.licences import DOCUMENT, Package, document


def test_page_is_current_and_all_licences_are_allowed() -> None:
    """The page matches the installed packages, and every licence is an allowed one."""
    page = document()
    assert DOCUMENT.read_text(encoding="utf-8") == page, "docs/licences.md is out of date: make licences"
    found = [Package(*row) for row in re.findall(r"^\| ([\w-]+) \| (.+) \|$", page, re.MULTILINE)]
    assert len(found) > 40
    assert [one for one in found if not one.is_allowed and one.licence != "licence"] == []


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-2-Clause", True),
        ("BSD-3-Clause AND (MIT OR Zlib)", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND GPL-2.0-only", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_allowed(licence: str, allowed: bool) -> None:
    """Every licence of an expression has to be on the list."""
    assert Package("p", licence).is_allowed is allowed
