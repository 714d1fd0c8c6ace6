"""How many lanes a table has."""

from __future__ import annotations

import pytest

from bridge.config.document import SparkSettings
from bridge.engine.lane_counts import too_many_lanes


@pytest.mark.parametrize(
    ("master", "lanes", "has_warning"),
    [
        ("local[2]", 16, False),
        ("local[2]", 17, True),
        ("local", 9, True),
        ("spark://there:7077", 100, False),
    ],
)
def test_far_more_lanes_than_cores_get_a_warning(master: str, lanes: int, has_warning: bool) -> None:
    """Where the settings tell the number of cores. A few lanes a core prepare a table for a larger machine."""
    warning = too_many_lanes(SparkSettings(master=master), lanes)
    assert (warning is not None) == has_warning
    assert warning is None or warning.startswith(f"{lanes} lanes are read ")
