"""Whether the conditions of a lightweight transaction hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from sandbox.cql.literals import Serializer
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Conditions, Element, Field, Relation
from sandbox.cql.parser.terms import ListTerm, TupleTerm
from sandbox.scylla.base.state import BaseRow
from schemas.cql.table import TableSchema
from schemas.cql.types import CqlType, MapType, UdtType

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def holds(
    conditions: Conditions,
    table_schema: TableSchema,
    row: BaseRow | None,
    static: BaseRow | None,
    serializer: Serializer,
) -> bool:
    """Whether all conditions hold for a row.

    Args:
        conditions: the conditions, with their markers bound.
        table_schema: the row's table.
        row: the row; None if it does not exist, or if the statement writes only static columns.
        static: the partition's static row.
        serializer: serializer of the table's values.

    Raises:
        CqlError: the simulator does not support a condition.
    """
    if conditions.exists is not None and conditions.exists != (row is not None):
        return False
    return all(_holds(relation, table_schema, row, static, serializer) for relation in conditions.relations)


def _holds(
    relation: Relation,
    table_schema: TableSchema,
    row: BaseRow | None,
    static: BaseRow | None,
    serializer: Serializer,
) -> bool:
    column = next((column for column in table_schema.values if (column.name,) == relation.columns), None)
    if column is None:
        raise CqlError(f"table {table_schema.full_name} has no column {relation.columns} for a condition")
    source = static if column in table_schema.statics else row
    cell, cql_type = None if source is None else source.cells.get(column.name), column.type
    elements = {} if source is None else source.collections.get(column.name, {})
    match relation.selector, column.type:
        case None, _ if elements:
            raise CqlError(f"a condition on the whole of {column.name!r} of type {column.type} is not understood")
        case Element(key), MapType(key_type, cql_type):
            cell = elements.get(serializer.value(key_type, key))
        case Field(name), UdtType() as udt:
            place, cql_type = serializer.field(udt, name)
            cell = elements.get(place.to_bytes(2, "big"))
        case None, _:
            pass
        case _:
            raise CqlError(f"a condition on {relation.selector!r} of {column.name!r} is not understood")
    return _compared(relation, cell, cql_type, serializer)


def _compared(relation: Relation, cell: bytes | None, cql_type: CqlType, serializer: Serializer) -> bool:
    if relation.operator == "in":
        if not isinstance(relation.value, TupleTerm | ListTerm):
            raise CqlError(f"IN needs a list, found {relation.value!r}")
        return any(serializer.cell(cql_type, value) == cell for value in relation.value.elements)
    wanted = serializer.cell(cql_type, relation.value)
    if relation.operator in ("=", "!="):
        return (cell == wanted) == (relation.operator == "=")
    if cell is None or wanted is None:
        return False
    order = serializer.order(cql_type)
    return _COMPARISONS[relation.operator](order(cell), order(wanted))
