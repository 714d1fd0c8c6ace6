"""Which schemas a job needs in the registry, under which subjects, and by whom they get there."""

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
    """A schema that a table's changes are written with.

    Attributes:
        table: `keyspace.table`.
        part: of the keys or of the values.
        subject: where it belongs.
        schema_text: canonical text of the Avro schema.
    """

    table: str
    part: Part
    subject: Subject
    schema_text: str

    def as_text(self) -> str:
        """For people: where it belongs, and the schema as it is registered."""
        return f"# {self.table}, {self.part}s; subject {self.subject}\n{self.schema_text}"

    def as_json(self, schema_id: int | None = None) -> str:
        """For programs: one line; `schemaType` and `schema` are what `POST /subjects/<subject>/versions` takes."""
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
    """Find out whether the job will get the schema's id; writes nothing.

    Raises:
        schemas.errors.RegistryError: it won't, or the registry could not answer.
    """
    if settings.auto_register:
        registry.check(needed.subject, needed.schema_text)
    else:
        _require(registry, needed.subject, needed.schema_text)


def schema_id(registry: Registry, settings: RegistrySettings, topic: str, part: Part, text: str) -> int:
    """The id of the schema of a topic's keys or values, registered now if that is the job's to do.

    Raises:
        schemas.errors.RegistryError: the registry could not answer, refuses the schema, or does not hold it and
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
