"""The configuration file's shape: one model for each concern, each field with its meaning, unit, default and why.

`validate` takes a mapping whole: every unknown key and bad value is named at once. The sections stand in modules of
their own (`config_servers`, `config_tables`, `config_running`); what uses the configuration imports it from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bridge.config.base import InWords, Misplaced, Model, Place, Secret, misplaced
from bridge.config.process import LoggingSettings, MonitoringSettings, SparkSettings, StartupSettings
from bridge.config.servers import KafkaSettings, RegistrySettings, ScyllaSettings
from bridge.config.tables import OutputSettings, PublishingSettings, ReadingSettings, TableEntry, TableSettings
from schemas.options import OutputOptions

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_PLACEHOLDERS: Final = ("{name}", "{keyspace}", "{table}")
_PLACEHOLDER: Final = re.compile(r"\{(name|keyspace|table)\}")
_BRACES: Final = re.compile(r"\{[^{}]*\}|[{}]")
_PERIOD: Final = re.compile(r"\.")
_LONGEST_TOPIC: Final = 249
_LONGEST_SHOWN: Final = 60
_TOPIC: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST_TOPIC}}}", re.ASCII)


class BridgeConfig(Model):
    """One job: which tables, from where, to where."""

    name: Annotated[
        str, InWords("1 to 100 letters, digits, '.', '_' and '-', of which the first is a letter or a digit")
    ] = Field(
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
    def _topics(self) -> Self:
        # Each rests on those before it: a table that is named twice shares its topics with itself.
        problems = [*self._doubled_tables(), *self._bad_templates()] or self._bad_names() or self._shared_names()
        if problems:
            raise misplaced(problems)
        return self

    def _doubled_tables(self) -> Iterator[Misplaced]:
        seen: set[tuple[str, str]] = set()
        for number, table in enumerate(self.tables):
            name = (table.keyspace, table.table)
            if name in seen:
                yield Misplaced(("tables", number), f"{'.'.join(name)}: named twice among `tables`")
            seen.add(name)

    def _templates(self, number: int) -> list[tuple[Place, str]]:
        """Where the names of a table's topics come from: change topic, progress topic, dead-letter topic."""
        own, publishing = self.tables[number].topic, self.publishing
        change: Place = ("publishing", "topic") if own is None else ("tables", number, "topic")
        found: list[tuple[Place, str]] = [
            (change, own or publishing.topic),
            (("publishing", "progress_topic"), publishing.progress_topic),
        ]
        if publishing.dead_letter_topic is not None:
            found.append((("publishing", "dead_letter_topic"), publishing.dead_letter_topic))
        return found

    def _bad_templates(self) -> list[Misplaced]:
        templates = dict(one for number in range(len(self.tables)) for one in self._templates(number))
        templates.setdefault(("publishing", "topic"), self.publishing.topic)
        return [
            Misplaced(place, f"{template!r} has {left.group()!r}; what is replaced are {', '.join(_PLACEHOLDERS)}")
            for place, template in templates.items()
            if (left := _BRACES.search(_PLACEHOLDER.sub("", template))) is not None
        ]

    def _bad_names(self) -> list[Misplaced]:
        return [
            Misplaced(
                place,
                f"the topic of table {_cut(table.name)} would be {_cut(self._filled(template, table))!r}, but "
                f"Kafka takes names of 1 to {_LONGEST_TOPIC} letters, digits, '.', '_' and '-', not '.' or '..' alone",
            )
            for number, table in enumerate(self.tables)
            for place, template in self._templates(number)
            if not _is_topic(self._filled(template, table))
        ]

    def _shared_names(self) -> list[Misplaced]:
        problems: list[Misplaced] = []
        taken: dict[str, tuple[str, str, Place]] = {}
        for number, table in enumerate(self.tables):
            for place, template in self._templates(number)[:2]:
                mine = self._filled(template, table), table.name, place
                # Kafka's metrics tell `.` and `_` not apart, so that it refuses topics that differ in nothing else.
                theirs = taken.setdefault(_PERIOD.sub("_", mine[0]), mine)
                if theirs != mine:
                    alike = "" if theirs[0] == mine[0] else f" (and {theirs[0]}, which Kafka takes for the same name)"
                    words = "each table needs a change topic and a progress topic of its own"
                    problems.append(Misplaced(place, f"{mine[0]}{alike} is a topic of {theirs[1]} too; {words}"))
        # Tables may share a dead-letter topic, but what reads changes or cursors can't read letters.
        letters = {self.dead_letter_topic_of(table) or "" for table in self.tables} - {""}
        mixed = sorted(topic for topic in letters if _PERIOD.sub("_", topic) in taken)
        if mixed:
            words = f"{', '.join(mixed)}: a dead-letter topic can't be a change or progress topic too"
            problems.append(Misplaced(("publishing", "dead_letter_topic"), words))
        return problems

    def topic_of(self, table: TableSettings) -> str:
        """The change topic of a table."""
        return self._filled(table.topic or self.publishing.topic, table)

    def progress_topic_of(self, table: TableSettings) -> str:
        """The compacted topic that holds the cursors of a table's lanes."""
        return self._filled(self.publishing.progress_topic, table)

    def _filled(self, template: str, table: TableSettings) -> str:
        texts = {"name": self.name, "keyspace": table.keyspace, "table": table.table}
        return _PLACEHOLDER.sub(lambda match: texts[match.group(1)], template)

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


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}... ({len(name)} characters)"


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


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
    """The configuration of a mapping; see `bridge.config.file.loader` for the file that it comes from.

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
