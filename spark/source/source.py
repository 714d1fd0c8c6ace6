"""`spark.readStream.format("scylla-cdc")`: the CDC log of one table as a stream of changes.

A query can use the source by itself, with the settings of `bridge.config.document.SourceConfig` as options
(`scylla.contact_points`, `table`, `reading.confidence_ms`, `lanes`, `payload`, ...). The job passes a whole
configuration; then the tasks publish the changes that they read, and each lane yields only a report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bridge.config.document import BridgeConfig, SourceConfig
from bridge.config.file.loader import from_options
from bridge.engine.lane_task import Publishing
from bridge.engine.planner import Planner
from bridge.publishing.table_start import TableStart
from spark.source.process import CACHE
from spark.source.rows import REPORT_TYPE, ROW_TYPE
from spark.source.stream_reader import ScyllaCdcStreamReader
from spark.workers.disconnect import tolerate_disconnect_here

CONFIG_OPTION = "config"
START_OPTION = "table_start"
SIGNALS_OPTION = "signals"
JOB_OPTION = "job"
OWNER_OPTION = "owner"

# This is the first module of the bridge that Spark loads in those processes.
tolerate_disconnect_here()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the source.

    Attributes:
        config: of the source.
        start: where Kafka's progress records place the table; None for a query that is not the job's, which begins at
            `reading.start` and goes on from its checkpoint.
        publishing: what the tasks need to publish; None when they are to yield the changes.
        signals: path of the file for the signals between job and planner (`bridge.adapters.planner_signals`); None
            when there is no job.
    """

    config: SourceConfig
    start: TableStart | None
    publishing: Publishing | None = None
    signals: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse Spark's options.

        Raises:
            ConfigError: an option is unknown, or its value is bad.
        """
        plain = {name: value for name, value in options.items() if name.lower() != "path"}
        start = plain.pop(START_OPTION, None)
        signals = plain.pop(SIGNALS_OPTION, None)
        job, owner = plain.pop(JOB_OPTION, None), plain.pop(OWNER_OPTION, "")
        text = plain.pop(CONFIG_OPTION, None)
        config = SourceConfig.model_validate_json(text) if text else from_options(plain, SourceConfig)
        return cls(
            config,
            None if start is None else TableStart.from_json(json.loads(start)),
            None if job is None else Publishing(BridgeConfig.model_validate_json(job), owner, signals),
            signals,
        )


class ScyllaCdcSource(DataSource):
    """The source that a session registers as `scylla-cdc`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "scylla-cdc"

    def schema(self) -> StructType:
        """Return the columns of the source's rows (`spark.source.rows`)."""
        return ROW_TYPE if self._options.publishing is None else REPORT_TYPE

    def streamReader(self, schema: StructType) -> ScyllaCdcStreamReader:
        """Return the stream reader of a query."""
        return open_reader(self._options)


def open_reader(options: SourceOptions) -> ScyllaCdcStreamReader:
    """Return the stream reader of a query, with a planner over this process's connections."""
    config = options.config
    table = CACHE.scylla.table(config.scylla, config.table.keyspace, config.table.table)
    planner = Planner(config, options.start, table, signals=options.signals)
    return ScyllaCdcStreamReader(config, planner, options.publishing)
