"""Visitor over the CQL type tree. The Avro type, the decoder and the encoding code of a type are visitors."""

from __future__ import annotations

from typing import Generic, TypeVar

from schemas.cql.types import (
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
)
from schemas.errors import UnsupportedTypeError

T = TypeVar("T")


class TypeVisitor(Generic[T]):
    """A method for each kind of type. A kind whose method is not overridden is unsupported.

    A new kind of type needs a method in each visitor. A missing one raises an error when a table is compiled.
    """

    def native(self, cql_type: NativeType) -> T:
        """Handle a scalar."""
        raise UnsupportedTypeError(str(cql_type))

    def list_(self, cql_type: ListType) -> T:
        """Handle a list."""
        raise UnsupportedTypeError(str(cql_type))

    def set_(self, cql_type: SetType) -> T:
        """Handle a set."""
        raise UnsupportedTypeError(str(cql_type))

    def map_(self, cql_type: MapType) -> T:
        """Handle a map."""
        raise UnsupportedTypeError(str(cql_type))

    def tuple_(self, cql_type: TupleType) -> T:
        """Handle a tuple."""
        raise UnsupportedTypeError(str(cql_type))

    def vector(self, cql_type: VectorType) -> T:
        """Handle a vector."""
        raise UnsupportedTypeError(str(cql_type))

    def udt(self, cql_type: UdtType) -> T:
        """Handle a user-defined type."""
        raise UnsupportedTypeError(str(cql_type))

    def frozen(self, cql_type: FrozenType) -> T:
        """Handle a frozen type like the type inside, because both serialize to the same bytes."""
        return visit(cql_type.inner, self)


def visit(cql_type: CqlType, visitor: TypeVisitor[T]) -> T:
    """Call the visitor's method for the root of a type. The method visits inner types itself if it needs them.

    Raises:
        UnsupportedTypeError: the visitor does not handle the kind, or a user-defined type has no fields because
            `schemas.cql.types.resolve` did not add them.
    """
    match cql_type:
        case NativeType():
            return visitor.native(cql_type)
        case ListType():
            return visitor.list_(cql_type)
        case SetType():
            return visitor.set_(cql_type)
        case MapType():
            return visitor.map_(cql_type)
        case TupleType():
            return visitor.tuple_(cql_type)
        case VectorType():
            return visitor.vector(cql_type)
        case UdtType():
            if not cql_type.fields:
                raise UnsupportedTypeError(f"{cql_type} (its fields are not known)")
            return visitor.udt(cql_type)
        case FrozenType():
            return visitor.frozen(cql_type)
