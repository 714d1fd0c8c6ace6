from __future__ import annotations

import pickle

import pytest

from schemas.errors import (
    CellError,
    IncompatibleSchemaError,
    RegistryAccessError,
    RegistryError,
    SchemaError,
    UnregisteredSchemaError,
    UnsupportedTypeError,
)


@pytest.mark.parametrize(
    "error",
    [
        CellError("int", "must be 4 bytes long", 1, column="v"),
        CellError("int", "is null", None),
        UnsupportedTypeError("list<int>", table="ks.t", column="v"),
        RegistryError("no answer", retriable=True),
        IncompatibleSchemaError("refused", subject="t-value", rule="FULL", reason="no default"),
        RegistryAccessError("refused"),
        UnregisteredSchemaError("not there", subject="t-value"),
    ],
)
def test_pickling(error: SchemaError) -> None:
    """An error keeps its message and attributes on the way from a task to the driver."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert isinstance(copy, SchemaError)


def test_messages() -> None:
    """A cell's message names the column, its type, the reason and its length."""
    assert str(CellError("int", "must be 4 bytes long", 1, column="v")) == (
        "column 'v' of type int: must be 4 bytes long (1 byte)"
    )
    assert str(CellError("int", "is null", None)) == "cell of type int: is null (null)"
    assert str(UnsupportedTypeError("udt")) == "CQL type udt is not supported"
