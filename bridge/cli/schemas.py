"""The command `schemas`: prints the tables' Avro schemas, and registers them if asked to."""

from __future__ import annotations

import argparse
from functools import partial

from bridge.adapters.connect import call_registry, open_registry, open_scylla
from bridge.adapters.registry import registration
from bridge.adapters.scylla.change_log import ChangeLog
from bridge.cli.output import print_line, print_notice
from bridge.cli.table_argument import find_table
from bridge.config.file import loader


def run(arguments: argparse.Namespace) -> int:
    """Print the schemas for the tables as they are in ScyllaDB now; with `--register`, register them first.

    Raises:
        ConfigError: the file has problems.
        StartupError: a table is not configured or not captured, or a server refuses.
        RetriableError: a server does not answer.
    """
    config = loader.load(arguments.config)
    tables = config.tables if arguments.table is None else (find_table(config, arguments),)
    session = open_scylla(config, report=print_notice, patience_s=0)
    try:
        log = ChangeLog(session)
        found = [log.check_captured(table.keyspace, table.table) for table in tables]
    finally:
        session.close()
    needed = [schema for table in found for schema in registration.needed_by(config, table)]
    if not arguments.register:
        for schema in needed:
            print_line(schema.as_json() if arguments.json else schema.as_text())
        return 0
    registry = open_registry(config, report=print_notice, patience_s=0)
    try:
        for schema in needed:
            schema_id = call_registry(partial(registry.register, schema.subject, schema.schema_text))
            print_line(schema.as_json(schema_id) if arguments.json else f"{schema.subject}: id {schema_id}")
    finally:
        registry.close()
    return 0
