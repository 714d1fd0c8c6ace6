"""`spark.readStream.format("scylla-cdc")`: the CDC log of one table as a stream of changes.

Usable by itself: give it the settings of `bridge.config.SourceConfig` as options (`scylla.contact_points`, `table`,
`reading.confidence_ms`, `lanes`, `payload`, ...). The job gives it a whole configuration and asks for control rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bridge.config import SourceConfig
from bridge.config_file import from_options
from bridge.publishing import TableStart
from spark.rows import ROW_TYPE
from spark.stream_reader import ScyllaCdcStreamReader

CONFIG_OPTION = "config"
START_OPTION = "table_start"
ACTIVITY_OPTION = "activity"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The source's options, understood.

    Attributes:
        start: where Kafka says that the table stands; None for a query whose sink is not ours, which begins by
            `reading.start` and whose checkpoint is all there is.
        control: whether begin and end rows are wanted.
        activity: where the sink says that changes came (`bridge.activity`); None where no sink does.
    """

    config: SourceConfig
    start: TableStart | None
    control: bool
    activity: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises ConfigError when an option is unknown or its value is bad."""
        plain = {name: value for name, value in options.items() if name.lower() != "path"}
        control = plain.pop("control", "false").lower() == "true"
        start = plain.pop(START_OPTION, None)
        activity = plain.pop(ACTIVITY_OPTION, None)
        text = plain.pop(CONFIG_OPTION, None)
        config = SourceConfig.model_validate_json(text) if text else from_options(plain, SourceConfig)
        return cls(
            config,
            None if start is None else TableStart.from_json(json.loads(start)),
            control,
            activity,
        )


class ScyllaCdcSource(DataSource):
    """The registered source; see the module."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "scylla-cdc"

    def schema(self) -> StructType:
        """See `spark.rows`."""
        return ROW_TYPE

    def streamReader(self, schema: StructType) -> ScyllaCdcStreamReader:
        """The reader of a query."""
        options = self._options
        return ScyllaCdcStreamReader(options.config, options.start, control=options.control, activity=options.activity)
