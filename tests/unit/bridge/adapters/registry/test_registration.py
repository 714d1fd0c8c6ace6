"""Registration of schemas, and the errors that are retried while a job runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.adapters.connect import call_registry_while_running, make_registry
from bridge.adapters.registry import registration
from bridge.adapters.registry.client import Registry
from bridge.adapters.registry.id_cache import SchemaIdCache
from bridge.config.document import BridgeConfig, RegistrySettings, validate
from bridge.errors import RetriableError, StartupError
from schemas.errors import IncompatibleSchemaError, RegistryAccessError, RegistryError, UnregisteredSchemaError
from tests.unit.bridge.adapters.registry.fake_registry import FakeRegistry, serving
from tests.unit.bridge.config.test_document import SMALLEST
from tests.unit.schemas.example_tables import table

SCHEMA = '{"type":"record","name":"R","fields":[]}'
ORDERS = table({"pk": "int"}, keyspace="shop", name="orders")


def _config(**registry: object) -> BridgeConfig:
    return validate({**SMALLEST, "registry": {"url": "http://10.0.0.3:8081", **registry}})


def test_needed_schemas() -> None:
    """A table needs a schema for its keys and one for its values, each under the configured subject."""
    needed = registration.needed_by(_config(key_subject_name_strategy="RecordName"), ORDERS)
    assert [(one.table, one.part, one.subject) for one in needed] == [
        ("shop.orders", "key", "shop.orders.Key"),
        ("shop.orders", "value", "shop.orders-value"),
    ]
    document = json.loads(needed[1].as_json())
    assert {"schemaType", "schema"} <= document.keys()
    assert document["schema"] == needed[1].schema_text
    assert needed[1].as_text().splitlines() == [
        "# shop.orders, values; subject shop.orders-value",
        needed[1].schema_text,
    ]
    assert json.loads(needed[1].as_json(7))["id"] == 7


def test_schema_is_registered_when_it_is_needed() -> None:
    """A check before that registers nothing."""
    registry, config = Registry("mock://auto"), _config()
    (key, _) = registration.needed_by(config, ORDERS)
    registration.check(registry, config.registry, key)
    assert registry.find(key.subject, key.schema_text) is None
    schema_id = registration.schema_id(registry, config.registry, "shop.orders", "key", key.schema_text)
    assert registry.find("shop.orders-key", key.schema_text) == schema_id


def test_missing_schema_without_auto_register() -> None:
    """An unregistered schema is refused with advice, and accepted as soon as it is registered."""
    registry, config = Registry("mock://manual"), _config(auto_register=False)
    (key, _) = registration.needed_by(config, ORDERS)
    how = "registry.auto_register is off. Register it: `scylla-cdc-bridge schemas -c FILE` prints it"
    for ask in (
        lambda: registration.check(registry, config.registry, key),
        lambda: registration.schema_id(registry, config.registry, "shop.orders", "key", key.schema_text),
    ):
        with pytest.raises(UnregisteredSchemaError, match=r"subject shop\.orders-key does not hold") as caught:
            ask()
        assert how in str(caught.value)
    registry.register(key.subject, key.schema_text)
    registration.check(registry, config.registry, key)
    assert registration.schema_id(registry, config.registry, "shop.orders", "key", key.schema_text) > 0


class TestMidway:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (RegistryError("down", retriable=True), RetriableError),
            (RegistryAccessError("401"), RetriableError),
            (UnregisteredSchemaError("not there", subject="s"), RetriableError),
            (StartupError("the secret's file can't be read"), RetriableError),
            (IncompatibleSchemaError("refused", subject="s", rule="FULL", reason="r"), StartupError),
            (RegistryError("no registry", retriable=False), StartupError),
        ],
    )
    def test_errors_that_an_operator_can_correct_are_retriable(self, error: Exception, kind: type[Exception]) -> None:
        """The messages stay the same."""

        def fail() -> None:
            raise error

        with pytest.raises(kind) as caught:
            call_registry_while_running(fail)
        assert str(caught.value) == str(error)

    def test_late_rotation_of_a_token_is_retried(self, tmp_path: Path) -> None:
        """A token that is rotated later than the registry expects costs retries, not the job."""
        token = tmp_path / "token"
        token.write_text("old\n", encoding="ascii")
        fake = FakeRegistry(authorization="Bearer old")
        with serving(fake) as address:
            settings = RegistrySettings.model_validate({"url": f"http://{address}", "token": {"file": token}})
            registry = make_registry(settings)
            assert "old" not in f"{registry!r} {settings!r} {settings.model_dump_json()}"
            ask: Callable[[], int] = lambda: registry.register("t-key", SCHEMA)  # noqa: E731
            fake.authorization = "Bearer new"
            with pytest.raises(RetriableError, match="refuses the credentials"):
                call_registry_while_running(ask)
            token.write_text("new\n", encoding="ascii")
            assert call_registry_while_running(ask) == 1
            assert registry.register("t-key", SCHEMA) == 1


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "registry.username and registry.password, or registry.token"),
        ({"username": "u", "password": {"env": "PW"}}, "registry.username and registry.password"),
        ({"token": {"env": "PW"}}, "registry.token"),
    ],
)
def test_settings_of_the_credentials_are_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object], named: str
) -> None:
    """Those that are set, or could be."""
    monkeypatch.setenv("PW", "wrong")
    with serving(FakeRegistry(authorization="Bearer right")) as address:
        registry = make_registry(RegistrySettings.model_validate({"url": f"http://{address}"} | given))
        with pytest.raises(RegistryAccessError) as caught:
            registry.ping()
    assert "refuses the credentials (HTTP 401" in str(caught.value)
    assert str(caught.value).endswith(f"; see {named}")


class TestSharedIds:
    def test_ids_are_shared(self, tmp_path: Path) -> None:
        """An id is valid for one registry, subject and schema."""
        folder = tmp_path / "ids"
        SchemaIdCache(folder, "http://a").put("s", SCHEMA, 7)
        assert SchemaIdCache(folder, "http://a").get("s", SCHEMA) == 7
        for registry, subject, schema in (("http://b", "s", SCHEMA), ("http://a", "t", SCHEMA), ("http://a", "s", "x")):
            assert SchemaIdCache(folder, registry).get(subject, schema) is None
        assert len(list(folder.iterdir())) == 1
        assert folder.stat().st_mode & 0o077 == 0

    def test_known_id_survives_an_outage(self, tmp_path: Path) -> None:
        """A new process uses it while the registry is down."""
        SchemaIdCache(tmp_path, "http://127.0.0.1:1").put("s", SCHEMA, 7)
        registry = Registry("http://127.0.0.1:1", known=SchemaIdCache(tmp_path, "http://127.0.0.1:1"))
        assert registry.register("s", SCHEMA) == 7
        with pytest.raises(RegistryError, match="no connection"):
            registry.register("t", SCHEMA)

    def test_unusable_folder_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It costs one request to the registry."""
        file = tmp_path / "file"
        file.touch()
        ids = SchemaIdCache(file, "http://a")
        ids.put("s", SCHEMA, 7)
        assert ids.get("s", SCHEMA) is None
        assert "can't be written" in caplog.text
        SchemaIdCache(tmp_path, "http://a").put("s", SCHEMA, 7)
        (kept,) = [one for one in tmp_path.iterdir() if one != file]
        kept.write_text("half", encoding="ascii")
        assert SchemaIdCache(tmp_path, "http://a").get("s", SCHEMA) is None
