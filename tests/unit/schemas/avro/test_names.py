from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.avro.names import avro_name, namespace


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("v", "v"),
        ("MixedCase_1", "MixedCase_1"),
        ("_", "_"),
        ("last_update", "last_update"),
        ("is_used", "is_used"),
        ("my_uber", "my_uber"),
        ("first name", "first_u20_name"),
        ("first_u20_name", "first_u5f_u20_name"),
        ("1st", "_u31_st"),
        ("a1", "a1"),
        ("zażółć", "za_u17c__uf3__u142__u107_"),
        ("cdc$x", "cdc_u24_x"),
        ("a.b", "a_u2e_b"),
        ("a-b", "a_u2d_b"),
        ("😀", "_u1f600_"),
        ("_u5_u6_", "_u5f_u5_u5f_u6_"),
        ("_u5é", "_u5f_u5_ue9_"),
        ("select", "select"),
        ("null", "null"),
    ],
)
def test_names(identifier: str, name: str) -> None:
    """Each identifier has this Avro name; ordinary ones stay unchanged."""
    assert avro_name(identifier) == name


_HARD = st.text(alphabet=st.sampled_from("_u05fXé 😀"), min_size=1, max_size=12)


@given(st.one_of(_HARD, st.text(min_size=1)))
@example("_u5_u6_")
@example("_u5é")
def test_injective(identifier: str) -> None:
    """Every identifier has a valid Avro name that gives back the identifier, so that no two collide."""
    name = avro_name(identifier)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    assert re.sub(r"_u([0-9a-f]+)_", lambda match: chr(int(match.group(1), 16)), name) == identifier


def test_namespace() -> None:
    """The namespace is keyspace and table, each made an Avro name."""
    assert namespace("my ks", "t") == "my_u20_ks.t"
    assert namespace("a.b", "c") != namespace("a", "b.c")
