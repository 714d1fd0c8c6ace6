"""Facts from ScyllaDB's own tests and documents: stream ids, shards, times, tablets, writes. One test each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from bridge.adapters.scylla.change_log import parse_options
from bridge.model.murmur3 import key_with_token, murmur3_token
from bridge.model.streams import StreamId, Token, first_token_of_shard, shard_of
from bridge.model.times import UnixMicros, UnixMillis, lower_bound, micros_of, sort_key
from sandbox.scylla.cluster import tablets
from sandbox.scylla.cluster.acceptance import SimulatorRefusal, accepting_generation
from sandbox.scylla.log.log_table import CdcOptions, log_ddl_of

FACTS: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
REFUSALS: Final = {
    "reject:past": "from the past",
    "reject:future": "from the future",
    "servererror:no stream": "could not find any CDC stream",
}


def stream_id_decode(facts: Sequence[Any]) -> None:
    for raw, token, version, index, random in facts:
        stream = StreamId(bytes.fromhex(raw))
        assert (stream.token, stream.version, stream.index) == (token, version, index)
        assert StreamId.build(Token(token), index, random) == stream


def vnode_streams_by_shard(facts: dict[str, Any]) -> None:
    shards, ignore_msb = facts["shards"], facts["ignore_msb"]
    for after, until, wanted in facts["ranges"]:
        end = max(wanted) if until is None else until
        found = [first_token_of_shard(Token(after), Token(end), shard, shards, ignore_msb) for shard in range(shards)]
        # A shard that owns nothing in the range has its stream at the range's end.
        assert [end if token is None else token for token in found] == wanted


def shard_of_tokens(facts: Sequence[Any]) -> None:
    for key, token, shards in facts:
        assert murmur3_token(key.to_bytes(4, "big", signed=True)) == token
        for form, shard in shards.items():
            count, ignore_msb = map(int, form.split("/"))
            assert shard_of(Token(token), count, ignore_msb) == shard


def shard_start_unbiased(facts: dict[str, list[int]]) -> None:
    for form, starts in facts.items():
        shards, ignore_msb = map(int, form.split("/"))
        for shard, start in enumerate(starts):
            assert shard_of(Token(start - (1 << 63)), shards, ignore_msb) == shard
            if start:
                assert shard_of(Token(start - 1 - (1 << 63)), shards, ignore_msb) == shard - 1


def tablet_last_tokens(facts: dict[str, list[int]]) -> None:
    for count, tokens in facts.items():
        assert list(tablets.last_tokens(int(count))) == tokens


def timeuuid_micros(facts: Sequence[Any]) -> None:
    for text, micros in facts:
        assert micros_of(UUID(text).bytes) == micros


def timeuuid_bounds(facts: Sequence[Any]) -> None:
    micros, lowest, highest = facts
    assert lower_bound(UnixMicros(micros)) == UUID(lowest).bytes
    above = sort_key(lower_bound(UnixMicros(micros + 1)))
    assert sort_key(UUID(lowest).bytes) < sort_key(UUID(highest).bytes) < above


def timeuuid_low_half_order_ascending(facts: Sequence[str]) -> None:
    keys = [sort_key(bytes(8) + bytes.fromhex(low)) for low in facts]
    assert all(one < other for one, other in pairwise(keys))


def _streams(tokens: Sequence[int]) -> list[StreamId]:
    return [StreamId.build(Token(token), 0, 1) for token in tokens]


def construct_next_stream_set(facts: Sequence[Any]) -> None:
    for before, opened, closed, wanted in facts:
        found = tablets.construct_next(_streams(before), _streams(opened), _streams(closed))
        assert [stream.token for stream in found] == wanted


def stream_diff(facts: Sequence[Any]) -> None:
    for before, after, closed, opened in facts:
        found = tablets.diff(_streams(before), _streams(after))
        assert [[stream.token for stream in part] for part in found] == [closed, opened]


def tablet_gc_new_base(facts: Sequence[Any]) -> None:
    now_ms = 1_700_000_000_000
    for ages_s, ttl_s, base in facts:
        starts = [UnixMillis(now_ms - age_s * 1000) for age_s in ages_s]
        assert tablets.collected_base(starts, UnixMillis(now_ms), ttl_s) == base


def vnode_write_acceptance(facts: Sequence[Any]) -> None:
    for starts, now, write, result in facts:
        times = (
            [UnixMicros(start * 1_000_000) for start in starts],
            *(UnixMicros(at * 1_000_000) for at in (write, now)),
        )
        if isinstance(result, int):
            assert starts[accepting_generation(*times)] == result
        else:
            with pytest.raises(SimulatorRefusal, match=REFUSALS[result]):
                accepting_generation(*times)


def log_compaction_by_ttl(facts: Sequence[Any]) -> None:
    for ttl_s, minutes, check_s, grace_s in facts:
        ddl = log_ddl_of("ks", "t", [("pk", "int")], CdcOptions(ttl_s=ttl_s))
        assert f"'compaction_window_size': '{minutes}'" in ddl
        assert f"'expired_sstable_check_frequency_seconds': '{check_s}'" in ddl
        assert f"gc_grace_seconds = {grace_s}" in ddl


def cdc_extension_blob(facts: Sequence[Any]) -> None:
    options, blob = facts
    found = parse_options(bytes.fromhex(blob))
    assert (
        str(found.enabled).lower(),
        found.preimage,
        str(found.postimage).lower(),
        found.delta,
        str(found.ttl_s),
    ) == (
        options["enabled"],
        options["preimage"],
        options["postimage"],
        options["delta"],
        options["ttl"],
    )


def murmur3_preimage_key_for_token(facts: Sequence[Any]) -> None:
    for token, key in facts:
        assert murmur3_token(bytes.fromhex(key)) == token
        assert key_with_token(Token(token)).hex() == key


CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "stream_id_decode": stream_id_decode,
    "vnode_streams_by_shard": vnode_streams_by_shard,
    "shard_of": shard_of_tokens,
    "shard_start_unbiased": shard_start_unbiased,
    "tablet_last_tokens": tablet_last_tokens,
    "timeuuid_micros": timeuuid_micros,
    "timeuuid_bounds": timeuuid_bounds,
    "timeuuid_low_half_order_ascending": timeuuid_low_half_order_ascending,
    "construct_next_stream_set": construct_next_stream_set,
    "stream_diff": stream_diff,
    "tablet_gc_new_base": tablet_gc_new_base,
    "vnode_write_acceptance": vnode_write_acceptance,
    "log_compaction_by_ttl": log_compaction_by_ttl,
    "cdc_extension_blob": cdc_extension_blob,
    "murmur3_preimage_key_for_token": murmur3_preimage_key_for_token,
}


@pytest.mark.parametrize("name", FACTS)
def test_fact(name: str) -> None:
    """The project's functions give the known figures."""
    assert FACTS[name]
    CHECKS[name](FACTS[name])


def test_every_check_has_its_fact() -> None:
    """No recorded fact is left without a check."""
    assert CHECKS.keys() == FACTS.keys()
