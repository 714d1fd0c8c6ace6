"""The configuration reference lists every setting, and docs/configuration.md holds the current one."""

from __future__ import annotations

import pytest

from bridge.config.reference.catalog import catalog_of
from bridge.config.reference.markdown import settings_markdown
from deploy.configuration import DOCUMENT, with_settings


def test_reference_has_a_row_for_each_setting() -> None:
    """Each setting has one row with its default and its values."""
    text = settings_markdown()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(catalog_of().settings)
    assert all(line.count("|") - line.count("\\|") == 5 for line in rows)
    assert "| `scylla.page_rows` | `2000` | a whole number from 10 to 100000 |" in text
    assert "| `scylla.contact_points` | required | a list of host:port |" in text
    assert "| `scylla.username` | unset | text |" in text
    assert "| `scylla.tls.enabled` | `false` | true or false |" in text


def test_reference_has_a_heading_for_each_section() -> None:
    """Each section has exactly one heading, followed by its description."""
    text = settings_markdown()
    for section, description in catalog_of().sections.items():
        assert text.count(f"### `{section}`\n\n{description}\n") == 1, section


def test_page_is_current() -> None:
    """The generated part of the page is what the settings give."""
    page = DOCUMENT.read_text(encoding="utf-8")
    assert page == with_settings(page), "docs/configuration.md is out of date: make docs"


def test_page_without_place_is_refused() -> None:
    """A page without the enclosing comments is an error, so the generated part can't vanish."""
    with pytest.raises(ValueError, match="lacks the comments"):
        with_settings("# Configuration\n")
