"""The command line: which command does what, and what becomes of errors."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters import connect, kubernetes
from bridge.adapters.connect import asking_registry, make_registry
from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.adapters.scylla.change_log import CdcOffError
from bridge.cli import commands, main, preflight, run
from bridge.cli.status import ProgressSource
from bridge.config.document import BridgeConfig, RegistrySettings, Secret, SparkSettings
from bridge.errors import BridgeError, ConfigError, DataLossError, RetriableError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMillis
from bridge.planning.table_watch import CdcOptions
from schemas.errors import IncompatibleSchemaError, RegistryError, UnsupportedTypeError
from tests.unit.schemas.example_tables import table

CONFIG = """\
name: job
scylla: {contact_points: "127.0.0.1:9042"}
kafka: {bootstrap_servers: "127.0.0.1:9092"}
registry: {url: "http://127.0.0.1:8081"}
tables: [shop.orders, {name: shop.lines, topic: lines, lanes: 2, start: latest}]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "bridge.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def _main(*words: str) -> int:
    return main.main(words)


class TestUsage:
    @pytest.mark.parametrize(
        "words",
        [
            [],
            ["fly"],
            ["run"],
            ["consume", "-c", "x", "--max", "0"],
            ["consume", "-c", "x", "--max", "many"],
            ["status", "-c", "x", "--log-level", "loud"],
        ],
    )
    def test_not_understood(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """A command line that is not understood is refused with status 2."""
        assert _main(*words) == 2
        assert "error: " in capsys.readouterr().err

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The help names every command and imports none of them."""
        assert _main("--help") == 0
        text = capsys.readouterr().out
        for name in ("run", "validate", "status", "consume", "example", "local", "demo"):
            assert f"    {name} " in text

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The version is the installed distribution's."""
        assert _main("--version") == 0
        assert capsys.readouterr().out.startswith("scylla-cdc-bridge ")

    def test_example(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The printed example is a good configuration."""
        assert _main("example") == 0
        (tmp_path / "new.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
        assert _main("validate", "-c", str(tmp_path / "new.yaml")) == 0


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (ConfigError(["bridge.yaml:1: a", "bridge.yaml:2: b"]), 2),
            (StartupError("Kafka at a:1 is not reachable\ntable a.b: no CDC"), 2),
            (RetriableError("Kafka at a:1 went away"), 1),
            (DataLossError("gone"), 1),
            (RegistryError("unknown", retriable=False), 1),
            (KeyboardInterrupt(), 130),
        ],
    )
    def test_status(
        self, error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What was refused ends with 2, what failed with 1; each line of the message is marked as an error."""
        monkeypatch.setattr(commands, "status", _raising(error))
        assert _main("status", "-c", "x") == status
        lines = capsys.readouterr().err.splitlines()
        assert lines == [f"scylla-cdc-bridge: error: {line}" for line in str(error).splitlines()]

    def test_unexpected(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """An error that nobody thought of has its type in the message, and a traceback only at level debug."""
        monkeypatch.setattr(commands, "status", _raising(ZeroDivisionError("by zero")))
        assert _main("status", "-c", "x") == 1
        text = capsys.readouterr().err
        assert text.startswith("scylla-cdc-bridge: error: ZeroDivisionError: by zero (please report this")
        assert "Traceback" not in text
        assert _main("status", "-c", "x", "--log-level", "debug") == 1
        assert "Traceback" in capsys.readouterr().err

    def test_closed_pipe(self, tmp_path: Path) -> None:
        """A reader that has seen enough, as `head`, is no failure."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        saved = os.dup(1)
        try:
            os.dup2(write_end, 1)
            os.close(write_end)
            code = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-m", "bridge.cli.main", "example"])
        finally:
            os.dup2(saved, 1)
            os.close(saved)
        assert code == 0

    def test_full_disk_behind_standard_output(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It is told as what it is."""
        monkeypatch.setattr(main, "_example", _raising(OSError(errno.ENOSPC, "No space left on device")))
        assert _main("example") == 1
        assert capsys.readouterr().err == (
            "scylla-cdc-bridge: error: standard output can't be written: No space left on device\n"
        )

    def test_folder_that_is_gone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The file is what is named, which can't be there any more."""
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert _main("validate", "-c", "x.yaml") == 2
        assert capsys.readouterr().err == "scylla-cdc-bridge: error: x.yaml: can't be read: No such file or directory\n"

    def test_terminal_without_letters(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names that can't be shown are shown escaped, as with LC_ALL=C."""
        text = Path(config).read_text(encoding="utf-8").replace("shop.orders", 'shop.Auf"träge', 1)
        Path(config).write_text(text, encoding="utf-8")
        shown = io.BytesIO()
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(shown, "ascii", "backslashreplace", write_through=True))
        assert _main("validate", "-c", config) == 2
        assert rb"""tables[0].name: 'shop.Auf"tr\xe4ge' is not keyspace.table (""" in shown.getvalue()

    def test_no_streams(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever closes standard output and error gets the exit status alone."""
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, None)
        assert _main("example") == 0
        assert _main("validate", "-c", str(tmp_path / "nothing.yaml")) == 2


def _raising(error: BaseException) -> Any:
    def command(_arguments: argparse.Namespace, *_: object) -> int:
        raise error

    return command


class TestRun:
    def test_becomes_the_job(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """`run` replaces itself with the Python job, so that the job gets the signals."""
        called: list[Any] = []
        monkeypatch.setattr(os, "execv", lambda *words: called.append(words))
        with pytest.raises(AssertionError, match="execv came back"):
            run.run(argparse.Namespace(config=config, once=True, log_level="debug"))
        assert called == [
            (sys.executable, [sys.executable, "-m", "spark.job", "-c", config, "--log-level", "debug", "--once"])
        ]

    def test_bad_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A wrong file is refused before Spark is started."""
        monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("started"))
        assert _main("run", "-c", str(tmp_path / "nothing.yaml")) == 2
        assert "nothing.yaml: can't be read" in capsys.readouterr().err


class TestValidate:
    def test_plan(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A good file is followed by what the job would do with it."""
        assert _main("validate", "-c", config) == 0
        text = capsys.readouterr().out
        assert "no problem found" in text
        for part in (
            "topic           shop.orders",
            "job.progress.shop.lines",
            "lanes           2",
            "start           latest",
            "shape           delta, by partition key",
            "headers         cdc.position",
            "dead letters    none: ",
            "retried writes  carried like other changes",
        ):
            assert part in text

    def test_online(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """With --online the servers and tables are looked at too."""
        asked: list[str] = []
        monkeypatch.setattr(preflight, "check", lambda config, report: asked.append(config.name))
        assert _main("validate", "-c", config, "--online") == 0
        assert asked == ["job"]
        capsys.readouterr()
        monkeypatch.setattr(preflight, "check", lambda config, report: _raising(StartupError("no CDC"))(None))
        assert _main("validate", "-c", config, "--online") == 2
        told = capsys.readouterr()
        assert "error: no CDC" in told.err
        # "No problem found" would be wrong by the next line.
        assert told.out == f"{config}: nothing wrong in the file itself; now asking the servers\n"


class TestStatus:
    @pytest.fixture(autouse=True)
    def _kafka(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cursor = Cursor.at_start_of(UnixMillis(1_700_000_000_000))
        raw = LaneProgress(0, Layout(1, cursor), cursor).to_bytes()
        source = ProgressSource(lambda topic: int(topic == "job.progress.shop.lines"), lambda *_: (raw, 0))
        monkeypatch.setattr(commands, "open_kafka", lambda *_, **__: None)
        monkeypatch.setattr(ProgressSource, "of_kafka", lambda *_: source)

    def test_plain(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a terminal there are plain lines."""
        assert _main("status", "-c", config) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["table", "shop.orders", "shop.lines"]

    def test_json(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """With --json there is one document."""
        assert _main("status", "-c", config, "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert [len(one["lanes"]) for one in document["tables"]] == [0, 1]

    def test_watch(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """With --watch it is shown again and again until Ctrl-C, which is the usual end."""
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=pause, time_ns=lambda: 1_700_000_001_000_000_000))
        assert _main("status", "-c", config, "--json", "--watch") == 0
        assert len(capsys.readouterr().out.splitlines()) == 3

    def test_terminal(self, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """On a terminal there is a table."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert _main("status", "-c", config) == 0
        assert "┃" in capsys.readouterr().out


class _Reader:
    """A topic with one tombstone, then Ctrl-C."""

    def __init__(self, *_: object, **__: object) -> None:
        self._polls = [[Record("lines", 0, 3, None, None, {}, 0)]]

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        assert (topic, partitions, from_end) == ("lines", [0, 1], True)

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        if not self._polls:
            raise KeyboardInterrupt
        return self._polls.pop(0)


class TestConsume:
    @pytest.fixture(autouse=True)
    def _servers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        admin = SimpleNamespace(partitions=lambda topic: 2 if topic == "lines" else 0)
        monkeypatch.setattr(commands, "open_kafka", lambda *_, **__: admin)
        registry = SimpleNamespace(get=lambda _: "", close=lambda: None)
        monkeypatch.setattr(commands, "open_registry", lambda *_, **__: registry)
        monkeypatch.setattr(commands, "CommittedReader", _Reader)

    @pytest.mark.parametrize("which", [["shop.lines"], ["--topic", "lines"]])
    def test_prints_until_interrupted(self, config: str, which: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Records of a table's topic, or of a topic, are printed; Ctrl-C is a clean end."""
        assert _main("consume", "-c", config, *which) == 0
        shown = capsys.readouterr()
        assert shown.out == "1970-01-01T00:00:00.000Z lines[0]@3 a tombstone (no key)\n"
        assert shown.err.startswith("waiting for what comes into lines from now on (--from-beginning shows all")

    @pytest.mark.parametrize(
        ("which", "words"),
        [
            ([], "name either a TABLE or a --topic"),
            (["shop.lines", "--topic", "lines"], "name either a TABLE or a --topic"),
            (["shop.others"], "table shop.others is not among the tables of"),
            (["shop.orders"], "topic shop.orders does not exist"),
        ],
    )
    def test_refused(self, config: str, which: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
        """What can't be read is refused with what is known instead."""
        assert _main("consume", "-c", config, *which) == 2
        assert words in capsys.readouterr().err


class TestSchemas:
    @pytest.fixture(autouse=True)
    def registry(self, monkeypatch: pytest.MonkeyPatch) -> Registry:
        log = SimpleNamespace(check_captured=lambda keyspace, name: table({"pk": "int"}, keyspace=keyspace, name=name))
        monkeypatch.setattr(commands, "open_scylla", lambda *_, **__: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(commands, "ChangeLog", lambda _: log)
        registry = Registry("mock://schemas-command")
        monkeypatch.setattr(commands, "open_registry", lambda *_, **__: registry)
        return registry

    def test_printed(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Each table's schemas are printed with their subjects, or as documents for programs; all tables or one."""
        assert _main("schemas", "-c", config) == 0
        headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
        assert headings[0] == "# shop.orders, keys; subject shop.orders-key"
        assert [line.rpartition(" ")[2] for line in headings[1:]] == ["shop.orders-value", "lines-key", "lines-value"]
        assert _main("schemas", "-c", config, "shop.lines", "--json") == 0
        documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [document["subject"] for document in documents] == ["lines-key", "lines-value"]
        assert json.loads(documents[0]["schema"])["name"] == "Key"
        assert _main("schemas", "-c", config, "shop.other") == 2

    def test_registered(self, config: str, registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
        """Asked to, the command registers them and says their ids."""
        assert _main("schemas", "-c", config, "shop.lines", "--json", "--register") == 0
        documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for document in documents:
            assert registry.require(document["subject"], document["schema"]) == document["id"]
        assert _main("schemas", "-c", config, "shop.lines", "--register") == 0
        assert capsys.readouterr().out.splitlines()[0] == f"lines-key: id {documents[0]['id']}"


class TestDelegated:
    def test_local(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """`local` is done by its own module, with its own arguments."""
        assert _main("local", "status", "--folder", str(tmp_path)) == 2
        assert "No local stack runs in" in capsys.readouterr().err


class TestPreflight:
    @pytest.fixture
    def settings(self, config: str) -> BridgeConfig:
        return commands.loader.load(config)

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
        monkeypatch.setattr(
            preflight, "value_schema", _raising(UnsupportedTypeError("new_type", table="t", column="v"))
        )
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


class TestRegistry:
    @pytest.mark.parametrize(("retriable", "kind"), [(True, RetriableError), (False, StartupError)])
    def test_errors(self, retriable: bool, kind: type[BridgeError]) -> None:
        """The registry's errors become ours: what may pass is tried again, the rest is refused."""

        def fail() -> None:
            raise RegistryError("no", retriable=retriable)

        with pytest.raises(kind, match=r"^no$"):
            asking_registry(fail)

    def test_credentials_do_not_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The registry's password is read where it is used, and shows nowhere."""
        monkeypatch.setenv("PASSWORD_OF_TEST", "hunter2")
        settings = {"url": "http://a:1", "username": "u", "password": {"env": "PASSWORD_OF_TEST"}}
        registry = make_registry(RegistrySettings.model_validate(settings))
        assert "hunter2" not in repr(registry)
        registry.close()

    def test_patience_is_the_configurations(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Unless told otherwise, a server is waited for as long as the configuration says."""
        asked: list[float] = []
        monkeypatch.setattr(
            connect,
            "with_patience",
            lambda _what, _address, _attempt, *, patience_s, report, setting: asked.append(patience_s),
        )
        settings = commands.loader.load(config)
        connect.open_scylla(settings, report=lambda _: None)
        connect.open_scylla(settings, report=lambda _: None, patience_s=1)
        assert asked == [60, 1]
