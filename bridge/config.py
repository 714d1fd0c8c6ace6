"""The configuration file's shape: one model for each concern, each field with its meaning, unit, default and why.

`validate` takes a mapping whole: every unknown key and bad value is named at once. The sections stand in modules of
their own (`config_servers`, `config_tables`, `config_running`); what uses the configuration imports it from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bridge.config_running import LoggingSettings, MonitoringSettings, SparkSettings, StartupSettings
from bridge.config_servers import KafkaSettings, RegistrySettings, ScyllaSettings
from bridge.config_tables import OutputSettings, PublishingSettings, ReadingSettings, TableEntry, TableSettings
from bridge.config_values import Model, Secret
from schemas.output import OutputOptions

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class BridgeConfig(Model):
    """One job: which tables, from where, to where."""

    name: str = Field(
        pattern=_NAME,
        description="The job's name: first part of its transactional ids, progress topics and Spark application.",
    )
    scylla: ScyllaSettings
    kafka: KafkaSettings
    registry: RegistrySettings
    tables: Annotated[tuple[TableEntry, ...], Field(min_length=1)]
    reading: ReadingSettings = ReadingSettings()
    output: OutputSettings = OutputSettings()
    publishing: PublishingSettings = PublishingSettings()
    spark: SparkSettings = SparkSettings()
    startup: StartupSettings = StartupSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [(table.keyspace, table.table) for table in self.tables]
        twice = sorted({".".join(name) for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)}: named twice among `tables`")
        topics = [self.topic_of(table) for table in self.tables]
        topics += [self.progress_topic_of(table) for table in self.tables]
        shared = sorted({topic for topic in topics if topics.count(topic) > 1})
        if shared:
            raise ValueError(f"{', '.join(shared)}: each table needs a change topic and a progress topic of its own")
        # Tables may share a dead-letter topic, but what reads changes or cursors can't read letters.
        mixed = sorted({self.dead_letter_topic_of(table) or "" for table in self.tables} & set(topics))
        if mixed:
            raise ValueError(f"{', '.join(mixed)}: a dead-letter topic can't be a change or progress topic too")
        return self

    def topic_of(self, table: TableSettings) -> str:
        """The change topic of a table."""
        return self._filled(table.topic or self.publishing.topic, table)

    def progress_topic_of(self, table: TableSettings) -> str:
        """The compacted topic that holds the cursors of a table's lanes."""
        return self._filled(self.publishing.progress_topic, table)

    def _filled(self, template: str, table: TableSettings) -> str:
        texts = {"name": self.name, "keyspace": table.keyspace, "table": table.table}
        return re.sub(r"\{(name|keyspace|table)\}", lambda match: texts[match.group(1)], template)

    def output_of(self, table: TableSettings) -> OutputSettings:
        """What a table's changes look like."""
        return _shaped(self.output, table)

    def dead_letter_topic_of(self, table: TableSettings) -> str | None:
        """Where a table's changes go that can't be carried; None where such a change stops it."""
        template = self.publishing.dead_letter_topic
        return None if template is None else self._filled(template, table)

    def table(self, keyspace: str, table: str) -> TableSettings:
        """The settings of a captured table.

        Raises:
            KeyError: the table is not among `tables`.
        """
        for settings in self.tables:
            if (settings.keyspace, settings.table) == (keyspace, table):
                return settings
        raise KeyError(f"{keyspace}.{table}")


class SourceConfig(Model):
    """What the Spark source needs by itself: one table, and how to read it."""

    scylla: ScyllaSettings
    table: TableEntry = Field(description="The captured table.")
    reading: ReadingSettings = ReadingSettings()
    name: str = Field("scylla-cdc-bridge", description="The job's name, as the shape `debezium` tells it.")
    output: OutputSettings = OutputSettings()
    dead_letters: bool = Field(
        False, description="Give changes that can't be carried as rows of their own kind; else they stop the query."
    )
    lanes: int = Field(1, ge=1, le=1024, description="Input partitions of each micro-batch.")
    sharing: int = Field(1, ge=1, description="How many queries like this share `scylla.requests_per_second`.")
    payload: Literal["avro", "json"] = Field(
        "avro", description="What `key` and `value` hold: Avro bodies, or the same as JSON text."
    )

    @property
    def output_options(self) -> OutputOptions:
        """What the encoder takes."""
        return self.table_output.options(self.name)

    @property
    def table_output(self) -> OutputSettings:
        """What the table's changes look like."""
        return _shaped(self.output, self.table)


def _shaped(output: OutputSettings, table: TableSettings) -> OutputSettings:
    return output if table.shape is None else output.model_copy(update={"shape": table.shape})


def validate(mapping: Mapping[str, object]) -> BridgeConfig:
    """The configuration of a mapping; see `bridge.config_file` for the file that it comes from.

    Raises:
        pydantic.ValidationError: with every problem in it.
    """
    return BridgeConfig.model_validate(dict(mapping))


__all__ = [
    "BridgeConfig",
    "KafkaSettings",
    "LoggingSettings",
    "MonitoringSettings",
    "OutputSettings",
    "PublishingSettings",
    "ReadingSettings",
    "RegistrySettings",
    "ScyllaSettings",
    "Secret",
    "SourceConfig",
    "SparkSettings",
    "StartupSettings",
    "TableSettings",
    "ValidationError",
    "validate",
]
