"""The command `validate`: checks the configuration, and with `--online` the servers and tables."""

from __future__ import annotations

import argparse

from bridge.cli.output import print_line
from bridge.cli.preflight import checks
from bridge.cli.table_argument import cql_table_name
from bridge.config.document import BridgeConfig, TableSettings
from bridge.config.file import loader


def run(arguments: argparse.Namespace) -> int:
    """Check the configuration and print what the job would do.

    Raises:
        ConfigError: the file has problems.
        StartupError: with `--online`, a server or a table has problems.
    """
    config = loader.load(arguments.config)
    if arguments.online:
        print_line(f"{arguments.config}: no problem found in the file; checking the servers")
        checks.check_all(config, report=print_line)
        print_line(f"Tables: {', '.join(map(cql_table_name, config.tables))}: all are captured")
    else:
        print_line(f"{arguments.config}: no problem found")
    print_line(describe_plan(config))
    return 0


def describe_plan(config: BridgeConfig) -> str:
    """Return what a job with this configuration would do, as text of several lines."""
    servers, brokers = ", ".join(config.scylla.contact_points), ", ".join(config.kafka.bootstrap_servers)
    lines = [f"Job {config.name}, from ScyllaDB at {servers} to Kafka at {brokers}:"]
    for table in config.tables:
        lanes = table.lanes or config.spark.lanes
        start = table.start if table.start is not None else config.reading.start
        lines += [
            f"  {cql_table_name(table)}",
            f"    topic           {config.topic_of(table)} ({config.kafka.partitions} partitions if it is new)",
            f"    progress topic  {config.progress_topic_of(table)}",
            f"    lanes           {lanes if lanes is not None else 'one for each core'}",
            f"    start           {start} (only without progress in Kafka)",
            *_describe_output(config, table),
        ]
    return "\n".join(lines)


def _describe_output(config: BridgeConfig, table: TableSettings) -> list[str]:
    output, dead_letters = config.output_of(table), config.dead_letter_topic_of(table)
    form = output.record_form(dead_letters=dead_letters is not None)
    shape = f"{output.shape}, by {output.record_key.replace('_', ' ')}"
    repeated = "left out" if config.reading.deduplicate else "published (reading.deduplicate is off)"
    return [
        f"    shape           {shape}{', with tombstones' if form.tombstones else ''}",
        f"    headers         {', '.join(f'cdc.{name}' for name in output.headers) or 'none'}",
        f"    dead letters    {dead_letters or 'none: a change that cannot be published stops the table'}",
        f"    retried writes  {repeated}",
    ]
