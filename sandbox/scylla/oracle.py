"""The written changes, which a bridge must deliver once each and in order.

The file form is one JSON object a line (bytes as hex, absent columns absent, null cells null, multi-cell columns as a
list of value, deleted flag and deleted elements; `r`, `i` and `j`, the end of a range and the images, only where there
are any), for example:

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

from bridge.model.times import UnixMicros, UnixMillis, sort_key
from sandbox.scylla.log.log_rows import CollectionDelta, LogCell, LogCells
from sandbox.scylla.values.ordering import Key

TableKey = tuple[str, str, Key]
"""Keyspace, table and partition key. The changes of one key have a fixed order."""


class RangeEnd(NamedTuple):
    """The second row of a range delete.

    Attributes:
        operation: `cdc$operation`, 7 or 8.
        clustering: as of `ExpectedChange`.
    """

    operation: int
    clustering: tuple[bytes | None, ...]


class ExpectedChange(NamedTuple):
    """One written and acknowledged change. A tuple, because bulk loads create millions.

    A change is one delta row of the log, or the two rows of a range delete, with the row's images from the same group.

    Attributes:
        keyspace: of the base table.
        table: the base table.
        partition_key: its cells, serialized, by position.
        clustering: the clustering columns' cells, by position; None where the log has null.
        operation: `cdc$operation`.
        columns: serialized cells by column; None was set to null; columns that were left alone are absent; of a
            multi-cell column what the log's three columns say.
        ttl_s: `cdc$ttl`; None is null.
        stream_id: 16 bytes.
        time: `cdc$time`, 16 bytes.
        timestamp_us: the microseconds inside `time`.
        batch_seq_no: `cdc$batch_seq_no`, of a range delete its first row's.
        last_in_group: whether no other change of the group follows.
        generation_ms: timestamp of the generation that the stream belongs to.
        range_end: of a range delete, its second row.
        before: the pre-image, if there is one: cells as the log has them, None where it raises the deleted flag;
            columns that it does not show are absent.
        after: the post-image, if there is one; null columns are absent.
    """

    keyspace: str
    table: str
    partition_key: Key
    clustering: tuple[bytes | None, ...]
    operation: int
    columns: LogCells
    ttl_s: int | None
    stream_id: bytes
    time: bytes
    timestamp_us: UnixMicros
    batch_seq_no: int
    last_in_group: bool
    generation_ms: UnixMillis
    range_end: RangeEnd | None = None
    before: Mapping[str, bytes | None] | None = None
    after: Mapping[str, bytes | None] | None = None

    @property
    def key(self) -> TableKey:
        """The key in whose order the change stands."""
        return (self.keyspace, self.table, self.partition_key)

    @property
    def order(self) -> tuple[UnixMillis, bytes, int]:
        """Sort key among the changes of the key: generation, `cdc$time` in the server's order, number."""
        return (self.generation_ms, sort_key(self.time), self.batch_seq_no)

    def to_json(self) -> str:
        """One line of the file form, without the line's end."""
        form: dict[str, Any] = {
            "k": self.keyspace,
            "t": self.table,
            "p": [cell.hex() for cell in self.partition_key],
            "c": [_hex(cell) for cell in self.clustering],
            "o": self.operation,
            "x": {name: _form(cell) for name, cell in self.columns.items()},
            "l": self.ttl_s,
            "s": self.stream_id.hex(),
            "u": self.time.hex(),
            "w": self.timestamp_us,
            "b": self.batch_seq_no,
            "e": self.last_in_group,
            "g": self.generation_ms,
        }
        if self.range_end is not None:
            form["r"] = [self.range_end.operation, [_hex(cell) for cell in self.range_end.clustering]]
        for name, image in (("i", self.before), ("j", self.after)):
            if image is not None:
                form[name] = {column: _hex(cell) for column, cell in image.items()}
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
            {name: _cell(cell) for name, cell in form["x"].items()},
            form["l"],
            bytes.fromhex(form["s"]),
            bytes.fromhex(form["u"]),
            UnixMicros(form["w"]),
            form["b"],
            form["e"],
            UnixMillis(form["g"]),
            RangeEnd(form["r"][0], tuple(_bytes(cell) for cell in form["r"][1])) if "r" in form else None,
            _image(form.get("i")),
            _image(form.get("j")),
        )


def _form(cell: LogCell) -> Any:
    if isinstance(cell, CollectionDelta):
        return [_hex(cell.value), cell.deleted, _hex(cell.deleted_elements)]
    return _hex(cell)


def _cell(form: Any) -> LogCell:
    return CollectionDelta(_bytes(form[0]), form[1], _bytes(form[2])) if isinstance(form, list) else _bytes(form)


def _image(form: dict[str, str | None] | None) -> dict[str, bytes | None] | None:
    return None if form is None else {name: _bytes(cell) for name, cell in form.items()}


def _hex(cell: bytes | None) -> str | None:
    return None if cell is None else cell.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class Oracle:
    """Collects changes in the order of their acknowledgement, in memory or in a file.

    Not thread-safe. A change of five columns takes about 0.8 kB of memory.
    """

    def __init__(self, sink: IO[str] | None = None) -> None:
        """Keep changes in memory, or write each as a line to `sink`, which the caller closes."""
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
        """The changes of each base partition, in the order of delivery."""
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
