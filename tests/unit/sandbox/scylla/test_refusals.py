"""The cdc option's spellings, and what is refused with ScyllaDB's own words."""

from __future__ import annotations

import pytest

from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.refusals import CONFIGURATION, SchemaRefusal, cdc_options_of


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({}, CdcOptions(enabled=False)),
        ({"enabled": "TRUE"}, CdcOptions()),
        ({"Enabled": "1", "preimage": "1", "postimage": "0"}, CdcOptions(preimage="true")),
        (
            {"enabled": "true", "preimage": "Full", "postimage": "true", "delta": "keys", "ttl": "0"},
            CdcOptions(0, "full", True, "keys"),
        ),
    ],
)
def test_options_are_read_whatever_their_letters(values: dict[str, str], options: CdcOptions) -> None:
    assert cdc_options_of(values) == options


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"enabled": "YES"}, 'Invalid value for CDC option "enabled": YES'),
        ({"preimage": "half"}, 'Invalid value for CDC option "preimage": half'),
        ({"delta": "off"}, 'Invalid value for CDC option "delta": off'),
        ({"ttl": "-1"}, "Invalid CDC option: ttl must be >= 0"),
        ({"ttl": "long"}, 'Invalid value for CDC option "ttl": long'),
        ({"unknown": "1"}, "Invalid CDC option: unknown"),
    ],
)
def test_a_wrong_option_is_refused_in_the_servers_words(values: dict[str, str], words: str) -> None:
    with pytest.raises(SchemaRefusal) as caught:
        cdc_options_of(values)
    assert (str(caught.value), caught.value.code) == (words, CONFIGURATION)
