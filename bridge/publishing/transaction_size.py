"""How large a transaction may be so that Kafka takes it in time, however slow the brokers are. Pure."""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 1 << 16
"""The first limit, and the lowest one: in three quarters of a timeout of 60 s, 64 KiB are 1.5 kB/s for each lane."""
_TIMEOUT_PARTS: Final = 8
"""What is still queued when a transaction ends should take the brokers at most this part of its timeout. So the commit
succeeds even if the brokers become several times slower meanwhile."""


class TransactionSize:
    """The limit for the bytes of a transaction. Every commit adapts it to what the brokers take.

    The lanes of a process share one: the speed is that of the brokers.

    Attributes:
        most_bytes: the limit, in bytes of keys and values.
    """

    def __init__(self, most_bytes: int, timeout_s: float) -> None:
        """Begin with a low limit: a process may start while the brokers are slow.

        Args:
            most_bytes: the highest limit.
            timeout_s: the time after which Kafka aborts a transaction.
        """
        self._highest = most_bytes
        self._target_s = timeout_s / _TIMEOUT_PARTS
        self._lowest = min(FIRST_BYTES, most_bytes)
        self.most_bytes = self._lowest

    def note_commit(self, size: int, took_s: float) -> None:
        """Adapt the limit to a commit.

        Args:
            size: bytes of the transaction's keys and values.
            took_s: how long the commit took, which includes delivering what was queued.
        """
        if took_s <= self._target_s and size < self.most_bytes:
            # It shows only that the brokers take this much.
            return
        taken_in_time = size * self._target_s / took_s if took_s > 0 else self._highest
        self.most_bytes = round(max(self._lowest, min(taken_in_time, 2 * self.most_bytes, self._highest)))

    def note_abort(self) -> None:
        """Begin again with the lowest limit: the brokers may have taken too little in time."""
        self.most_bytes = self._lowest
