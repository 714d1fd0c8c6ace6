"""Murmur3 as ScyllaDB and Cassandra use it: from partition key to token, and from token to a key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, Token

_WORD: Final = 1 << 64


def murmur3_token(key: bytes) -> Token:
    """Return the token of a serialized partition key (Murmur3 x64-128 with a sign-extended tail)."""
    h1 = h2 = 0
    full = len(key) // 16 * 16
    for at in range(0, full, 16):
        k1 = int.from_bytes(key[at : at + 8], "little")
        k2 = int.from_bytes(key[at + 8 : at + 16], "little")
        h1 ^= _mix1(k1)
        h1 = (_rotl(h1, 27) + h2) % _WORD
        h1 = (h1 * 5 + _ADD1) % _WORD
        h2 ^= _mix2(k2)
        h2 = (_rotl(h2, 31) + h1) % _WORD
        h2 = (h2 * 5 + _ADD2) % _WORD
    tail = key[full:]
    h1 ^= _mix1(_signed_little(tail[:8]))
    h2 ^= _mix2(_signed_little(tail[8:]))
    h1 ^= len(key)
    h2 ^= len(key)
    h1 = (h1 + h2) % _WORD
    h2 = (h2 + h1) % _WORD
    h1, h2 = _fmix(h1), _fmix(h2)
    h1 = (h1 + h2) % _WORD
    token = h1 - _WORD if h1 >= 1 << 63 else h1
    return MAX_TOKEN if token == MIN_TOKEN else Token(token)


def partition_key_bytes(components: Sequence[bytes]) -> bytes:
    """Return the bytes that are hashed: a single cell as it is; several cells each with its length and a zero byte."""
    if len(components) == 1:
        return components[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\0" for cell in components)


def key_with_token(token: Token) -> bytes:
    """Return a partition key of 16 bytes that has the given Murmur3 token.

    A driver that routes by key only can reach the owner of a token this way. One block of Murmur3 is a bijection of 16
    bytes, so it can be inverted once the second half of its result is chosen as zero. No key has the lowest token. The
    next token always has the same owner, so the function uses that one instead.
    """
    end = max(token, MIN_TOKEN + 1) % _WORD
    h1, h2 = _fmix_back(2 * end % _WORD), _fmix_back(-end % _WORD)
    h2 = (h2 - h1) % _WORD
    h1 = (h1 - h2) % _WORD ^ _KEY_BYTES
    h2 ^= _KEY_BYTES
    k2 = _rotl(((h2 - _ADD2) * _FIFTH - h1) % _WORD, 33)
    k1 = _rotl((h1 - _ADD1) * _FIFTH % _WORD, 37)
    k1 = _rotl(k1 * _C2_BACK % _WORD, 33) * _C1_BACK % _WORD
    k2 = _rotl(k2 * _C1_BACK % _WORD, 31) * _C2_BACK % _WORD
    return k1.to_bytes(8, "little") + k2.to_bytes(8, "little")


_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_ADD1: Final = 0x52DCE729
_ADD2: Final = 0x38495AB5
_F1: Final = 0xFF51AFD7ED558CCD
_F2: Final = 0xC4CEB9FE1A85EC53
_C1_BACK, _C2_BACK, _F1_BACK, _F2_BACK, _FIFTH = (pow(odd, -1, _WORD) for odd in (_C1, _C2, _F1, _F2, 5))
_KEY_BYTES: Final = 16


def _signed_little(tail: bytes) -> int:
    # Cassandra sign-extends the bytes of the tail; the published Murmur3 does not.
    value = 0
    for at, byte in enumerate(tail):
        value ^= ((byte - 256 if byte >= 128 else byte) << (8 * at)) % _WORD
    return value


def _mix1(value: int) -> int:
    return _rotl(value * _C1 % _WORD, 31) * _C2 % _WORD


def _mix2(value: int) -> int:
    return _rotl(value * _C2 % _WORD, 33) * _C1 % _WORD


def _rotl(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) % _WORD


def _fmix(value: int) -> int:
    value ^= value >> 33
    value = value * _F1 % _WORD
    value ^= value >> 33
    value = value * _F2 % _WORD
    return value ^ (value >> 33)


def _fmix_back(value: int) -> int:
    # A shift by more than half of the bits is its own inverse.
    value ^= value >> 33
    value = value * _F2_BACK % _WORD
    value ^= value >> 33
    value = value * _F1_BACK % _WORD
    return value ^ (value >> 33)
