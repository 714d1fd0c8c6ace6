"""The command `schemas`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bridge.adapters.registry.client import Registry
from bridge.cli import schemas
from tests.unit.bridge.cli.command_line import run_cli
from tests.unit.schemas.example_tables import table


class TestSchemas:
    @pytest.fixture(autouse=True)
    def registry(self, monkeypatch: pytest.MonkeyPatch) -> Registry:
        log = SimpleNamespace(check_captured=lambda keyspace, name: table({"pk": "int"}, keyspace=keyspace, name=name))
        monkeypatch.setattr(schemas, "open_scylla", lambda *_, **__: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(schemas, "ChangeLog", lambda _: log)
        registry = Registry("mock://schemas-command")
        monkeypatch.setattr(schemas, "open_registry", lambda *_, **__: registry)
        return registry

    def test_printed(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The schemas of all tables or of one are printed with their subjects, or as JSON documents."""
        assert run_cli("schemas", "-c", config) == 0
        headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
        assert headings[0] == "# shop.orders, keys; subject shop.orders-key"
        assert [line.rpartition(" ")[2] for line in headings[1:]] == ["shop.orders-value", "lines-key", "lines-value"]
        assert run_cli("schemas", "-c", config, "shop.lines", "--json") == 0
        documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [document["subject"] for document in documents] == ["lines-key", "lines-value"]
        assert json.loads(documents[0]["schema"])["name"] == "Key"
        assert run_cli("schemas", "-c", config, "shop.other") == 2

    def test_registered(self, config: str, registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
        """With --register the schemas are registered and their ids printed."""
        assert run_cli("schemas", "-c", config, "shop.lines", "--json", "--register") == 0
        documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for document in documents:
            assert registry.require(document["subject"], document["schema"]) == document["id"]
        assert run_cli("schemas", "-c", config, "shop.lines", "--register") == 0
        assert capsys.readouterr().out.splitlines()[0] == f"lines-key: id {documents[0]['id']}"
