"""Types as the server keeps them."""

from __future__ import annotations

import pytest

from sandbox.cql.column_types import as_stored
from schemas.cql.types import parse


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        ("int", "int"),
        ("frozen<int>", "int"),
        ("box", "box"),
        ("frozen<box>", "frozen<box>"),
        ("frozen<frozen<box>>", "frozen<box>"),
        ("list<int>", "list<int>"),
        ("set<frozen<list<int>>>", "set<frozen<list<int>>>"),
        ("tuple<int, text>", "frozen<tuple<int, text>>"),
        ("frozen<tuple<int, text>>", "frozen<tuple<int, text>>"),
        ("tuple<set<int>, tuple<box>>", "frozen<tuple<frozen<set<int>>, frozen<tuple<frozen<box>>>>>"),
        ("map<tuple<int>, tuple<int>>", "map<frozen<tuple<int>>, frozen<tuple<int>>>"),
        ("frozen<map<text, list<int>>>", "frozen<map<text, frozen<list<int>>>>"),
        ("vector<float, 3>", "vector<float, 3>"),
        ("vector<tuple<int>, 3>", "vector<frozen<tuple<int>>, 3>"),
        ("tuple<vector<list<int>, 2>>", "frozen<tuple<vector<frozen<list<int>>, 2>>>"),
    ],
)
def test_a_type_is_kept_as_the_server_shows_it(declared: str, stored: str) -> None:
    assert str(as_stored(parse(declared))) == stored
    assert as_stored(parse(stored)) == parse(stored)
