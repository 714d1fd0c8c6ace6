"""Whether the registry shows that a table's changes were published."""

from __future__ import annotations

import pytest

from bridge.adapters.registry.client import Registry
from bridge.adapters.registry.registration import needed_by
from bridge.config.document import BridgeConfig, validate
from bridge.engine.frame_headers import has_key_schema
from bridge.errors import RetriableError
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from schemas.errors import RegistryError


def config_of(table: str) -> BridgeConfig:
    """A job that publishes one table to a topic that others use, too."""
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "scylla:9042"},
            "kafka": {"bootstrap_servers": "kafka:9092"},
            "registry": {"url": "http://registry", "subject_name_strategy": "TopicRecordName"},
            "tables": [{"name": f"ks.{table}", "topic": "shared"}],
        }
    )


OURS, OTHER = (
    TableSchema("ks", name, (Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),)) for name in ("ours", "other")
)


def test_only_the_tables_own_key_schema_counts() -> None:
    """Another table may have registered its schemas for the same topic."""
    registry = Registry("mock://key-schema")

    def has(table: TableSchema) -> bool:
        return has_key_schema(config_of(table.name), lambda: registry, table)

    key, value = needed_by(config_of("other"), OTHER)
    assert (key.part, value.part) == ("key", "value")
    registry.register(value.subject, value.schema_text)
    assert not has(OTHER)
    registry.register(key.subject, key.schema_text)
    assert has(OTHER)
    assert not has(OURS)


def test_registry_that_does_not_answer_is_asked_again_later() -> None:
    """The table waits: nothing is decided without the answer."""

    def unreachable() -> Registry:
        raise RegistryError("no answer", retriable=True)

    with pytest.raises(RetriableError, match="no answer"):
        has_key_schema(config_of("ours"), unreachable, OURS)
