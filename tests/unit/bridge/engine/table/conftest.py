"""What the tests of a table's start share."""

from __future__ import annotations

import pytest

from tests.unit.bridge.engine.table.start_fakes import Table


@pytest.fixture
def table() -> Table:
    return Table()
