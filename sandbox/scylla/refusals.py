"""The schema statements that ScyllaDB refuses because of CDC (spec section 1.5) or an unknown type. Pure.

Messages and codes are the server's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeVar

from sandbox.scylla.cluster.acceptance import SimulatorRefusal
from sandbox.scylla.log.log_table import CdcOptions
from schemas.cql.table import LOG_TABLE_SUFFIX, TableSchema

INVALID: Final = 0x2200
"""Code of an invalid request in CQL's protocol."""
CONFIGURATION: Final = 0x2300
"""Code of an invalid option."""
UNAUTHORIZED: Final = 0x2100
"""Code of an unauthorized request."""

DROP_LEEWAY_S: Final = 5
"""How far in the future a log's column counts as dropped: until then its name can't be used again (since 2025.4)."""

T = TypeVar("T")
Preimage = Literal["false", "true", "full"]
Delta = Literal["full", "keys"]

_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_PREIMAGES: Final[Mapping[str, Preimage]] = {
    "true": "true",
    "1": "true",
    "false": "false",
    "0": "false",
    "full": "full",
}
_DELTAS: Final[Mapping[str, Delta]] = {"full": "full", "keys": "keys"}


class SchemaRefusal(SimulatorRefusal):
    """The simulated server refuses a schema statement; nothing was changed.

    Attributes:
        code: the error's code in CQL's protocol.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def cdc_options_of(values: Mapping[str, str]) -> CdcOptions:
    """Parse the map literal of a `cdc` option. Missing entries have their defaults (spec section 1.4).

    Raises:
        SchemaRefusal: an option or its value is unknown.
    """
    options = CdcOptions(enabled=False)
    for name, text in values.items():
        match name.lower():
            case "enabled":
                options = replace(options, enabled=_chosen(name, text, _BOOLEANS))
            case "preimage":
                options = replace(options, preimage=_chosen(name, text, _PREIMAGES))
            case "postimage":
                options = replace(options, postimage=_chosen(name, text, _BOOLEANS))
            case "delta":
                options = replace(options, delta=_chosen(name, text, _DELTAS))
            case "ttl":
                options = replace(options, ttl_s=_ttl_s(text))
            case "enable_requested" | "tablet_merge_blocked":
                # Since 2026.2, for ScyllaDB's own use.
                _chosen(name, text, _BOOLEANS)
            case _:
                raise SchemaRefusal(CONFIGURATION, f"Invalid CDC option: {name}")
    return options


def check_capture(table_schema: TableSchema, *, name_is_taken: bool = False, is_active_log: bool = False) -> None:
    """Check that a table can be captured.

    Args:
        table_schema: the table.
        name_is_taken: whether a table that is no CDC log has the name of its log.
        is_active_log: whether it is itself the log of a captured table.

    Raises:
        SchemaRefusal: the table cannot be captured.
    """
    name = table_schema.full_name
    if is_active_log:
        raise SchemaRefusal(
            INVALID, f"Cannot create a CDC log for a table {name}, because creating nested CDC logs is not allowed"
        )
    if any(str(column.type) == "counter" for column in table_schema.columns):
        raise SchemaRefusal(INVALID, f"Cannot create CDC log for table {name}. Counter support not implemented")
    if name_is_taken:
        raise SchemaRefusal(
            INVALID,
            f"Cannot create CDC log table for table {name} because a table of name "
            f"{table_schema.keyspace}.{table_schema.log_table} already exists",
        )


def view_on_log() -> SchemaRefusal:
    """The refusal of a materialized view on a log."""
    return SchemaRefusal(INVALID, "Materialized views cannot be created on CDC Log tables")


def captured_view() -> SchemaRefusal:
    """The refusal of a materialized view's cdc option."""
    return SchemaRefusal(INVALID, "Cannot enable CDC for a materialized view")


def captured_tablets(keyspace: str, table: str) -> SchemaRefusal:
    """The refusal of CDC for a table with tablets, before 2025.4."""
    return SchemaRefusal(
        INVALID,
        f"Cannot create CDC log for a table {keyspace}.{table}, because keyspace uses tablets. See issue #16317.",
    )


def altered_log() -> SchemaRefusal:
    """The refusal to alter a log's columns, whether its table is captured or not."""
    return SchemaRefusal(INVALID, "You cannot modify the set of columns of a CDC log table directly.")


def dropped_log(keyspace: str, log_table: str) -> SchemaRefusal:
    """The refusal to drop a captured table's log."""
    return SchemaRefusal(UNAUTHORIZED, f"Cannot DROP cdc log table {keyspace}.{log_table}")


def dropped_too_recently(column: str, wait_s: int) -> SchemaRefusal:
    """The refusal to add a column again too soon after its drop."""
    return SchemaRefusal(
        INVALID,
        f"Cannot add column {column} because a column with the same name was dropped too recently. "
        f"Please retry after {wait_s} seconds",
    )


def unknown_type(keyspace: str, user_type: str) -> SchemaRefusal:
    """The refusal of a column or field whose user-defined type does not exist."""
    return SchemaRefusal(INVALID, f"Unknown type {keyspace}.{user_type}")


def base_of(log_table: str) -> str | None:
    """Return the base table's name if the name is that of a log table, else None."""
    return log_table.removesuffix(LOG_TABLE_SUFFIX) if log_table.endswith(LOG_TABLE_SUFFIX) else None


def _chosen(name: str, text: str, known: Mapping[str, T]) -> T:
    found = known.get(text.lower())
    if found is None:
        raise SchemaRefusal(CONFIGURATION, f'Invalid value for CDC option "{name}": {text}')
    return found


def _ttl_s(text: str) -> int:
    try:
        ttl_s = int(text)
    except ValueError as error:
        raise SchemaRefusal(CONFIGURATION, f'Invalid value for CDC option "ttl": {text}') from error
    if ttl_s < 0:
        raise SchemaRefusal(CONFIGURATION, "Invalid CDC option: ttl must be >= 0")
    return ttl_s
