"""A consumer that keeps a copy of a table from the shape `delta`, as a user would write one: by last-write-wins.

It knows CQL's rules (a cell's newest write wins; at one timestamp the dead beat the living, then what expires what
does not; tombstones kill what is not newer) and the envelope's documentation, and nothing of how the bridge makes it.
It takes decoded records in any order. Where two requests wrote values with one timestamp, the server compares the
serialized values: the replica does so if it can serialize them, else the first one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

Value = Any
"""A decoded value in a hashable form, see `frozen`."""

RowKey = tuple[Value, ...]
Compare = Callable[[str, Value], Any]
"""A clustering column's name and value -> something that sorts as the column does, ascending."""

Pack = Callable[[str, Value, Value], bytes]
"""A column's name, an element's key (None outside of collections) and a value -> the serialized value."""


def frozen(value: Any) -> Value:
    """A decoded value, hashable; NaN equals itself."""
    if isinstance(value, dict):
        return tuple((name, frozen(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(frozen(one) for one in value)
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "hex") and hasattr(value, "urn"):
        return str(value)  # fastavro reads the logical type uuid as an object
    return value


@dataclass(frozen=True, slots=True)
class Cell:
    value: Value | None
    written_us: int
    ttl_s: int
    packed: bytes = b""

    def beats(self, other: Cell | None) -> bool:
        return other is None or self._rank() > other._rank()

    def is_live(self, dead_us: int | None, now_us: int | None) -> bool:
        if self.value is None or (dead_us is not None and self.written_us <= dead_us):
            return False
        return now_us is None or self.ttl_s == 0 or self.written_us + self.ttl_s * 1_000_000 > now_us

    def _rank(self) -> tuple[int, bool, bool, int, bytes]:
        return (self.written_us, self.value is None, self.ttl_s > 0, self.ttl_s, self.packed)


@dataclass(slots=True)
class Collection:
    cleared_us: int | None = None
    elements: dict[Value, Cell] = field(default_factory=dict)

    def live(self, deleted_us: int | None, now_us: int | None) -> dict[Value, Value]:
        dead_us = _latest(self.cleared_us, deleted_us)
        return {key: cell.value for key, cell in self.elements.items() if cell.is_live(dead_us, now_us)}


@dataclass(slots=True)
class Row:
    marker: Cell | None = None
    deleted_us: int | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    collections: dict[str, Collection] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Range:
    start: tuple[tuple[Value, ...], bool] | None
    end: tuple[tuple[Value, ...], bool] | None
    deleted_us: int


@dataclass(slots=True)
class Partition:
    static: Row = field(default_factory=Row)
    rows: dict[RowKey, Row] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)
    deleted_us: int | None = None


@dataclass(frozen=True, slots=True)
class SeenRow:
    """What a reader of the copy sees.

    Attributes:
        cells: values of atomic columns that are not null.
        collections: live elements by key (an element, a map's key, a list's timeuuid, a field's name); a list's in
            their order.
        inserted: whether it stays when its last cell is nulled.
    """

    cells: Mapping[str, Value]
    collections: Mapping[str, Mapping[Value, Value]]
    inserted: bool


class Replica:
    """The copy of one table, by the rules of docs/change-events.md, "Keep a copy of the table".

    Args:
        schema: the Avro schema of the records' values. Of the key's fields the nullable ones are the clustering
            columns, and `clusteringOrder` marks the descending ones; `cqlName` is what `empty_columns` calls a column
            whose name is none for Avro; `cqlType` tells a set, whose elements are their own keys.
        compare: how clustering values sort.
        pack: how values are serialized; None if it is not known.
    """

    def __init__(self, schema: Mapping[str, Any], compare: Compare, pack: Pack | None = None) -> None:
        fields = {one["name"]: one for one in schema["fields"]}
        clustering = [one for one in fields["key"]["type"]["fields"] if isinstance(one["type"], list)]
        self._clustering = [one["name"] for one in clustering]
        self._descending = frozenset(one["name"] for one in clustering if one.get("clusteringOrder") == "desc")
        self._cql_names: dict[str, str] = {one["name"]: one.get("cqlName", one["name"]) for one in clustering}
        self._sets: frozenset[str] = frozenset()
        self._lists: frozenset[str] = frozenset()
        self._keys_alone = True
        self._compare, self._pack = compare, pack
        self._partitions: dict[Value, Partition] = {}
        self._forgotten_us: dict[str, int] = {}
        self.learn(schema)

    def learn(self, schema: Mapping[str, Any]) -> None:
        """Take the columns of another schema of the same table."""
        columns = next(one for one in schema["fields"] if one["name"] == "columns")["type"][1]["fields"]
        self._cql_names |= {one["name"]: one.get("cqlName", one["name"]) for one in columns}
        self._sets |= _columns_of("set<", columns)
        self._lists |= _columns_of("list<", columns)
        self._keys_alone = self._keys_alone and not columns

    def forget(self, column: str, dropped_us: int) -> None:
        """Take that a column was dropped: what was written to it until then is gone."""
        self._forgotten_us[column] = dropped_us

    @property
    def partitions(self) -> list[dict[str, Value]]:
        """The keys of all partitions that a record named."""
        return [dict(key) for key in self._partitions]

    def cql_name(self, field: str) -> str:
        """The name of a column in CQL."""
        return self._cql_names[field]

    def apply(self, key: Mapping[str, Any], envelope: Mapping[str, Any]) -> None:
        """Take one record."""
        partition = self._partitions.setdefault(frozen(key), Partition())
        written_us = envelope["source"]["timestamp_us"]
        clustering = tuple(frozen(envelope["key"][name]) for name in self._clustering)
        match envelope["op"]:
            case "insert" | "update":
                row = partition.rows.setdefault(clustering, Row())
                if envelope["op"] == "insert" or self._keys_alone:
                    marker = Cell("", written_us, envelope["ttl"] or 0)
                    row.marker = marker if marker.beats(row.marker) else row.marker
                self._write(row, envelope, written_us)
            case "static_update":
                self._write(partition.static, envelope, written_us)
            case "row_delete" | "row_expiry":
                row = partition.rows.setdefault(clustering, Row())
                row.deleted_us = _latest(row.deleted_us, written_us)
            case "partition_delete" | "partition_expiry":
                partition.deleted_us = _latest(partition.deleted_us, written_us)
            case "range_delete":
                start, end = (self._bound(envelope["range"][side]) for side in ("start", "end"))
                partition.ranges.append(Range(start, end, written_us))
            case unknown:
                raise AssertionError(f"an operation that nobody described: {unknown}")

    def _write(self, row: Row, envelope: Mapping[str, Any], written_us: int) -> None:
        ttl_s = envelope["ttl"] or 0
        for name, change in (envelope["columns"] or {}).items():
            if change is None:
                continue
            if "cleared" not in change:
                empty = self._cql_names[name] in envelope["empty_columns"]
                self._put(row.cells, name, None, "EMPTY" if empty else frozen(change["value"]), written_us, ttl_s)
                continue
            collection = row.collections.setdefault(name, Collection())
            if change["cleared"]:
                collection.cleared_us = _latest(collection.cleared_us, written_us - 1)
            for element, value in _elements(change, is_set=name in self._sets):
                self._put(collection.elements, name, element, value, written_us, ttl_s)

    def _put(
        self, cells: dict[Any, Cell], name: str, element: Value, value: Value | None, written_us: int, ttl_s: int
    ) -> None:
        known = value is not None and value != "EMPTY" and self._pack is not None
        packed = self._pack(name, element, value) if known else b""
        cell = Cell(value, written_us, 0 if value is None else ttl_s, packed)
        place = name if element is None else element
        if cell.beats(cells.get(place)):
            cells[place] = cell

    def _bound(self, bound: Mapping[str, Any] | None) -> tuple[tuple[Value, ...], bool] | None:
        if bound is None:
            return None
        prefix = [
            frozen(bound["key"][name])
            for name in self._clustering
            if bound["key"][name] is not None or self._cql_names[name] in bound["empty_columns"]
        ]
        return tuple(prefix), bound["inclusive"]

    def rows(self, key: Mapping[str, Any], now_us: int | None = None) -> dict[RowKey, SeenRow]:
        """The rows of a partition that are there, at a time or as if nothing expired."""
        partition = self._partitions.get(frozen(key), Partition())
        found = {}
        for clustering, row in partition.rows.items():
            deleted_us = _latest(partition.deleted_us, row.deleted_us)
            for one in partition.ranges:
                if self._covers(one, clustering):
                    deleted_us = _latest(deleted_us, one.deleted_us)
            seen = self._seen(row, deleted_us, now_us)
            if seen.inserted or seen.cells or seen.collections:
                found[clustering] = seen
        return found

    def static(self, key: Mapping[str, Any], now_us: int | None = None) -> SeenRow:
        """A partition's static row."""
        partition = self._partitions.get(frozen(key), Partition())
        return self._seen(partition.static, partition.deleted_us, now_us)

    def _seen(self, row: Row, deleted_us: int | None, now_us: int | None) -> SeenRow:
        def dead_us(name: str) -> int | None:
            return _latest(deleted_us, self._forgotten_us.get(name))

        cells = {name: cell.value for name, cell in row.cells.items() if cell.is_live(dead_us(name), now_us)}
        collections = {name: one.live(dead_us(name), now_us) for name, one in row.collections.items()}
        ordered = {
            name: dict(sorted(elements.items(), key=_list_order)) if name in self._lists else elements
            for name, elements in collections.items()
            if elements
        }
        return SeenRow(cells, ordered, row.marker is not None and row.marker.is_live(deleted_us, now_us))

    def _covers(self, one: Range, clustering: RowKey) -> bool:
        before = one.start is not None and not self._is_behind(clustering, *one.start)
        beyond = one.end is not None and not self._is_behind(clustering, *one.end, reverse=True)
        return not (before or beyond)

    def _is_behind(
        self, clustering: RowKey, bound: tuple[Value, ...], inclusive: bool, *, reverse: bool = False
    ) -> bool:
        """Whether a row lies on the inner side of a bound; a prefix that equals the bound is the bound itself."""
        for name, value, limit in zip(self._clustering, clustering, bound, strict=False):
            if value == limit:
                continue
            # A zero-length value is null here and comes before all others.
            empty = value is None or limit is None
            greater = limit is None if empty else bool(self._compare(name, value) > self._compare(name, limit))
            return greater ^ (name in self._descending) ^ reverse
        return inclusive


def _elements(change: Mapping[str, Any], *, is_set: bool) -> list[tuple[Value, Value | None]]:
    """Element keys with their new values; None kills."""
    if "fields" in change:
        fields = change["fields"].items()
        return [(name, frozen(one["value"])) for name, one in fields if one is not None]
    added = [(frozen(one), True) if is_set else (frozen(one["key"]), frozen(one["value"])) for one in change["added"]]
    return added + [(frozen(one), None) for one in change["removed"]]


def _list_order(element: tuple[str, Value]) -> tuple[int, bytes]:
    """By the key's time, then by its last 8 bytes as signed ones."""
    key = UUID(element[0])
    return key.time, bytes(byte ^ 0x80 for byte in key.bytes[8:])


def _columns_of(kind_of_type: str, columns: list[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the columns of a kind of type; a type that is used again stands there by its name."""
    described: set[str] = set()
    found: set[str] = set()
    for column in columns:
        _null, kind = column["type"]
        if isinstance(kind, dict):
            if not kind.get("cqlType", "").startswith(kind_of_type):
                continue
            described.add(kind["name"])
            kind = kind["name"]
        if kind in described:
            found.add(column["name"])
    return frozenset(found)


def _latest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
