"""The table `shop.orders` of the tests of shapes, and helpers for its changes."""

from __future__ import annotations

from typing import Any

from bridge.model.log_rows import Cells
from schemas.options import OutputOptions
from tests.unit.bridge.encoding.captured_table import Capture

HOME = "CREATE TYPE shop.home (street text, zip int)"


COLUMNS = (
    "customer int, line int, note text, tags set<text>, log list<text>, home home, vip boolean static, "
    "PRIMARY KEY (customer, line)"
)


IMAGES = {"none": "", "true": ", 'preimage': true", "full": ", 'preimage': 'full'"}


POST = ", 'postimage': true"


DEBEZIUM = OutputOptions(shape="debezium", name="orders-job")


FLAT = OutputOptions(shape="flat")


ROW = "WHERE customer = 7 AND line = 1"


FIRST = "INSERT INTO shop.orders (customer, line, note, tags) VALUES (7, 1, 'first', {'a'})"


def orders(images: str = "", output: OutputOptions = DEBEZIUM) -> Capture:
    return Capture(HOME, f"CREATE TABLE shop.orders ({COLUMNS}) WITH cdc = {{'enabled': true{images}}}", output=output)


def after(line: int | None = 1, **columns: Any) -> dict[str, Any]:
    names = ("note", "tags", "log", "home", "vip")
    return {"customer": 7, "line": line, **dict.fromkeys(names), **columns}


def event(capture: Capture, statement: str) -> Any:
    (found,) = capture.run(statement)
    return found.value


def replaced(capture: Capture, cells: Cells, column: str, cell: bytes | None) -> Cells:
    return tuple(cell if name == column else one for name, one in zip(capture.columns, cells, strict=True))
