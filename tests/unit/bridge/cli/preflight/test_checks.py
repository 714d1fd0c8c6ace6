"""What the checks before a start accept, refuse and report."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters import kubernetes
from bridge.adapters.registry.client import Registry
from bridge.adapters.scylla.change_log import CdcOffError
from bridge.cli.preflight import checks, kafka, tables
from bridge.cli.preflight import registry as registry_check
from bridge.config.document import BridgeConfig, Secret, SparkSettings
from bridge.config.file import loader
from bridge.errors import StartupError
from bridge.planning.table_watch import CdcOptions
from schemas.errors import IncompatibleSchemaError, UnsupportedTypeError
from tests.unit.bridge.cli.command_line import raising
from tests.unit.schemas.example_tables import table


class TestCheckAll:
    @pytest.fixture
    def settings(self, config: str) -> BridgeConfig:
        return loader.load(config)

    def _servers(self, monkeypatch: pytest.MonkeyPatch, **answers: object) -> list[float]:
        """Set up servers that answer with an object or an error; return the patience that each gets."""
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
        monkeypatch.setattr(tables, "open_scylla", opening(answers.get("scylla", session)))
        monkeypatch.setattr(
            kafka, "open_kafka", opening(answers.get("kafka", SimpleNamespace(topic_settings=lambda _: {})))
        )
        monkeypatch.setattr(registry_check, "open_registry", opening(answers.get("registry", registry)))
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
            replicas_by_data_center=lambda _: answers.get("replicas", {"here": 3}),
        )
        monkeypatch.setattr(tables, "ChangeLog", lambda _: log)
        return patience

    def test_good(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without problems, each server is reported as answering, and the result has the tables' schemas."""
        self._servers(monkeypatch)
        lines: list[str] = []
        found = checks.check_all(settings, report=lines.append)
        assert [one.full_name for one in found.tables] == ["shop.orders", "shop.lines"]
        assert found.nodes == 3
        assert lines[0] == "ScyllaDB at a:1 answers (3 nodes known)"
        assert len(lines) == 3

    def test_one_replica_is_replaced_by_quorum(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """A consistency of one replica, which could hide a generation, is replaced, and this is reported."""
        self._servers(monkeypatch)
        lines: list[str] = []
        scylla = settings.scylla.model_copy(update={"metadata_consistency": "ONE"})
        checks.check_all(settings.model_copy(update={"scylla": scylla}), report=lines.append)
        assert lines[1].startswith("scylla.metadata_consistency: ONE is replaced by QUORUM")

    def test_topics_that_lose_records(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """A progress topic with deletion is reported, and a compacted change topic whose consumers need all changes."""
        kept = {
            "job.progress.shop.orders": {"cleanup.policy": "compact,delete"},
            "shop.orders": {"cleanup.policy": "compact,delete"},
            "job.progress.shop.lines": {"cleanup.policy": "compact"},
            "lines": {"cleanup.policy": "delete"},
        }
        self._servers(monkeypatch, kafka=SimpleNamespace(topic_settings=lambda _: kept))
        lines: list[str] = []
        checks.check_all(settings, report=lines.append)
        reported = [line for line in lines if "cleanup.policy" in line]
        assert [line.partition(":")[0] for line in reported] == [
            "progress topic job.progress.shop.orders",
            "change topic shop.orders",
        ]
        progress = "job.progress.shop.orders"
        flat = settings.model_copy(update={"output": settings.output.model_copy(update={"shape": "flat"})})
        assert len(list(kafka.find_losing_topics(flat, flat.tables[0], kept))) == 1
        assert len(list(kafka.find_losing_topics(flat, flat.tables[0], {progress: {"cleanup.policy": "delete"}}))) == 1

    def test_start_in_the_future(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """A table whose start is in the future is reported; `latest` and past starts are not."""
        self._servers(monkeypatch)
        lines: list[str] = []
        reading = settings.reading.model_copy(update={"start": datetime(2999, 1, 1, tzinfo=UTC)})
        checks.check_all(settings.model_copy(update={"reading": reading}), report=lines.append)
        assert [line for line in lines if "start" in line] == [
            "table shop.orders: its start, 2999-01-01T00:00:00+00:00, is in the future; without progress the table is "
            "refused"
        ]

    def test_unencrypted_secrets_are_warnings(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Secrets that are sent unencrypted are warnings, apart from the other reports."""
        self._servers(monkeypatch)
        scylla = settings.scylla.model_copy(update={"username": "reader", "password": Secret(env="NOBODYS")})
        lines: list[str] = []
        warnings: list[str] = []
        config = settings.model_copy(update={"scylla": scylla})
        checks.check_all(config, report=lines.append, warn=warnings.append)
        assert len(lines) == 3
        assert [words.partition(" is sent")[0] for words in warnings] == ["scylla.password"]

    @pytest.mark.parametrize(
        ("replicas", "level", "is_warned"),
        [
            ({"here": 3, "there": 2}, "LOCAL_QUORUM", True),
            ({"here": 3, "there": 2}, "LOCAL_ONE", True),
            ({"here": 3, "there": 2}, "QUORUM", False),
            ({"here": 3, "there": 2}, "ALL", False),
            ({"here": 3}, "LOCAL_QUORUM", False),
            ({}, "LOCAL_QUORUM", False),
        ],
    )
    def test_writers_in_other_data_centers_are_a_warning(
        self,
        settings: BridgeConfig,
        monkeypatch: pytest.MonkeyPatch,
        replicas: dict[str, int],
        level: str,
        is_warned: bool,
    ) -> None:
        """One for each keyspace, if a local quorum read may miss what is written elsewhere; nothing is refused."""
        self._servers(monkeypatch, replicas=replicas)
        scylla = settings.scylla.model_copy(update={"consistency": level})
        lines: list[str] = []
        warnings: list[str] = []
        config = settings.model_copy(update={"scylla": scylla})
        checks.check_all(config, report=lines.append, warn=warnings.append)
        assert len(config.tables) > 1
        assert len(warnings) == is_warned
        for words in warnings:
            assert words.startswith(
                "keyspace shop has replicas in 2 data centers (here: 3, there: 2), and scylla.consi"
            )
            assert f"is {level}: " in words
            assert "reading.confidence_ms" in words
        checks.check_all(config, report=lines.append)
        assert [line for line in lines if "data centers" in line] == warnings

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
        """What the log lacks for the output, or holds without use, is reported and refuses nothing."""
        options = CdcOptions(enabled=True, preimage=preimage, postimage=postimage, delta=delta, ttl_s=86_400)
        self._servers(monkeypatch, options=options)
        output = settings.output.model_copy(update={"shape": shape})
        lines: list[str] = []
        checks.check_all(settings.model_copy(update={"output": output}), report=lines.append)
        reported = [line for line in lines if line.startswith("table ")]
        assert len(reported) == (0 if words is None else 2)
        assert all(words is not None and words in line for line in reported)

    def test_everything_wrong(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """The problems of all tables and servers are reported at once."""
        self._servers(
            monkeypatch,
            captured={"orders": StartupError("no table orders")},
            kafka=StartupError("no Kafka"),
            registry=StartupError("no registry"),
        )
        monkeypatch.setattr(tables, "value_schema", raising(UnsupportedTypeError("new_type", table="t", column="v")))
        with pytest.raises(StartupError) as caught:
            checks.check_all(settings, report=lambda _: None)
        lines = str(caught.value).splitlines()
        assert lines == [
            "no table orders", "CQL type new_type of column 'v' of table t is not supported", "no Kafka", "no registry",
        ]  # fmt: skip

    def test_schemas(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Schemas that the registry refuses or does not hold are reported by table; none is registered."""
        registry = Registry("mock://preflight-schemas")
        self._servers(monkeypatch, registry=registry)
        asked: list[str] = []

        def check(subject: str, _text: str) -> None:
            asked.append(subject)
            if subject == "lines-value":
                raise IncompatibleSchemaError("no", subject=subject, rule="FULL", reason="no")

        monkeypatch.setattr(registry, "check", check)
        with pytest.raises(StartupError, match=r"^shop.lines: no$"):
            checks.check_all(settings, report=lambda _: None)
        assert asked == ["shop.orders-key", "shop.orders-value", "lines-key", "lines-value"]
        manual = settings.model_copy(update={"registry": settings.registry.model_copy(update={"auto_register": False})})
        with pytest.raises(StartupError) as caught:
            checks.check_all(manual, report=lambda _: None)
        assert [line.partition(" ")[0] for line in str(caught.value).splitlines()] == ["shop.orders:"] * 2 + [
            "shop.lines:"
        ] * 2

    @pytest.mark.parametrize(("resuming", "has_progress"), [(True, True), (True, False), (False, True)])
    def test_cdc_off(
        self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch, resuming: bool, has_progress: bool
    ) -> None:
        """A job that has published changes of the table continues with its log; a first start and validate refuse."""
        self._servers(monkeypatch, captured={"orders": CdcOffError("shop.orders: CDC is off")})
        monkeypatch.setattr(kafka, "has_progress", lambda *_: has_progress)
        lines: list[str] = []
        if resuming and has_progress:
            found = checks.check_all(settings, report=lines.append, resuming=True)
            assert [one.full_name for one in found.tables] == ["shop.orders", "shop.lines"]
            assert lines[-1] == "Schema registry at mock://preflight answers"
            assert "shop.orders: CDC is off. The job publishes what its log still holds" in lines
        else:
            with pytest.raises(StartupError, match=r"^shop.orders: CDC is off$"):
                checks.check_all(settings, report=lines.append, resuming=resuming)

    @pytest.mark.parametrize("missing", [(), ("create", "delete")])
    def test_rights_to_create_executors(
        self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: tuple[str, ...]
    ) -> None:
        """In a pod whose executors are pods, missing rights are reported; elsewhere they are not checked."""
        self._servers(monkeypatch)
        asked: list[tuple[str, str]] = []

        def missing_pod_verbs(address: str, namespace: str) -> tuple[str, ...]:
            asked.append((address, namespace))
            return missing

        monkeypatch.setattr(kubernetes, "missing_pod_verbs", missing_pod_verbs)
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "none")
        spark = SparkSettings(master="k8s://https://api:443", properties={"spark.kubernetes.namespace": "cdc"})
        in_pods = settings.model_copy(update={"spark": spark})
        checks.check_all(in_pods, report=lambda _: None)
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path)
        checks.check_all(settings, report=lambda _: None)
        assert asked == []
        lines: list[str] = []
        if missing:
            with pytest.raises(StartupError, match=r"may not create, delete pods in the namespace cdc"):
                checks.check_all(in_pods, report=lines.append)
        else:
            checks.check_all(in_pods, report=lines.append)
            assert lines[-1] == "Kubernetes at https://api:443 allows executors in the namespace cdc"
        assert asked == [("https://api:443", "cdc")]

    def test_one_patience_for_all(self, settings: BridgeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        """The servers share one patience, so three that are down do not take three times as long."""
        patience = self._servers(monkeypatch, scylla=StartupError("no ScyllaDB"))
        clock = iter([0.0, 0.0, 60.0, 100.0])
        with pytest.raises(StartupError, match=r"^no ScyllaDB$"):
            checks.check_all(settings, report=lambda _: None, clock=lambda: next(clock))
        assert patience == [60.0, 0.0, 0.0]
