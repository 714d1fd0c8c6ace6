"""Runs all checks of servers and tables, and reports their problems together. Writes nothing anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from bridge.adapters import kubernetes
from bridge.adapters.connect import Report
from bridge.cli.preflight import advice, kafka, registry, spark_cluster
from bridge.cli.preflight.tables import CheckedTables, check_tables
from bridge.config.document import BridgeConfig
from bridge.errors import StartupError
from schemas.cql.table import TableSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of the checks.

    Attributes:
        tables: the schema of each configured table, in the order of the configuration.
        nodes: number of known ScyllaDB nodes.
    """

    tables: tuple[TableSchema, ...]
    nodes: int


def check_all(
    config: BridgeConfig,
    *,
    report: Report,
    warn: Report | None = None,
    resuming: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Preflight:
    """Check ScyllaDB, Kafka, the registry, Spark's cluster and every table.

    The checks try servers that do not answer again for `startup.patience_s` in total, and each server at least once.

    Args:
        config: the job's configuration.
        report: gets a line for each failed attempt, for each server that answers, and for each piece of advice.
        warn: gets a line for each secret that is sent unencrypted, for an open network between Spark's processes, and
            for each keyspace whose changes may be missed; None for `report`.
        resuming: whether to accept a table with CDC off if its changes were published before. The job then publishes
            what the log still holds.
        clock: returns monotonic seconds.

    Raises:
        StartupError: there are problems; the message has a line for each.
    """
    deadline_s = clock() + config.startup.patience_s
    _report_advice(config, report, warn or report)
    problems: list[str] = []

    def attempt(check: Callable[[float], T]) -> T | None:
        try:
            return check(max(0.0, deadline_s - clock()))
        except StartupError as error:
            problems.append(str(error))
            return None

    found = attempt(lambda left_s: check_tables(config, report, warn or report, left_s)) or CheckedTables()
    problems += found.problems
    admin = attempt(lambda left_s: kafka.check_kafka(config, report, left_s))
    for table, problem in found.cdc_off:
        if resuming and admin is not None and kafka.has_progress(config, admin, table):
            report(f"{problem}. The job publishes what its log still holds")
        else:
            problems.append(problem)
    problems += attempt(lambda left_s: registry.check_schemas(config, found.schemas, report, left_s)) or ()
    check_cluster = _cluster_check(config)
    if check_cluster is not None:
        attempt(lambda left_s: check_cluster(config, report, left_s))
    if problems:
        raise StartupError("\n".join(problems))
    return Preflight(found.schemas, found.nodes)


def _report_advice(config: BridgeConfig, report: Report, warn: Report) -> None:
    for warning in (*advice.find_unencrypted_secrets(config), *advice.find_open_network(config)):
        warn(warning)
    for line in advice.find_future_starts(config, datetime.now(UTC)):
        report(line)


def _cluster_check(config: BridgeConfig) -> Callable[[BridgeConfig, Report, float], None] | None:
    """Return the check for the cluster that Spark's executors run on; None if there is nothing to check."""
    if config.spark.master.startswith(spark_cluster.STANDALONE):
        return spark_cluster.check_master
    if config.spark.master.startswith(spark_cluster.KUBERNETES) and kubernetes.ACCOUNT.exists():
        return spark_cluster.check_pod_rights
    return None
