"""The schemas that a job needs in the registry, their subjects, and their registration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.adapters.registry.client import Registry
from bridge.config.document import BridgeConfig, RegistrySettings
from schemas.cql.table import TableSchema
from schemas.errors import UnregisteredSchemaError
from schemas.record_schemas import key_schema, schema_text, value_schema
from schemas.wire.subjects import Part, Subject


@dataclass(frozen=True, slots=True)
class NeededSchema:
    """A schema that encodes a table's changes.

    Attributes:
        table: `keyspace.table`.
        part: whether it encodes the keys or the values.
        subject: its subject in the registry.
        schema_text: canonical text of the Avro schema.
    """

    table: str
    part: Part
    subject: Subject
    schema_text: str

    def as_text(self) -> str:
        """The table, the subject, and the schema as it is registered; for people."""
        return f"# {self.table}, {self.part}s; subject {self.subject}\n{self.schema_text}"

    def as_json(self, schema_id: int | None = None) -> str:
        """One line of JSON for programs.

        `schemaType` and `schema` are the fields of `POST /subjects/<subject>/versions`.

        Args:
            schema_id: the schema's id, added as `id`; None to leave it out.
        """
        document = {
            "table": self.table,
            "part": self.part,
            "subject": self.subject,
            "schemaType": "AVRO",
            "schema": self.schema_text,
        }
        return json.dumps(document if schema_id is None else {**document, "id": schema_id})


def needed_by(config: BridgeConfig, table: TableSchema) -> Sequence[NeededSchema]:
    """The schemas of a captured table's keys and values."""
    settings = config.table(table.keyspace, table.name)
    topic, output = config.topic_of(settings), config.output_of(settings).options(config.name)
    texts: dict[Part, str] = {
        "key": schema_text(key_schema(table, output)),
        "value": schema_text(value_schema(table, output)),
    }
    return [
        NeededSchema(table.full_name, part, config.registry.subject_of(topic, part, text), text)
        for part, text in texts.items()
    ]


def check(registry: Registry, settings: RegistrySettings, needed: NeededSchema) -> None:
    """Check that the job can get the schema's id; writes nothing.

    Raises:
        schemas.errors.RegistryError: it can't, or the registry could not answer.
    """
    if settings.auto_register:
        registry.check(needed.subject, needed.schema_text)
    else:
        _require(registry, needed.subject, needed.schema_text)


def schema_id(registry: Registry, settings: RegistrySettings, topic: str, part: Part, text: str) -> int:
    """The id of the schema of a topic's keys or values; registers a new schema if `registry.auto_register` is on.

    Args:
        registry: the registry.
        settings: the subject's name, and whether to register.
        topic: the topic.
        part: keys or values.
        text: canonical text of the Avro schema.

    Raises:
        schemas.errors.RegistryError: the registry could not answer, refuses the schema, or does not have it and
            `registry.auto_register` is off.
    """
    subject = settings.subject_of(topic, part, text)
    return registry.register(subject, text) if settings.auto_register else _require(registry, subject, text)


def _require(registry: Registry, subject: Subject, text: str) -> int:
    try:
        return registry.require(subject, text)
    except UnregisteredSchemaError as error:
        message = (
            f"{error}, and registry.auto_register is off. Register it: `scylla-cdc-bridge schemas -c FILE` prints it, "
            "and with --register registers it"
        )
        raise UnregisteredSchemaError(message, subject=subject) from error
