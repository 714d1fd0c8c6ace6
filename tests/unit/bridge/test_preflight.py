"""What is said at the start of tables whose log does not hold what the output is made of."""

from __future__ import annotations

import pytest

from bridge.preflight import shortcomings
from bridge.table_watch import CdcOptions
from schemas.output import OutputOptions, ShapeName


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize("preimage", ["true", "full"])
@pytest.mark.parametrize("postimage", [False, True])
def test_preimages_of_touched_columns_are_not_reliable(shape: ShapeName, preimage: str, postimage: bool) -> None:
    """Those of 'true' are so, for the shapes that have them in `before`; with a post-image all columns are read."""
    options = CdcOptions(enabled=True, preimage=preimage, postimage=postimage, delta="full", ttl_s=86_400)
    said = [one for one in shortcomings(options, OutputOptions(shape=shape)) if "unreliable in batches" in one]
    assert bool(said) == (preimage == "true" and not postimage and shape in ("full", "debezium"))
    assert all("'preimage': 'full' avoids it" in one for one in said)


def test_nothing_is_said_of_a_log_that_holds_what_is_wanted() -> None:
    """Nor of one whose options were never set."""
    full = CdcOptions(enabled=True, preimage="full", postimage=True, delta="full", ttl_s=0)
    assert not list(shortcomings(full, OutputOptions(shape="debezium")))
    assert not list(shortcomings(None, OutputOptions(shape="full")))
