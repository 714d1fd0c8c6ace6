"""The list of all output shapes.

To add a shape:

1. Write its module beside this one, with a subclass of ``schemas.shapes.base.Shape`` and one object of it.
2. Add the object to `SHAPES`.
3. Add its name to ``schemas.options.ShapeName``.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import OutputError
from schemas.shapes.base import Shape
from schemas.shapes.debezium import DEBEZIUM
from schemas.shapes.delta import DELTA
from schemas.shapes.flat import FLAT
from schemas.shapes.full import FULL

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
