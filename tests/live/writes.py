"""Random INSERT, UPDATE and DELETE statements on one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.live.cql_types import Elements, Map, Udt, maybe_null
from tests.live.native_types import BIGINT, INT, TEXT
from tests.live.tables import Column, Table

_PARTITIONS: Final = 8
_VALUES_OF_A_KEY: Final = 5
_COMPARED: Final = (INT, TEXT)


@dataclass(frozen=True, slots=True)
class Using:
    """What follows USING; None is left out.

    Attributes:
        ttl_s: the time to live in s.
        stamp: text of the timestamp.
    """

    ttl_s: int | None = None
    stamp: str | None = None

    def clause(self, *, with_ttl: bool = True) -> str:
        """The clause with a space before it, or nothing."""
        parts = [] if self.stamp is None else [f"TIMESTAMP {self.stamp}"]
        if self.ttl_s is not None and with_ttl:
            parts.append(f"TTL {self.ttl_s}")
        return f" USING {' AND '.join(parts)}" if parts else ""


@dataclass(frozen=True, slots=True)
class Write:
    """A statement.

    Attributes:
        kind: a word for what it does.
        text: the CQL text without a semicolon.
        partitions: WHERE clauses of the written partitions.
        needs_read: whether the server refuses it, depending on what the table holds.
    """

    kind: str
    text: str
    partitions: tuple[str, ...]
    needs_read: bool = False


class TableWrites:
    """Generates statements on one table. Few keys, so that statements meet each other.

    Args:
        table: the table; its columns may change between statements.
        random: decides everything.
        list_elements: whether single elements of lists can be written.
    """

    def __init__(self, table: Table, random: Random, *, list_elements: bool) -> None:
        self.table = table
        self._random = random
        self._list_elements = list_elements
        self.keys = [[one.type.literal(random) for one in table.partition] for _ in range(_PARTITIONS)]
        self._pools = [[one.type.literal(random) for _ in range(_VALUES_OF_A_KEY)] for one in table.clustering]

    def lists_touched(self, text: str) -> bool:
        """Whether a statement may write a list."""
        lists = [one for one in self.table.values if isinstance(one.type, Elements) and one.type.kind == "list"]
        return any(one.quoted in text for one in lists) or " JSON " in text

    def write(self, using: Using, key: Sequence[str] | None = None, *, in_batch: bool = False) -> Write:
        """A statement without conditions.

        Args:
            using: the statement's TTL and timestamp.
            key: literals of the partition key; None for a random one.
            in_batch: whether the statement becomes part of a batch.
        """
        key = key or self._random.choice(self.keys)
        kinds: list[tuple[int, Callable[[Using, Sequence[str]], Write]]] = [
            (24, self.insert),
            (3, self._insert_json),
            (30, self.update),
            (6, self._delete_columns),
            (8, self.delete_row),
            (2, self._delete_partition),
        ]
        if self.table.clustering:
            kinds += [(6, self._delete_range), (3, self._delete_rows)]
        if self.table.statics:
            kinds += [(6, self._update_static), (3, self._insert_static)]
        if self._list_elements and not in_batch:
            kinds.append((3, self._list_element))
        weights, makers = zip(*kinds, strict=True)
        (make,) = self._random.choices(makers, weights)
        return make(using, key)

    def insert(self, using: Using, key: Sequence[str], *, condition: str = "") -> Write:
        """An INSERT of a row, with some of its columns or none."""
        names, values = self._named_key(key)
        columns = self._some(self.table.regular, least=0)
        if self._random.random() < 0.15:
            columns += self._some(self.table.statics, least=0)
        return self._insert(using, key, names, values, columns, condition)

    def _insert_static(self, using: Using, key: Sequence[str]) -> Write:
        names = [one.quoted for one in self.table.partition]
        return self._insert(using, key, names, list(key), self._some(self.table.statics))

    def _insert(
        self,
        using: Using,
        key: Sequence[str],
        names: list[str],
        values: list[str],
        columns: list[Column],
        condition: str = "",
    ) -> Write:
        names = names + [one.quoted for one in columns]
        values = values + [self._value(one) for one in columns]
        text = f"INSERT INTO {self.table.full_name} ({', '.join(names)}) VALUES ({', '.join(values)})"
        return self._made("insert", text + condition + using.clause(), key)

    def _insert_json(self, using: Using, key: Sequence[str]) -> Write:
        plain = (INT, BIGINT, TEXT)
        if any(one.type not in plain for one in self.table.key):
            return self.insert(using, key)
        _, values = self._named_key(key)
        columns = [one for one in self._some(self.table.regular, least=0) if one.type in plain]
        given = dict(zip(self.table.key, values, strict=True)) if self.table.clustering else {}
        given = given or dict(zip(self.table.partition, key, strict=True))
        document = {
            one.quoted: literal[1:-1].replace("''", "'") if one.type is TEXT else int(literal)
            for one, literal in (*given.items(), *((one, one.type.literal(self._random)) for one in columns))
        }
        default = self._random.choice(("", " DEFAULT UNSET", " DEFAULT NULL"))
        body = json.dumps(document, ensure_ascii=False).replace("'", "''")
        return self._made(
            "insert json", f"INSERT INTO {self.table.full_name} JSON '{body}'{default}{using.clause()}", key
        )

    def update(self, using: Using, key: Sequence[str], *, condition: str = "") -> Write:
        """An UPDATE of a row."""
        if not self.table.regular:
            return self.insert(using, key)
        where = self._where(key, self._row(several=not condition))
        return self._update(using, key, self._some(self.table.regular), where + condition)

    def _update_static(self, using: Using, key: Sequence[str]) -> Write:
        return self._update(using, key, self._some(self.table.statics), self._where(key))

    def _update(self, using: Using, key: Sequence[str], columns: list[Column], where: str) -> Write:
        parts = ", ".join(self._assignment(one) for one in columns)
        return self._made("update", f"UPDATE {self.table.full_name}{using.clause()} SET {parts}{where}", key)

    def _delete_columns(self, using: Using, key: Sequence[str]) -> Write:
        columns = self._some(self.table.regular)
        if not columns:
            return self.delete_row(using, key)
        targets = ", ".join(self._target(one) for one in columns)
        return self._delete(using, key, self._where(key, self._row()), f"{targets} ", "delete columns")

    def delete_row(self, using: Using, key: Sequence[str], *, condition: str = "") -> Write:
        """A DELETE of a row."""
        return self._delete(using, key, self._where(key, self._row()) + condition)

    def _delete_rows(self, using: Using, key: Sequence[str]) -> Write:
        return self._delete(using, key, self._where(key, self._row(several=True)))

    def _delete_partition(self, using: Using, key: Sequence[str]) -> Write:
        return self._delete(using, key, self._where(key), kind="delete partition")

    def _delete_range(self, using: Using, key: Sequence[str]) -> Write:
        columns, random = self.table.clustering, self._random
        if len(columns) > 1 and random.random() < 0.25:
            width = random.randint(2, len(columns))
            names = ", ".join(one.quoted for one in columns[:width])
            limits = [f"({', '.join(random.choice(pool) for pool in self._pools[:width])})" for _ in range(2)]
            return self._delete(using, key, self._where(key, self._slice(f"({names})", limits)), kind="delete range")
        length = random.randint(0, len(columns) - 1)
        prefix = [f"{one.quoted} = {random.choice(pool)}" for one, pool in zip(columns, self._pools, strict=True)]
        limits = [random.choice(self._pools[length]) for _ in range(2)]
        if length and random.random() < 0.3:
            return self._delete(using, key, self._where(key, prefix[:length]), kind="delete prefix")
        bounds = self._slice(columns[length].quoted, limits)
        return self._delete(using, key, self._where(key, prefix[:length] + bounds), kind="delete range")

    def _slice(self, name: str, limits: list[str]) -> list[str]:
        """One bound or two; two that contradict each other delete nothing."""
        lower = f"{name} {self._random.choice(('>', '>='))} {limits[0]}"
        upper = f"{name} {self._random.choice(('<', '<='))} {limits[1]}"
        return self._random.choice(([lower], [upper], [lower, upper], [lower, upper]))

    def _list_element(self, using: Using, key: Sequence[str]) -> Write:
        lists = [one for one in self.table.regular if isinstance(one.type, Elements) and one.type.kind == "list"]
        if not lists:
            return self.update(using, key)
        column = self._random.choice(lists)
        element, where = column.type.element.literal(self._random), self._where(key, self._row())
        place = self._random.randint(0, 2)
        sets = (f"{column.quoted}[{place}] = {element}", f"{column.quoted} = {column.quoted} - [{element}]")
        if self._random.random() < 0.3:
            made = self._delete(using, key, where, f"{column.quoted}[{place}] ", "list element")
        else:
            text = f"UPDATE {self.table.full_name}{using.clause()} SET {self._random.choice(sets)}{where}"
            made = self._made("list element", text, key)
        return Write(made.kind, made.text, made.partitions, needs_read=True)

    def conditional(self, using: Using, key: Sequence[str]) -> Write:
        """A statement with IF."""
        columns = [one for one in self.table.regular if one.type in _COMPARED]
        conditions = [" IF EXISTS"]
        if columns:
            column = self._random.choice(columns)
            literals = [column.type.literal(self._random) for _ in range(2)]
            conditions += [
                f" IF {column.quoted} = {maybe_null(column.type, self._random)}",
                f" IF {column.quoted} != {literals[0]}",
                f" IF {column.quoted} IN ({', '.join(literals)})",
            ]
        condition = self._random.choice(conditions)
        match self._random.choice(("insert", "update", "update", "delete")):
            case "insert":
                return self.insert(using, key, condition=" IF NOT EXISTS")
            case "update" if self.table.regular:
                return self.update(using, key, condition=condition)
            case _:
                return self.delete_row(Using(), key, condition=condition)

    def reset(self, partition: str) -> str:
        """A DELETE of a partition, after which it does not matter what of an earlier write took effect."""
        return f"DELETE FROM {self.table.full_name}{partition}"

    def _delete(
        self, using: Using, key: Sequence[str], where: str, targets: str = "", kind: str = "delete row"
    ) -> Write:
        clause = using.clause(with_ttl=False)
        return self._made(kind, f"DELETE {targets}FROM {self.table.full_name}{clause}{where}", key)

    def _made(self, kind: str, text: str, key: Sequence[str]) -> Write:
        return Write(kind, text, (self._where(key),))

    def _named_key(self, key: Sequence[str]) -> tuple[list[str], list[str]]:
        names = [one.quoted for one in self.table.key]
        return names, [*key, *(self._random.choice(pool) for pool in self._pools)]

    def _where(self, key: Sequence[str], rows: Sequence[str] = ()) -> str:
        relations = [f"{one.quoted} = {value}" for one, value in zip(self.table.partition, key, strict=True)]
        return f" WHERE {' AND '.join([*relations, *rows])}"

    def _row(self, *, several: bool = False) -> list[str]:
        relations = [
            f"{one.quoted} = {self._random.choice(pool)}"
            for one, pool in zip(self.table.clustering, self._pools, strict=True)
        ]
        if several and relations and self._random.random() < 0.2:
            chosen = ", ".join(self._random.sample(self._pools[-1], 2))
            relations[-1] = f"{self.table.clustering[-1].quoted} IN ({chosen})"
        return relations

    def _some(self, columns: Sequence[Column], least: int = 1) -> list[Column]:
        count = self._random.choice((least, 1, 2, 3, len(columns)))
        return self._random.sample(list(columns), min(count, len(columns)))

    def _value(self, column: Column) -> str:
        if column.type is INT and self._random.random() < 0.03:
            return "blobAsInt(0x)"
        return maybe_null(column.type, self._random)

    def _assignment(self, column: Column) -> str:
        name, kind, random = column.quoted, column.type, self._random
        choices = [f"{name} = {self._value(column)}"]
        match kind:
            case Elements(kind="set"):
                some, others = ("{" + ", ".join(kind.literals(random, 1)) + "}" for _ in range(2))
                choices += [f"{name} = {name} + {some}", f"{name} = {name} - {others}", f"{name} += {some}"]
            case Elements(kind="list"):
                some = "[" + ", ".join(kind.literals(random, 1)) + "]"
                choices += [f"{name} = {name} + {some}", f"{name} = {some} + {name}"]
            case Map(key=of_key, value=of_value):
                some = "{" + ", ".join(f"{key}: {value}" for key, value in kind.entries(random, 1)) + "}"
                gone = "{" + ", ".join(key for key, _ in kind.entries(random, 1)) + "}"
                choices += [
                    f"{name} = {name} + {some}",
                    f"{name} = {name} - {gone}",
                    f"{name}[{of_key.literal(random)}] = {maybe_null(of_value, random)}",
                ]
            case Udt():
                field, of_field = random.choice(kind.fields)
                choices += [f'{name}."{field}" = {maybe_null(of_field, random)}'] * 2
        return random.choice(choices)

    def _target(self, column: Column) -> str:
        """What a DELETE of a column names."""
        kind, choices = column.type, [column.quoted]
        match kind:
            case Elements(kind="set", element=element):
                choices.append(f"{column.quoted}[{element.literal(self._random)}]")
            case Map(key=of_key):
                choices.append(f"{column.quoted}[{of_key.literal(self._random)}]")
            case Udt():
                choices.append(f'{column.quoted}."{self._random.choice(kind.fields)[0]}"')
        return self._random.choice(choices)
