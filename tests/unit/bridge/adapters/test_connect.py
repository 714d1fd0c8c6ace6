"""Opening the servers' clients, and what the registry's errors become."""

from __future__ import annotations

import pytest

from bridge.adapters import connect
from bridge.adapters.connect import call_registry, make_registry
from bridge.config.document import BridgeConfig, RegistrySettings, validate
from bridge.errors import BridgeError, RetriableError, StartupError
from schemas.errors import RegistryError


def _settings() -> BridgeConfig:
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "127.0.0.1:9042"},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "registry": {"url": "http://127.0.0.1:8081"},
            "tables": ["shop.orders"],
        }
    )


class TestRegistry:
    @pytest.mark.parametrize(("retriable", "kind"), [(True, RetriableError), (False, StartupError)])
    def test_errors(self, retriable: bool, kind: type[BridgeError]) -> None:
        """The registry's errors become ours: what may pass is tried again, the rest is refused."""

        def fail() -> None:
            raise RegistryError("no", retriable=retriable)

        with pytest.raises(kind, match=r"^no$"):
            call_registry(fail)

    def test_credentials_do_not_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The registry's password is read where it is used, and shows nowhere."""
        monkeypatch.setenv("PASSWORD_OF_TEST", "hunter2")
        settings = {"url": "http://a:1", "username": "u", "password": {"env": "PASSWORD_OF_TEST"}}
        registry = make_registry(RegistrySettings.model_validate(settings))
        assert "hunter2" not in repr(registry)
        registry.close()

    def test_patience_is_the_configurations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Unless told otherwise, a server is waited for as long as the configuration says."""
        asked: list[float] = []
        monkeypatch.setattr(
            connect,
            "retry_until_reachable",
            lambda _what, _address, _attempt, *, patience_s, report, setting: asked.append(patience_s),
        )
        settings = _settings()
        connect.open_scylla(settings, report=lambda _: None)
        connect.open_scylla(settings, report=lambda _: None, patience_s=1)
        assert asked == [60, 1]
