"""The shapes of the value record: what a change looks like to a consumer.

A shape is one module with one object, a `Shape`. It chooses and arranges the parts that ``schemas.avro.records``
(schemas) and ``schemas.log.change_records`` (values) provide. To add a shape, write its module, register it in
`SHAPES`, and add its name to ``schemas.options.ShapeName``. The command `consume` prints a shape with the fields of
another one as it is; other fields need a renderer in `bridge/encoding/json_changes.py`, listed in
`bridge/cli/record_documents.py`.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import OutputError
from schemas.shapes.debezium import DEBEZIUM
from schemas.shapes.delta import DELTA
from schemas.shapes.flat import FLAT
from schemas.shapes.full import FULL
from schemas.shapes.shape import Shape

__all__ = ["SHAPES", "Shape", "shape_of"]

SHAPES: Final[dict[str, Shape]] = {shape.name: shape for shape in (DELTA, FULL, DEBEZIUM, FLAT)}
"""Name -> shape, in the order in which documents list them."""


def shape_of(name: str) -> Shape:
    """Return the shape of a name.

    Raises:
        OutputError: there is no such shape.
    """
    shape = SHAPES.get(name)
    if shape is None:
        raise OutputError(f"there is no output shape {name!r}; known are {', '.join(SHAPES)}")
    return shape
