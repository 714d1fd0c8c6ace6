"""Checks ScyllaDB, and that each table is captured and can be published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.adapters.connect import Report, open_scylla
from bridge.adapters.scylla.change_log import CdcOffError, ChangeLog
from bridge.adapters.scylla.stream_metadata import ONE_REPLICA
from bridge.config.document import BridgeConfig, TableSettings
from bridge.errors import BridgeError, RetriableError, StartupError
from bridge.planning.table_watch import CdcOptions
from schemas.cql.table import TableSchema
from schemas.errors import SchemaError
from schemas.record_schemas import key_schema, value_schema
from schemas.shapes.catalog import shape_of

_LOCAL_LEVELS: Final = frozenset({"LOCAL_QUORUM", "LOCAL_ONE"})
_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True)
class CheckedTables:
    """The result of the checks of ScyllaDB and its tables.

    Attributes:
        schemas: schemas of the tables without problems, in the order of the configuration.
        nodes: number of known nodes.
        problems: a line for each table with a problem.
        cdc_off: tables whose CDC is off but whose log still exists, with a line about it.
    """

    schemas: tuple[TableSchema, ...] = ()
    nodes: int = 0
    problems: tuple[str, ...] = ()
    cdc_off: tuple[tuple[TableSettings, str], ...] = ()


def check_tables(config: BridgeConfig, report: Report, warn: Report, patience_s: float) -> CheckedTables:
    """Check ScyllaDB and every table.

    Args:
        config: the job's configuration.
        report: gets a line for ScyllaDB, and for each piece of advice.
        warn: gets a line for each keyspace whose changes may be missed.
        patience_s: how long to try to connect.

    Raises:
        StartupError: ScyllaDB does not answer in time, or refuses.
    """
    session = open_scylla(config, report=report, patience_s=patience_s)
    try:
        nodes = session.node_count
        report(f"ScyllaDB at {session.address} answers ({nodes} node{'' if nodes == 1 else 's'} known)")
        if nodes > 1 and config.scylla.metadata_consistency in ONE_REPLICA:
            report(
                f"scylla.metadata_consistency: {config.scylla.metadata_consistency} is replaced by QUORUM, because a "
                "node that lags behind the others would hide a generation"
            )
        log = ChangeLog(session)
        for keyspace in dict.fromkeys(table.keyspace for table in config.tables):
            for line in find_distant_writers(config, keyspace, _replicas(log, keyspace)):
                warn(line)
        schemas: list[TableSchema] = []
        problems: list[str] = []
        cdc_off: list[tuple[TableSettings, str]] = []
        for table in config.tables:
            try:
                schema, off = _read_schema(log, table)
                if off is not None:
                    cdc_off.append((table, off))
                _check_table(config, table, log, schema, report)
            except RetriableError as error:
                raise StartupError(str(error)) from error
            except (BridgeError, SchemaError) as error:
                problems.append(str(error))
            else:
                schemas.append(schema)
    finally:
        session.close()
    return CheckedTables(tuple(schemas), nodes, tuple(problems), tuple(cdc_off))


def find_distant_writers(config: BridgeConfig, keyspace: str, replicas: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning if reads may miss what is written in another data center.

    Args:
        config: the job's configuration.
        keyspace: its name.
        replicas: how many it has in each data center.
    """
    if len(replicas) < _SEVERAL or config.scylla.consistency not in _LOCAL_LEVELS:
        return
    centers = ", ".join(f"{name}: {count}" for name, count in replicas.items())
    yield (
        f"keyspace {keyspace} has replicas in {len(replicas)} data centers ({centers}), and scylla.consistency is "
        f"{config.scylla.consistency}: a change that is written with LOCAL_QUORUM in another data center and arrives "
        f"after {config.reading.confidence_ms / 1000:g} s (reading.confidence_ms) is missed. Write with EACH_QUORUM, "
        "or write and read with QUORUM, or set reading.confidence_ms to the longest interruption between data centers "
        "that must lose nothing (docs/deployment.md)"
    )


def _replicas(log: ChangeLog, keyspace: str) -> dict[str, int]:
    try:
        return log.replicas_by_data_center(keyspace)
    except RetriableError as error:
        raise StartupError(str(error)) from error


def check_ttl(options: CdcOptions | None, confidence_ms: int, table: str) -> None:
    """Check that the log keeps changes for longer than the confidence window.

    Raises:
        StartupError: it does not, so every change would expire before it is read.
    """
    ttl_s = 0 if options is None else options.ttl_s
    if ttl_s and ttl_s * 1000 <= confidence_ms:
        raise StartupError(
            f"table {table}: its log keeps changes for {ttl_s} s (cdc option 'ttl'), but changes are read when they "
            f"are {confidence_ms / 1000:g} s old (reading.confidence_ms), so all would expire unread. Raise the TTL or "
            "lower the setting"
        )


def _read_schema(log: ChangeLog, table: TableSettings) -> tuple[TableSchema, str | None]:
    """Return a table's schema; if its CDC is off but its log still exists, also a line about it."""
    try:
        return log.check_captured(table.keyspace, table.table), None
    except CdcOffError as off:
        try:
            return log.check_captured(table.keyspace, table.table, even_if_off=True), str(off)
        except RetriableError:
            raise
        except StartupError:
            # There is no log either, so that CDC is off is the problem.
            raise off from None


def _check_table(
    config: BridgeConfig, table: TableSettings, log: ChangeLog, schema: TableSchema, report: Report
) -> None:
    log.check_readable(table.keyspace, table.table)
    output = config.output_of(table).options(config.name)
    # These find column types that have no Avro schema.
    key_schema(schema, output)
    value_schema(schema, output)
    options = log.cdc_options(table.keyspace, table.table)
    if options is not None:
        for advice in shape_of(output.shape).advice(options):
            report(f"table {schema.full_name}: {advice}")
    check_ttl(options, config.reading.confidence_ms, schema.full_name)
