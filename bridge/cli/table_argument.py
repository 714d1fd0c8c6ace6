"""Finds the configured table that an argument TABLE names."""

from __future__ import annotations

import argparse

from bridge.config.document import BridgeConfig, TableSettings
from bridge.errors import StartupError
from schemas.cql.names import shown_table


def cql_table_name(table: TableSettings) -> str:
    """Return `keyspace.table`, quoted where CQL needs it."""
    return shown_table(table.keyspace, table.table)


def find_table(config: BridgeConfig, arguments: argparse.Namespace) -> TableSettings:
    """Return the table that `arguments.table` names, quoted as in CQL or without quotes.

    Raises:
        StartupError: the configuration has no such table.
    """
    for table in config.tables:
        if arguments.table in (table.name, cql_table_name(table), f"{table.keyspace}.{table.table}"):
            return table
    configured = ", ".join(map(cql_table_name, config.tables))
    raise StartupError(f"table {arguments.table} is not among the tables of {arguments.config}: {configured}")
