"""Random writes of a multi-cell column: replaced, nulled, deleted, added to, removed from. Pure."""

from __future__ import annotations

from typing import Final

from sandbox.scylla.base.mutations import CollectionWrite
from sandbox.scylla.values.multi_cell import field_key
from sandbox.scylla.values.nested import fields_of
from sandbox.scylla.values.nested_values import Draw
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, UdtType

_KEYS: Final = 8
"""Number of element keys. It is small, so that removals and overwrites often hit existing elements."""
_VALUES: Final = 16
_SHARED_BYTES: Final = 9
"""Length of the prefix that the keys of two list elements share. One statement's elements have the same time."""
_MOST: Final = 3


class ElementPool:
    """Element keys and values of one column, drawn once."""

    def __init__(self, cql_type: CqlType, draw: Draw) -> None:
        """Draw the keys and values.

        Raises:
            ValueError: the type is not multi-cell, or its values can't be made.
        """
        self._random = draw.random
        match cql_type:
            case SetType(element):
                values = {draw.key(element): [b""] for _ in range(_KEYS)}
            case MapType(key, element):
                values = {draw.key(key): [draw.value(element) for _ in range(_VALUES)] for _ in range(_KEYS)}
            case ListType(element):
                timeuuid = NativeType("timeuuid")
                drawn = [(draw.key(timeuuid), [draw.value(element) for _ in range(_VALUES)]) for _ in range(_KEYS)]
                firsts = [key[:_SHARED_BYTES] for key, _ in drawn[::2]]
                values = {firsts[at // 2] + key[_SHARED_BYTES:]: those for at, (key, those) in enumerate(drawn)}
            case UdtType() as udt:
                fields = enumerate(fields_of(udt, draw.user_types))
                values = {
                    field_key(index): [draw.value(field) for _ in range(_VALUES)] for index, (_name, field) in fields
                }
            case _:
                raise ValueError(f"a column of type {cql_type} has no elements of its own")
        self._values = values
        self._keys = list(values)

    def write(self, is_update: bool, nulls: float, replaced: float) -> CollectionWrite | None:
        """Return a write of the column; an INSERT can only replace it.

        Args:
            is_update: whether the statement is an UPDATE (or a DELETE of columns).
            nulls: probability that the column is set to null or deleted.
            replaced: probability that an UPDATE replaces the column.
        """
        random = self._random
        if random.random() < nulls:
            return CollectionWrite("delete") if is_update and random.random() < 0.5 else None
        if not is_update or random.random() < replaced:
            return CollectionWrite("overwrite", self._elements(random.sample(self._keys, self._count(0))))
        keys = random.sample(self._keys, self._count(1))
        added = random.randint(0, len(keys))
        return CollectionWrite("no", self._elements(keys[:added]), tuple(keys[added:]))

    def _count(self, least: int) -> int:
        return self._random.randint(least, min(_MOST, len(self._keys)))

    def _elements(self, keys: list[bytes]) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((key, self._random.choice(self._values[key])) for key in keys)
