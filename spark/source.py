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
from bridge.model.cursors import Cursor, Layout
from spark.rows import ROW_TYPE
from spark.stream_reader import ScyllaCdcStreamReader

CONFIG_OPTION = "config"
LAYOUT_OPTION = "layout"
CURSOR_OPTION = "cursor"
UNTIL_OPTION = "until"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The source's options, understood.

    Attributes:
        layout: the lanes to plan with; None to cut `config.lanes` of them at the first cursor.
        cursor: where a query without a checkpoint begins; None to go by `reading.start`.
        until: where planning ends; None for never.
        control: whether begin and end rows are wanted.
    """

    config: SourceConfig
    layout: Layout | None
    cursor: Cursor | None
    until: Cursor | None
    control: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises ConfigError when an option is unknown or its value is bad."""
        plain = {name: value for name, value in options.items() if name.lower() != "path"}
        control = plain.pop("control", "false").lower() == "true"
        layout, cursor, until = (plain.pop(name, None) for name in (LAYOUT_OPTION, CURSOR_OPTION, UNTIL_OPTION))
        text = plain.pop(CONFIG_OPTION, None)
        config = SourceConfig.model_validate_json(text) if text else from_options(plain, SourceConfig)
        return cls(
            config,
            None if layout is None else Layout.from_json(json.loads(layout)),
            None if cursor is None else Cursor.from_json(json.loads(cursor)),
            None if until is None else Cursor.from_json(json.loads(until)),
            control,
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
        return ScyllaCdcStreamReader(
            options.config, options.layout, options.cursor, options.until, control=options.control
        )
