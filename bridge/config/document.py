"""The whole configuration of a job, and that of the Spark source alone.

Other packages import the models of all sections from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bridge.config.base import ExpectedText, LocatedProblem, Location, Model, located_error
from bridge.config.kafka import KafkaSettings
from bridge.config.process import LoggingSettings, MonitoringSettings, SparkSettings, StartupSettings
from bridge.config.registry import RegistrySettings
from bridge.config.scylla import ScyllaSettings
from bridge.config.secret import Secret
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
    """One job: which tables it reads, from which cluster, and where it publishes their changes."""

    name: Annotated[
        str, ExpectedText("1 to 100 letters, digits, '.', '_' and '-', beginning with a letter or a digit")
    ] = Field(
        pattern=_NAME,
        description="The job's name; its transactional ids, progress topics and Spark application begin with it.",
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
    def _check_topics(self) -> Self:
        # Later checks need what earlier ones ensure: a table that is listed twice would share its topics with itself.
        problems = (
            [*self._find_repeated_tables(), *self._find_bad_templates()]
            or self._find_bad_topics()
            or self._find_shared_topics()
        )
        if problems:
            raise located_error(problems)
        return self

    def _find_repeated_tables(self) -> Iterator[LocatedProblem]:
        seen: set[tuple[str, str]] = set()
        for number, table in enumerate(self.tables):
            name = (table.keyspace, table.table)
            if name in seen:
                yield LocatedProblem(("tables", number), f"{'.'.join(name)}: named twice among `tables`")
            seen.add(name)

    def _templates(self, number: int) -> list[tuple[Location, str]]:
        """Return the locations and templates of a table's change topic, progress topic and dead-letter topic."""
        own, publishing = self.tables[number].topic, self.publishing
        change: Location = ("publishing", "topic") if own is None else ("tables", number, "topic")
        found: list[tuple[Location, str]] = [
            (change, own or publishing.topic),
            (("publishing", "progress_topic"), publishing.progress_topic),
        ]
        if publishing.dead_letter_topic is not None:
            found.append((("publishing", "dead_letter_topic"), publishing.dead_letter_topic))
        return found

    def _find_bad_templates(self) -> list[LocatedProblem]:
        templates = dict(template for number in range(len(self.tables)) for template in self._templates(number))
        templates.setdefault(("publishing", "topic"), self.publishing.topic)
        return [
            LocatedProblem(
                location, f"{template!r} has {left.group()!r}; the placeholders are {', '.join(_PLACEHOLDERS)}"
            )
            for location, template in templates.items()
            if (left := _BRACES.search(_PLACEHOLDER.sub("", template))) is not None
        ]

    def _find_bad_topics(self) -> list[LocatedProblem]:
        return [
            LocatedProblem(
                location,
                f"the topic of table {_shorten(table.name)} would be {_shorten(self._fill(template, table))!r}, but "
                f"Kafka takes names of 1 to {_LONGEST_TOPIC} letters, digits, '.', '_' and '-', not '.' or '..' alone",
            )
            for number, table in enumerate(self.tables)
            for location, template in self._templates(number)
            if not _is_topic(self._fill(template, table))
        ]

    def _find_shared_topics(self) -> list[LocatedProblem]:
        problems: list[LocatedProblem] = []
        taken: dict[str, tuple[str, str, Location]] = {}
        for number, table in enumerate(self.tables):
            for location, template in self._templates(number)[:2]:
                mine = self._fill(template, table), table.name, location
                # Kafka refuses topics that differ only in `.` and `_`: the names of its metrics would be equal.
                theirs = taken.setdefault(_PERIOD.sub("_", mine[0]), mine)
                if theirs != mine:
                    alike = "" if theirs[0] == mine[0] else f" (and {theirs[0]}, which Kafka takes for the same name)"
                    rule = "each table needs a change topic and a progress topic of its own"
                    problems.append(LocatedProblem(location, f"{mine[0]}{alike} is a topic of {theirs[1]} too; {rule}"))
        # Tables may share a dead-letter topic, but readers of changes or cursors can't read dead letters.
        dead_letter_topics = {self.dead_letter_topic_of(table) or "" for table in self.tables} - {""}
        mixed = sorted(topic for topic in dead_letter_topics if _PERIOD.sub("_", topic) in taken)
        if mixed:
            problem = f"{', '.join(mixed)}: a dead-letter topic can't be a change or progress topic too"
            problems.append(LocatedProblem(("publishing", "dead_letter_topic"), problem))
        return problems

    def topic_of(self, table: TableSettings) -> str:
        """Return the change topic of a table."""
        return self._fill(table.topic or self.publishing.topic, table)

    def progress_topic_of(self, table: TableSettings) -> str:
        """Return the compacted topic that holds the cursors of a table's lanes."""
        return self._fill(self.publishing.progress_topic, table)

    def _fill(self, template: str, table: TableSettings) -> str:
        texts = {"name": self.name, "keyspace": table.keyspace, "table": table.table}
        return _PLACEHOLDER.sub(lambda match: texts[match.group(1)], template)

    def output_of(self, table: TableSettings) -> OutputSettings:
        """Return the output settings that apply to a table."""
        return _with_shape(self.output, table)

    def dead_letter_topic_of(self, table: TableSettings) -> str | None:
        """Return the topic for a table's changes that cannot be encoded, registered or sent; None to stop the table."""
        template = self.publishing.dead_letter_topic
        return None if template is None else self._fill(template, table)

    def table(self, keyspace: str, table: str) -> TableSettings:
        """Return the settings of a captured table, named without quotes.

        Raises:
            KeyError: the table is not among `tables`.
        """
        for settings in self.tables:
            if (settings.keyspace, settings.table) == (keyspace, table):
                return settings
        raise KeyError(f"{keyspace}.{table}")


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}... ({len(name)} characters)"


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class SourceConfig(Model):
    """What the Spark source needs when a query uses it without a job: one table, and how to read it."""

    scylla: ScyllaSettings
    table: TableEntry = Field(description="The captured table.")
    reading: ReadingSettings = ReadingSettings()
    name: str = Field("scylla-cdc-bridge", description="The name in the records of the shape `debezium`.")
    output: OutputSettings = OutputSettings()
    dead_letters: bool = Field(
        False,
        description="Return changes that cannot be published as rows of their own kind; if false, they stop the query.",
    )
    lanes: int = Field(1, ge=1, le=1024, description="Input partitions of each micro-batch.")
    sharing: int = Field(1, ge=1, description="Number of such queries that share `scylla.requests_per_second`.")
    payload: Literal["avro", "json"] = Field(
        "avro", description="What `key` and `value` hold: Avro bodies, or their data as JSON text."
    )

    @property
    def output_options(self) -> OutputOptions:
        """The encoder's options."""
        return self.table_output.options(self.name)

    @property
    def table_output(self) -> OutputSettings:
        """The output settings that apply to the table."""
        return _with_shape(self.output, self.table)


def _with_shape(output: OutputSettings, table: TableSettings) -> OutputSettings:
    return output if table.shape is None else output.model_copy(update={"shape": table.shape})


def validate(mapping: Mapping[str, object]) -> BridgeConfig:
    """Return the configuration that a mapping holds.

    Raises:
        pydantic.ValidationError: with every unknown key and every bad value.
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
