"""CQL types: random literals, and one form for the values of records and of SELECT.

`of_record` takes decoded Avro values in the replica's hashable form, `of_driver` those of the CQL driver. Both return
the same for the same value. `pack` returns the serialized value, which decides between two writes at one timestamp.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.live.native_types import Native, Value


def framed(raw: bytes | None) -> bytes:
    """A value inside another one: its length, then its bytes."""
    return struct.pack(">i", -1) if raw is None else struct.pack(">i", len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Elements:
    """`list<E>` or `set<E>`."""

    kind: str
    element: CqlType

    @property
    def cql(self) -> str:
        return f"{self.kind}<{self.element.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return True

    def literals(self, random: Random, least: int = 0) -> list[str]:
        return [self.element.literal(random) for _ in range(random.randint(least, 3))]

    def literal(self, random: Random) -> str:
        opened, closed = "[]" if self.kind == "list" else "{}"
        return opened + ", ".join(self.literals(random)) + closed

    def of_record(self, value: Any) -> Value:
        return self._gathered(map(self.element.of_record, value))

    def of_driver(self, value: Any) -> Value:
        return self._gathered(map(self.element.of_driver, value))

    def pack(self, value: Any) -> bytes:
        return struct.pack(">i", len(value)) + b"".join(framed(self.element.pack(one)) for one in value)

    def _gathered(self, values: Any) -> Value:
        return tuple(values) if self.kind == "list" else frozenset(values)


@dataclass(frozen=True, slots=True)
class Map:
    """`map<K, V>`."""

    key: CqlType
    value: CqlType

    @property
    def cql(self) -> str:
        return f"map<{self.key.cql}, {self.value.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return True

    def entries(self, random: Random, least: int = 0) -> list[tuple[str, str]]:
        # Two entries of one key: the server's choice is nobody's concern.
        made = {self.key.literal(random): self.value.literal(random) for _ in range(random.randint(least, 3))}
        return list(made.items())

    def literal(self, random: Random) -> str:
        return "{" + ", ".join(f"{key}: {value}" for key, value in self.entries(random)) + "}"

    def of_record(self, value: Any) -> Value:
        pairs = map(dict, value)
        return frozenset((self.key.of_record(one["key"]), self.value.of_record(one["value"])) for one in pairs)

    def of_driver(self, value: Any) -> Value:
        return frozenset((self.key.of_driver(key), self.value.of_driver(one)) for key, one in value.items())

    def pack(self, value: Any) -> bytes:
        pairs = [dict(one) for one in value]
        packed = (framed(self.key.pack(one["key"])) + framed(self.value.pack(one["value"])) for one in pairs)
        return struct.pack(">i", len(pairs)) + b"".join(packed)


@dataclass(frozen=True, slots=True)
class Tuple:
    """`tuple<...>`, which is always frozen."""

    elements: tuple[CqlType, ...]

    @property
    def cql(self) -> str:
        return f"tuple<{', '.join(one.cql for one in self.elements)}>"

    @property
    def is_multi_cell(self) -> bool:
        return False

    def literal(self, random: Random) -> str:
        return f"({', '.join(maybe_null(one, random) for one in self.elements)})"

    def of_record(self, value: Any) -> Value:
        fields = dict(value)
        return tuple(
            None if fields[f"field_{place}"] is None else one.of_record(fields[f"field_{place}"])
            for place, one in enumerate(self.elements)
        )

    def of_driver(self, value: Any) -> Value:
        parts = [*value, *[None] * (len(self.elements) - len(value))]
        return tuple(
            None if part is None else one.of_driver(part) for one, part in zip(self.elements, parts, strict=True)
        )

    def pack(self, value: Any) -> bytes:
        fields = dict(value)
        return b"".join(
            framed(None if fields[f"field_{place}"] is None else one.pack(fields[f"field_{place}"]))
            for place, one in enumerate(self.elements)
        )


@dataclass(slots=True, eq=False)
class Udt:
    """A user-defined type; ALTER TYPE adds to `fields`."""

    name: str
    fields: list[tuple[str, CqlType]] = field(default_factory=list)

    @property
    def cql(self) -> str:
        return self.name

    @property
    def is_multi_cell(self) -> bool:
        return True

    def literal(self, random: Random) -> str:
        # A value with no field at all can't be told from null by a SELECT of a non-frozen column.
        first, *others = self.fields
        parts = [f"{first[0]}: {first[1].literal(random)}"]
        parts += [f"{name}: {maybe_null(kind, random)}" for name, kind in others if random.random() < 0.8]
        return "{" + ", ".join(parts) + "}"

    def of_record(self, value: Any) -> Value:
        given = dict(value)
        return tuple(None if given.get(name) is None else kind.of_record(given[name]) for name, kind in self.fields)

    def of_driver(self, value: Any) -> Value:
        given = value._asdict()
        return tuple(None if given.get(name) is None else kind.of_driver(given[name]) for name, kind in self.fields)

    def pack(self, value: Any) -> bytes:
        return b"".join(
            framed(None if part is None else kind.pack(part))
            for (_, part), (_, kind) in zip(value, self.fields, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Frozen:
    """`frozen<T>`."""

    inner: Elements | Map | Udt

    @property
    def cql(self) -> str:
        return f"frozen<{self.inner.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return False

    def literal(self, random: Random) -> str:
        return self.inner.literal(random)

    def of_record(self, value: Any) -> Value:
        return self.inner.of_record(value)

    def of_driver(self, value: Any) -> Value:
        return self.inner.of_driver(value)

    def pack(self, value: Any) -> bytes:
        return self.inner.pack(value)


CqlType = Native | Elements | Map | Tuple | Udt | Frozen


def maybe_null(kind: CqlType, random: Random) -> str:
    """A literal, or sometimes null."""
    return "null" if random.random() < 0.15 else kind.literal(random)


def list_of(element: CqlType) -> Elements:
    return Elements("list", element)


def set_of(element: CqlType) -> Elements:
    return Elements("set", element)
