"""What the commands write."""

from __future__ import annotations

import json

import pytest

from bridge.cli.output import json_text


class TestJsonText:
    def test_lines(self) -> None:
        """A document is indented, or on one line; text beyond ASCII stays readable."""
        assert json_text({"a": ["ä"]}, indent=None) == '{"a": ["ä"]}'
        assert json_text({"a": ["ä"]}, indent=2) == '{\n  "a": [\n    "ä"\n  ]\n}'

    @pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u202e"])
    def test_control_characters(self, character: str) -> None:
        """No character reaches the terminal that could control it."""
        text = json_text({"a": f"ä{character}[31m"}, indent=None)
        assert character not in text
        assert json.loads(text) == {"a": f"ä{character}[31m"}
