"""What was written: the changes that a bridge must deliver, each once and in order.

The file form is one JSON object a line (bytes as hex, absent columns absent, null cells null), for example:

```
{"k":"shop","t":"orders","p":["00000001"],"c":["0000002a"],"o":2,"x":{"total":"00000007","note":null},
 "l":null,"s":"7f..01","u":"1c..db","w":1700000000000001,"b":0,"e":true,"g":1700000000000}
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from bridge.local.simulator.ordering import Key
from bridge.model.times import UnixMicros, UnixMillis, sort_key

TableKey = tuple[str, str, Key]
"""Keyspace, table and partition key: within one of these the order of changes is fixed."""


class ExpectedChange(NamedTuple):
    """One change that was written and acknowledged; a tuple, for bulk loads make them by the million.

    Attributes:
        keyspace: of the base table.
        table: the base table.
        partition_key: its cells, serialized, by position.
        clustering: the clustering columns' cells, by position; None where the log has null.
        operation: `cdc$operation`.
        columns: serialized cells by column; None was set to null; columns that were left alone are absent.
        ttl_s: `cdc$ttl`; None is null.
        stream_id: 16 bytes.
        time: `cdc$time`, 16 bytes.
        timestamp_us: the microseconds inside `time`.
        batch_seq_no: `cdc$batch_seq_no`.
        last_in_group: whether `cdc$end_of_batch` is true.
        generation_ms: timestamp of the generation that the stream belongs to.
    """

    keyspace: str
    table: str
    partition_key: Key
    clustering: tuple[bytes | None, ...]
    operation: int
    columns: Mapping[str, bytes | None]
    ttl_s: int | None
    stream_id: bytes
    time: bytes
    timestamp_us: UnixMicros
    batch_seq_no: int
    last_in_group: bool
    generation_ms: UnixMillis

    @property
    def key(self) -> TableKey:
        """Whose order this change belongs to."""
        return (self.keyspace, self.table, self.partition_key)

    @property
    def order(self) -> tuple[UnixMillis, bytes, int]:
        """Its place among the changes of its key: generation, `cdc$time` as the server orders it, number."""
        return (self.generation_ms, sort_key(self.time), self.batch_seq_no)

    def to_json(self) -> str:
        """One line of the file form, without the line's end."""
        form = {
            "k": self.keyspace,
            "t": self.table,
            "p": [cell.hex() for cell in self.partition_key],
            "c": [_hex(cell) for cell in self.clustering],
            "o": self.operation,
            "x": {name: _hex(cell) for name, cell in self.columns.items()},
            "l": self.ttl_s,
            "s": self.stream_id.hex(),
            "u": self.time.hex(),
            "w": self.timestamp_us,
            "b": self.batch_seq_no,
            "e": self.last_in_group,
            "g": self.generation_ms,
        }
        return json.dumps(form, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> ExpectedChange:
        """Read what `to_json` wrote.

        Raises:
            ValueError, KeyError: the line is not of that form.
        """
        form: dict[str, Any] = json.loads(line)
        return cls(
            form["k"],
            form["t"],
            tuple(bytes.fromhex(cell) for cell in form["p"]),
            tuple(_bytes(cell) for cell in form["c"]),
            form["o"],
            {name: _bytes(cell) for name, cell in form["x"].items()},
            form["l"],
            bytes.fromhex(form["s"]),
            bytes.fromhex(form["u"]),
            UnixMicros(form["w"]),
            form["b"],
            form["e"],
            UnixMillis(form["g"]),
        )


def _hex(cell: bytes | None) -> str | None:
    return None if cell is None else cell.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class Oracle:
    """Collects changes in the order in which they were acknowledged; in memory, or in a file only.

    Not thread-safe. In memory a change of five columns takes some 0.8 kB.
    """

    def __init__(self, sink: IO[str] | None = None) -> None:
        """Keep changes in memory, or write each as a line to `sink` (the caller's to close) and forget it."""
        self._sink = sink
        self._changes: list[ExpectedChange] = []
        self._count = 0

    def __len__(self) -> int:
        """Changes appended, kept or not."""
        return self._count

    def __iter__(self) -> Iterator[ExpectedChange]:
        """The changes that are kept, in the order of `append`."""
        return iter(self._changes)

    def append(self, change: ExpectedChange) -> None:
        """Take one more change."""
        self._count += 1
        if self._sink is None:
            self._changes.append(change)
        else:
            self._sink.write(change.to_json() + "\n")

    def extend(self, changes: Iterable[ExpectedChange]) -> None:
        """Take several."""
        for change in changes:
            self.append(change)

    def by_key(self) -> dict[TableKey, list[ExpectedChange]]:
        """The changes of each base partition in the order in which a bridge must deliver them."""
        found: dict[TableKey, list[ExpectedChange]] = {}
        for change in self._changes:
            found.setdefault(change.key, []).append(change)
        for changes in found.values():
            changes.sort(key=lambda change: change.order)
        return found

    def dump(self, path: Path) -> None:
        """Write the kept changes as JSON lines."""
        with path.open("w", encoding="utf-8") as lines:
            lines.writelines(change.to_json() + "\n" for change in self._changes)

    @classmethod
    def load(cls, path: Path) -> Oracle:
        """Read a file of JSON lines into memory.

        Raises:
            OSError, ValueError, KeyError: there is no such file, or it is not of that form.
        """
        oracle = cls()
        with path.open(encoding="utf-8") as lines:
            oracle.extend(ExpectedChange.from_json(line) for line in lines)
        return oracle
