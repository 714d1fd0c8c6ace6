"""What `preflight.check` accepts, refuses and reports."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters import kubernetes
from bridge.adapters.registry.client import Registry
from bridge.adapters.scylla.change_log import CdcOffError
from bridge.cli import preflight
from bridge.config.document import BridgeConfig, Secret, SparkSettings
from bridge.config.file import loader
from bridge.errors import StartupError
from bridge.planning.table_watch import CdcOptions
from schemas.errors import IncompatibleSchemaError, UnsupportedTypeError
from tests.unit.bridge.cli.command_line import raising
from tests.unit.schemas.example_tables import table


class TestPreflight:
    @pytest.fixture
    def settings(self, config: str) -> BridgeConfig:
        return loader.load(config)

    def _servers(self, monkeypatch: pytest.MonkeyPatch, **answers: object) -> list[float]:
        """Servers that answer with an object or an error; the patience that each was given."""
        patience: list[float] = []

        def opening(answer: object) -> Any:
            def open_one(_config: object, *, report: object, patience_s: float) -> object:
                patience.append(patience_s)
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return open_one

        session = SimpleNamespace(node_count=3, address="a:1", close=lambda: None)
        registry = Registry("mock://preflight")
        monkeypatch.setattr(preflight, "open_scylla", opening(answers.get("scylla", session)))
        monkeypatch.setattr(
            preflight, "open_kafka", opening(answers.get("kafka", SimpleNamespace(topic_settings=lambda _: {})))
        )
        monkeypatch.setattr(preflight, "open_registry", opening(answers.get("registry", registry)))
        captured = answers.get("captured", {})

        def check_captured(keyspace: str, name: str, *, even_if_off: bool = False) -> object:
            found = captured.get(name) if isinstance(captured, dict) else None
            if isinstance(found, CdcOffError) and even_if_off:
                found = None
            if isinstance(found, Exception):
                raise found
            return found or table({"pk": "int"}, keyspace=keyspace, name=name)

        log = SimpleNamespace(
            check_captured=check_captured,
            check_readable=lambda *_: None,
            cdc_options=lambda *_: answers.get("options"),
        )
        monkeypatch.setattr(preflight, "ChangeLog", lambda _: log)
        return patience

    def test_good(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """When all is well, each server is named as answering and the tables' schemas are given."""
        self._servers(monkeypatch)
        lines: list[str] = []
        found = preflight.check(settings, report=lines.append)
        assert [one.full_name for one in found.tables] == ["shop.orders", "shop.lines"]
        assert found.nodes == 3
        assert lines[0] == "ScyllaDB at a:1 answers (3 nodes known)"
        assert len(lines) == 3

    def test_one_replica_is_not_asked_alone(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """The setting would let a node that lags hide a generation: it is said that it does not count."""
        self._servers(monkeypatch)
        lines: list[str] = []
        scylla = settings.scylla.model_copy(update={"metadata_consistency": "ONE"})
        preflight.check(settings.model_copy(update={"scylla": scylla}), report=lines.append)
        assert lines[1].startswith("scylla.metadata_consistency: ONE is taken for QUORUM")

    def test_ill_kept_topics(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """A progress topic of which Kafka deletes is named, and a compacted change topic where all changes count."""
        kept = {
            "job.progress.shop.orders": {"cleanup.policy": "compact,delete"},
            "shop.orders": {"cleanup.policy": "compact,delete"},
            "job.progress.shop.lines": {"cleanup.policy": "compact"},
            "lines": {"cleanup.policy": "delete"},
        }
        self._servers(monkeypatch, kafka=SimpleNamespace(topic_settings=lambda _: kept))
        lines: list[str] = []
        preflight.check(settings, report=lines.append)
        told = [line for line in lines if "cleanup.policy" in line]
        assert [line.partition(":")[0] for line in told] == [
            "progress topic job.progress.shop.orders",
            "change topic shop.orders",
        ]
        progress = "job.progress.shop.orders"
        flat = settings.model_copy(update={"output": settings.output.model_copy(update={"shape": "flat"})})
        assert len(list(preflight.ill_kept(flat, flat.tables[0], kept))) == 1
        assert len(list(preflight.ill_kept(flat, flat.tables[0], {progress: {"cleanup.policy": "delete"}}))) == 1

    def test_start_to_come(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """A table of which nothing is read for now is named; `latest` and what is past are not."""
        self._servers(monkeypatch)
        lines: list[str] = []
        reading = settings.reading.model_copy(update={"start": datetime(2999, 1, 1, tzinfo=UTC)})
        preflight.check(settings.model_copy(update={"reading": reading}), report=lines.append)
        assert [line for line in lines if "start" in line] == [
            "table shop.orders: its start, 2999-01-01T00:00:00+00:00, is still to come: without progress it is refused"
        ]

    def test_secrets_sent_readable_are_warnings(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """The job's log has them as such, whatever else it reports."""
        self._servers(monkeypatch)
        scylla = settings.scylla.model_copy(update={"username": "reader", "password": Secret(env="NOBODYS")})
        lines: list[str] = []
        warnings: list[str] = []
        config = settings.model_copy(update={"scylla": scylla})
        preflight.check(config, report=lines.append, warn=warnings.append)
        assert len(lines) == 3
        assert [words.partition(" is sent")[0] for words in warnings] == ["scylla.password"]

    @pytest.mark.parametrize(
        ("shape", "preimage", "postimage", "delta", "words"),
        [
            ("delta", "false", False, "full", None),
            ("delta", "false", False, "keys", "its log holds keys only"),
            ("delta", "full", False, "full", "its log holds images, which the output shape delta leaves out"),
            ("full", "false", False, "full", "its log holds no images"),
            ("full", "true", False, "full", "unreliable in batches over several rows"),
            ("flat", "true", False, "full", "its log holds no post-images"),
            ("debezium", "false", True, "full", None),
        ],
    )
    def test_log_and_output(
        self,
        settings: BridgeConfig,
        monkeypatch: pytest.MonkeyPatch,
        shape: str,
        preimage: str,
        postimage: bool,
        delta: str,
        words: str | None,
    ) -> None:
        """What the log lacks for the wanted output, or holds in vain, is told, and refuses nothing."""
        options = CdcOptions(enabled=True, preimage=preimage, postimage=postimage, delta=delta, ttl_s=86_400)
        self._servers(monkeypatch, options=options)
        output = settings.output.model_copy(update={"shape": shape})
        lines: list[str] = []
        preflight.check(settings.model_copy(update={"output": output}), report=lines.append)
        told = [line for line in lines if line.startswith("table ")]
        assert len(told) == (0 if words is None else 2)
        assert all(words is not None and words in line for line in told)

    def test_everything_wrong(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every table's and every server's problem is told at once."""
        self._servers(
            monkeypatch,
            captured={"orders": StartupError("no table orders")},
            kafka=StartupError("no Kafka"),
            registry=StartupError("no registry"),
        )
        monkeypatch.setattr(preflight, "value_schema", raising(UnsupportedTypeError("new_type", table="t", column="v")))
        with pytest.raises(StartupError) as caught:
            preflight.check(settings, report=lambda _: None)
        lines = str(caught.value).splitlines()
        assert lines == [
            "no table orders", "CQL type new_type of column 'v' of table t is not supported", "no Kafka", "no registry",
        ]  # fmt: skip

    def test_schemas(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Schemas that the registry will not take, or does not hold, are told by table beforehand; none is written."""
        registry = Registry("mock://preflight-schemas")
        self._servers(monkeypatch, registry=registry)
        asked: list[str] = []

        def check(subject: str, _text: str) -> None:
            asked.append(subject)
            if subject == "lines-value":
                raise IncompatibleSchemaError("no", subject=subject, rule="FULL", reason="no")

        monkeypatch.setattr(registry, "check", check)
        with pytest.raises(StartupError, match=r"^shop.lines: no$"):
            preflight.check(settings, report=lambda _: None)
        assert asked == ["shop.orders-key", "shop.orders-value", "lines-key", "lines-value"]
        manual = settings.model_copy(update={"registry": settings.registry.model_copy(update={"auto_register": False})})
        with pytest.raises(StartupError) as caught:
            preflight.check(manual, report=lambda _: None)
        assert [line.partition(" ")[0] for line in str(caught.value).splitlines()] == ["shop.orders:"] * 2 + [
            "shop.lines:"
        ] * 2

    @pytest.mark.parametrize(("resuming", "has_progress"), [(True, True), (True, False), (False, True)])
    def test_cdc_off(
        self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch, resuming: bool, has_progress: bool
    ) -> None:
        """A job that was reading a table reads on what its log holds; a first start, and validate, refuse."""
        self._servers(monkeypatch, captured={"orders": CdcOffError("shop.orders: CDC is off")})
        monkeypatch.setattr(preflight, "_has_progress", lambda *_: has_progress)
        lines: list[str] = []
        if resuming and has_progress:
            found = preflight.check(settings, report=lines.append, resuming=True)
            assert [one.full_name for one in found.tables] == ["shop.orders", "shop.lines"]
            assert lines[-1] == "Schema registry at mock://preflight answers"
            assert "shop.orders: CDC is off. Going on with what its log holds" in lines
        else:
            with pytest.raises(StartupError, match=r"^shop.orders: CDC is off$"):
                preflight.check(settings, report=lines.append, resuming=resuming)

    @pytest.mark.parametrize("missing", [(), ("create", "delete")])
    def test_rights_to_make_executors(
        self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: tuple[str, ...]
    ) -> None:
        """In a pod whose executors are pods too, rights that are missing are named; elsewhere nobody is asked."""
        self._servers(monkeypatch)
        asked: list[tuple[str, str]] = []

        def missing_pod_verbs(address: str, namespace: str) -> tuple[str, ...]:
            asked.append((address, namespace))
            return missing

        monkeypatch.setattr(kubernetes, "missing_pod_verbs", missing_pod_verbs)
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "none")
        spark = SparkSettings(master="k8s://https://api:443", properties={"spark.kubernetes.namespace": "cdc"})
        in_pods = settings.model_copy(update={"spark": spark})
        preflight.check(in_pods, report=lambda _: None)
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path)
        preflight.check(settings, report=lambda _: None)
        assert asked == []
        lines: list[str] = []
        if missing:
            with pytest.raises(StartupError, match=r"may not create, delete pods in the namespace cdc"):
                preflight.check(in_pods, report=lines.append)
        else:
            preflight.check(in_pods, report=lines.append)
            assert lines[-1] == "Kubernetes at https://api:443 lets us make executors in the namespace cdc"
        assert asked == [("https://api:443", "cdc")]

    def test_one_patience_for_all(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """The servers share one patience, so that three that are down do not take three times as long."""
        patience = self._servers(monkeypatch, scylla=StartupError("no ScyllaDB"))
        clock = iter([0.0, 0.0, 60.0, 100.0])
        with pytest.raises(StartupError, match=r"^no ScyllaDB$"):
            preflight.check(settings, report=lambda _: None, clock=lambda: next(clock))
        assert patience == [60.0, 0.0, 0.0]
