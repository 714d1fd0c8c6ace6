"""Routes a request to the node, tablet and shard that own a token."""

from __future__ import annotations

from cassandra.metadata import Murmur3Token
from cassandra.query import BoundStatement, PreparedStatement

from bridge.model.streams import Token


def token_of(key: bytes) -> Token:
    """The Murmur3 token of a serialized partition key.

    `bridge.model.murmur3.murmur3_token` computes the same in Python; this is C, and a hundred times faster.
    """
    return Token(Murmur3Token.hash_fn(key))


class RoutedStatement(BoundStatement):  # type: ignore[misc]  # the driver has no types
    """A bound statement that can be sent to the owner of another key than its own partition key.

    Args:
        statement: the prepared statement.
        routing_key: the key whose owner gets the request; None for the statement's partition key.
    """

    def __init__(self, statement: PreparedStatement, routing_key: bytes | None) -> None:
        super().__init__(statement)
        self._other_key = routing_key

    @property
    def routing_key(self) -> bytes | None:
        """The bytes that the driver hashes to choose node, tablet and shard."""
        if self._other_key is not None:
            return self._other_key
        key: bytes | None = super().routing_key
        return key
