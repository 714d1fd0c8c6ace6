"""Checks the schema registry, and that it accepts or holds the schemas of every table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bridge.adapters.connect import Report, call_registry, open_registry
from bridge.adapters.registry import registration
from bridge.config.document import BridgeConfig
from bridge.errors import RetriableError, StartupError
from schemas.cql.table import TableSchema


def check_schemas(
    config: BridgeConfig, tables: Sequence[TableSchema], report: Report, patience_s: float
) -> tuple[str, ...]:
    """Check the registry and the schemas of some tables; register nothing.

    Returns:
        A line for each schema that the registry refuses, or that is missing while the job may not register it.

    Raises:
        StartupError: the registry does not answer in time, or refuses.
    """
    problems = []
    registry = open_registry(config, report=report, patience_s=patience_s)
    try:
        report(f"Schema registry at {registry.address} answers")
        for table in tables:
            for needed in registration.needed_by(config, table):
                try:
                    call_registry(partial(registration.check, registry, config.registry, needed))
                except (StartupError, RetriableError) as error:
                    problems.append(f"{needed.table}: {error}")
    finally:
        registry.close()
    return tuple(problems)
