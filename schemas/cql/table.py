"""The description of one CQL table: its columns with their kinds and types.

`TableSchema.to_json` gives a canonical text, which looks like::

    {"columns":[{"kind":"partition_key","name":"pk","position":0,"type":"int"},
                {"descending":true,"kind":"clustering","name":"ck","position":0,"type":"int"},
                {"kind":"regular","name":"v","position":-1,"type":"frozen<address>"}],
     "keyspace":"ks","name":"t","types":{"address":[["street","text"],["zip","int"]]},"v":1}

(on one line, with sorted keys; ``descending`` only where it is true).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Final

from schemas.cql.types import CqlType, NativeType, UdtType, user_types
from schemas.errors import TableSchemaError

LOG_TABLE_SUFFIX: Final = "_scylla_cdc_log"
"""The name of a CDC log table is the base table's name and this suffix (spec section 1.1)."""

_FORMAT_VERSION: Final = 1


class ColumnKind(Enum):
    """The kind of a column; the values are those of ``system_schema.columns.kind``."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


_KIND_ORDER = {kind: order for order, kind in enumerate(ColumnKind)}
_KEY_KINDS = frozenset({ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a base table.

    Attributes:
        name: its CQL name, without quotes.
        type: its CQL type.
        kind: its kind.
        position: its place from 0 in the partition key or the clustering key; -1 for static and regular columns, as in
            ``system_schema.columns``.
        descending: whether a clustering column is in descending order.

    Raises:
        TableSchemaError: the name is empty, or the position or the order does not fit the kind.
    """

    name: str
    type: CqlType
    kind: ColumnKind
    position: int = -1
    descending: bool = False

    def __post_init__(self) -> None:
        """Check the name and the position."""
        if not self.name:
            raise TableSchemaError("a column has an empty name")
        if (self.kind in _KEY_KINDS) != (self.position >= 0) or self.position < -1:
            wanted = "0 or more" if self.kind in _KEY_KINDS else "-1"
            raise TableSchemaError(
                f"column {self.name!r}: position of a {self.kind.value} column must be {wanted}, not {self.position}"
            )
        if self.descending and self.kind is not ColumnKind.CLUSTERING:
            raise TableSchemaError(f"column {self.name!r}: only a clustering column is descending")

    @property
    def is_hidden(self) -> bool:
        """Whether the column is the hidden one of COMPACT STORAGE, which CQL does not show and the log lacks."""
        return isinstance(self.type, NativeType) and self.type.is_hidden


def _canonical_order(column: Column) -> tuple[int, int, bytes]:
    return _KIND_ORDER[column.kind], column.position, column.name.encode()


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A base table. It is hashable, and equality does not depend on the order in which the columns are given.

    Attributes:
        keyspace: CQL name of the keyspace.
        name: CQL name of the table.
        columns: partition key and clustering key by position, then static and regular columns by name bytes.
        partial_clustering: whether rows may lack trailing clustering columns, as in a table WITH COMPACT STORAGE that
            has several.

    Raises:
        TableSchemaError: there is no partition key, key positions have gaps, names occur twice, there are static
            columns but no clustering columns, or a user-defined type occurs in two versions; names the table.
    """

    keyspace: str
    name: str
    columns: tuple[Column, ...]
    partial_clustering: bool = False

    def __post_init__(self) -> None:
        """Sort the columns and check them."""
        object.__setattr__(self, "columns", tuple(sorted(self.columns, key=_canonical_order)))
        if not self.keyspace or not self.name:
            raise self._error("keyspace and table need a name")
        doubled = sorted(name for name, count in Counter(map(attrgetter("name"), self.columns)).items() if count > 1)
        if doubled:
            raise self._error(f"columns named twice: {', '.join(doubled)}")
        if not self.partition_key:
            raise self._error("no partition key column")
        for kind in sorted(_KEY_KINDS, key=_KIND_ORDER.__getitem__):
            positions = [column.position for column in self._of(kind)]
            if positions != list(range(len(positions))):
                raise self._error(f"positions of the {kind.value} columns are {positions}, not 0, 1, 2, ...")
        if self.statics and not self.clustering:
            raise self._error(f"static column {self.statics[0].name!r} in a table without clustering columns")
        known: dict[str, UdtType] = {}
        for udt in self._user_types():
            if known.setdefault(udt.name, udt) != udt:
                raise self._error(f"the user-defined type {udt.name!r} has different fields in different columns")

    def _user_types(self) -> Iterator[UdtType]:
        for column in self.columns:
            yield from user_types(column.type)

    def _error(self, reason: str) -> TableSchemaError:
        return TableSchemaError(f"table {self.keyspace}.{self.name}: {reason}")

    def _of(self, kind: ColumnKind) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind is kind)

    @property
    def full_name(self) -> str:
        """``keyspace.table`` without quotes, for messages."""
        return f"{self.keyspace}.{self.name}"

    @property
    def partition_key(self) -> tuple[Column, ...]:
        """Partition key columns by position."""
        return self._of(ColumnKind.PARTITION_KEY)

    @property
    def clustering(self) -> tuple[Column, ...]:
        """Clustering columns by position."""
        return self._of(ColumnKind.CLUSTERING)

    @property
    def statics(self) -> tuple[Column, ...]:
        """Static columns by name bytes."""
        return self._of(ColumnKind.STATIC)

    @property
    def regulars(self) -> tuple[Column, ...]:
        """Regular columns by name bytes, with the hidden one of COMPACT STORAGE."""
        return self._of(ColumnKind.REGULAR)

    @property
    def values(self) -> tuple[Column, ...]:
        """Static and regular columns together by name bytes, without the hidden one."""
        visible = (column for column in (*self.statics, *self.regulars) if not column.is_hidden)
        return tuple(sorted(visible, key=lambda column: column.name.encode()))

    @property
    def log_table(self) -> str:
        """Name of the CDC log table, which is in the same keyspace."""
        return self.name + LOG_TABLE_SUFFIX

    def to_json(self) -> str:
        """Return the canonical JSON text: equal tables give equal text, and different tables different text."""
        columns = [
            {
                "name": column.name,
                "type": str(column.type),
                "kind": column.kind.value,
                "position": column.position,
                **({"descending": True} if column.descending else {}),
            }
            for column in self.columns
        ]
        types = {udt.name: [(name, str(one)) for name, one in udt.fields] for udt in self._user_types() if udt.fields}
        form = {
            "v": _FORMAT_VERSION,
            "keyspace": self.keyspace,
            "name": self.name,
            "columns": columns,
            "types": types,
            **({"partial_clustering": True} if self.partial_clustering else {}),
        }
        return json.dumps(form, sort_keys=True, separators=(",", ":"))
