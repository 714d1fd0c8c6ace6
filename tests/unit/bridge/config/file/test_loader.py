"""Reading configuration files and options, and reporting their problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import BridgeConfig, SourceConfig
from bridge.config.file.loader import from_options, load
from bridge.errors import ConfigError

GOOD = """\
name: orders
scylla:
  contact_points: [127.0.0.1:9042]
kafka:
  bootstrap_servers: 127.0.0.1:9092
registry:
  url: http://127.0.0.1:8081
tables:
  - shop.orders
"""


def _problems(folder: Path, text: str) -> list[str]:
    path = folder / "bridge.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_good(tmp_path: Path) -> None:
    """A file with the required settings is valid; a section without settings has its defaults."""
    path = tmp_path / "bridge.yaml"
    path.write_text(GOOD + "reading:\n  # confidence_ms: 1\nspark:\n", encoding="utf-8")
    config = load(path)
    assert config.tables[0].table == "orders"
    assert config.reading.confidence_ms == 10_000


def test_instant(tmp_path: Path) -> None:
    """YAML's own timestamps are accepted with a UTC offset, and refused without."""
    path = tmp_path / "bridge.yaml"
    path.write_text(GOOD + "reading: {start: 2026-01-31T12:00:00Z}\n", encoding="utf-8")
    assert str(load(path).reading.start) == "2026-01-31 12:00:00+00:00"
    (problem,) = _problems(tmp_path, GOOD + "reading:\n  start: 2026-01-31T12:00:00\n")
    assert problem.startswith("bridge.yaml:11: reading.start: give the instant with its UTC offset")


def test_all_at_once(tmp_path: Path) -> None:
    """All problems are reported at once, in the order of their lines."""
    text = GOOD.replace("orders\nscylla", "with blanks\nscylla").replace("127.0.0.1:9092", "127.0.0.1")
    problems = _problems(tmp_path, text + "reading:\n  confidence: 5\n  leeway_ms: -1\n")
    assert [problem.split(": ")[0] for problem in problems] == [
        "bridge.yaml:1", "bridge.yaml:5", "bridge.yaml:11", "bridge.yaml:12",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("reading:\n  confidence: 1", "11: reading.confidence: unknown key; did you mean confidence_ms?"),
        ("confidence_ms: 1", "10: confidence_ms: unknown key; did you mean reading.confidence_ms?"),
        ("readings: {}", "10: readings: unknown key; did you mean reading?"),
        ("startup:\n  wait: 1", "11: startup.wait: unknown key; known here: patience_s"),
        ("  - {name: a.b, topics: x}", "10: tables[1].topics: unknown key; did you mean topic?"),
        ("  - name: a.b\n    lanes: 0", "11: tables[1].lanes: must be a whole number from 1 to 1024, not 0"),
        ("  - a", "10: tables[1].name: 'a' is not keyspace.table (quote a part as in CQL: ks.\"MyTable\")"),
        ("  - {topic: a}", "10: tables[1].name: required, but missing; it is keyspace.table"),
        (
            "reading: {confidence_ms: soon}",
            "10: reading.confidence_ms: must be a whole number from 0 to 86400000, not 'soon'",
        ),
        (
            "reading: {confidence_ms: }",
            "10: reading.confidence_ms: must be a whole number from 0 to 86400000, but is empty",
        ),
        (
            "reading: {confidence_ms: [1]}",
            "10: reading.confidence_ms: must be a whole number from 0 to 86400000, not a list",
        ),
        (
            "reading: {start: soon}",
            "10: reading.start: must be one of earliest, latest or an instant with its UTC offset, not 'soon'",
        ),
        ("reading: 5", "10: reading: must be a section with settings of its own, not 5"),
        ("reading: [a]", "10: reading: must be a section with settings of its own, not a list"),
        ("spark: {properties: {a: [1]}}", "10: spark.properties.a: must be text, a number or a boolean, not a list"),
        ("name: twice", "10: name: given twice, first in line 1"),
        ("reading:\n  leeway_ms: 1\n  leeway_ms: 2", "12: reading.leeway_ms: given twice, first in line 11"),
        ("1: x", "10: a key must be text; put it in quotes"),
        ("  - shop.orders", "10: tables[1]: shop.orders: named twice among `tables`"),
        (
            "publishing:\n  topic: a\n  dead_letter_topic: a",
            "12: publishing.dead_letter_topic: a: a dead-letter topic can't be a change or progress topic too",
        ),
        (
            "publishing:\n  topic: '{tabel}'",
            "11: publishing.topic: '{tabel}' has '{tabel}'; the placeholders are {name}, {keyspace}, {table}",
        ),
    ],
)
def test_problem(tmp_path: Path, more: str, expected: str) -> None:
    """A problem is reported with its line, its setting, and what would be right."""
    assert _problems(tmp_path, f"{GOOD}{more}\n") == [f"bridge.yaml:{expected}"]


def test_missing(tmp_path: Path) -> None:
    """Each missing required setting is reported."""
    assert _problems(tmp_path, "name: a\nscylla:\n") == [
        "bridge.yaml: kafka.bootstrap_servers: required, but missing; it is a list of host:port",
        "bridge.yaml: registry.url: required, but missing; it is an http or https address such as http://host:8081",
        "bridge.yaml: tables: required, but missing; it is a list with at least one entry",
        "bridge.yaml:2: scylla.contact_points: required, but missing; it is a list of host:port",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": is empty; `scylla-cdc-bridge example` prints a configuration to begin with"),
        ("# nothing\n", ": is empty; `scylla-cdc-bridge example` prints a configuration to begin with"),
        ("- a\n", ":1: must be a mapping with sections such as scylla, kafka and tables, not a list"),
        ("text\n", ":1: must be a mapping with sections such as scylla, kafka and tables, not a single value"),
        ("a: 1\nb: c: d\n", ":2: not YAML: mapping values are not allowed here"),
        (
            "a: 1\n\tb: 2\n",
            ":2: not YAML: while scanning for the next token, found character that cannot start any token (a tab; YAML "
            "allows only blanks for indentation)",
        ),
        ("a: \0\n", ":1: not YAML: special characters are not allowed"),
        ("a: 1\nb: 2026-02-31\n", ":2: looks like a date or a number, but is not a valid one; put it in quotes"),
        ("a: 1\n---\nb: 1\n", ":2: not YAML: expected a single document in the stream, but found another document"),
        ("[" * 1000, ": not YAML that can be read: nested too deeply"),
    ],
)
def test_not_a_configuration(tmp_path: Path, text: str, expected: str) -> None:
    """A file that is no configuration is refused, with the line of the problem."""
    assert _problems(tmp_path, text) == [f"bridge.yaml{expected}"]


def test_unreadable(tmp_path: Path) -> None:
    """A file that is missing, a folder, or not text is refused with the reason."""
    with pytest.raises(ConfigError, match=r"nothing\.yaml: can't be read: No such file or directory"):
        load(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(at byte 6\)"):
        load(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    "more",
    [
        "scylla: {contact_points: 'a:1', username: u, password: hunter2}",
        "scylla: {contact_points: 'a:1', username: u, password: {hunter2}}",
        "scylla: {contact_points: 'a:1', username: u, password: [hunter2]}",
        "scylla: {contact_points: 'a:1', username: u, password: {env: [hunter2]}}",
        "scylla: {contact_points: 'a:1', password hunter2}",
        "scylla: {contact_points: 'a:1', password=hunter2}",
        "scylla: {contact_points: 'user:hunter2@a:1'}",
        "scylla: {contact_points: 'a:1', passwort: hunter2}",
        "scylla: {contact_points: 'a:1', password: *hunter2}",
        "scylla: {contact_points: 'a:1', password: !hunter2 x}",
        "scylla: {contact_points: 'a:1', password: \"hunter2}",
        "scylla: {contact_points: 'a:1', password: x: hunter2}",
        "kafka: {bootstrap_servers: 'a:1', properties: {sasl.password: hunter2}}",
        "kafka: {bootstrap_servers: 'a:1', properties: {sasl.password: [hunter2]}}",
        "kafka: {bootstrap_servers: 'a:1', properties: hunter2}",
        "registry: {url: 'ftp://user:hunter2@host'}",
        "password: hunter2\npassword: hunter2",
    ],
)
def test_secrets_stay_secret(tmp_path: Path, more: str) -> None:
    """No message shows a password that the file has in plain text."""
    assert "hunter2" not in "\n".join(_problems(tmp_path, f"name: a\ntables: [a.b]\n{more}\n"))


@pytest.mark.parametrize(
    ("value", "shown"), [("'yes'", "'yes'"), ("'true'", "'true'"), ("1", "1"), ("1.0", "1.0"), ("'on'", "'on'")]
)
def test_only_a_boolean_permits_a_loss(tmp_path: Path, value: str, shown: str) -> None:
    """A value that other boolean settings accept as true is refused."""
    (problem,) = _problems(tmp_path, f"{GOOD}reading:\n  accept_data_loss: {value}\n")
    assert problem == f"bridge.yaml:11: reading.accept_data_loss: must be true or false, not {shown}"


@pytest.mark.parametrize("value", [True, False])
def test_loss_that_is_permitted(tmp_path: Path, value: bool) -> None:
    """A boolean is accepted."""
    path = tmp_path / "bridge.yaml"
    path.write_text(f"{GOOD}reading: {{accept_data_loss: {str(value).lower()}}}\n", encoding="utf-8")
    assert load(path).reading.accept_data_loss is value


OPTIONS = {"scylla.contact_points": "127.0.0.1:9042", "table": "shop.orders"}


class TestOptions:
    def test_source(self) -> None:
        """Flat names become nested settings, texts become the settings' types, and case does not matter."""
        more = {"Reading.Confidence_MS": "0", "lanes": "3", "table.start": "latest", "scylla.username": "u"}
        config = from_options({**OPTIONS, **more, "scylla.password.env": "P"}, SourceConfig)
        assert (config.reading.confidence_ms, config.lanes, config.table.start) == (0, 3, "latest")
        assert config.table.name == "shop.orders"
        assert config.scylla.password is not None
        assert config.scylla.password.env == "P"

    @pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
    def test_boolean(self, text: str, value: bool) -> None:
        """A setting that takes only a boolean in the file takes its text as an option."""
        config = from_options({**OPTIONS, "reading.accept_data_loss": text}, SourceConfig)
        assert config.reading.accept_data_loss is value

    def test_whole_configuration(self) -> None:
        """Several tables are separated by commas, and a free property keeps the dots of its name."""
        config = from_options(
            {
                "name": "a",
                "scylla.contact_points": "a:1,b:2",
                "kafka.bootstrap_servers": "c:3",
                "kafka.properties.socket.nagle.disable": "true",
                "registry.url": "http://d",
                "tables": 'a.b, c."De"',
            },
            BridgeConfig,
        )
        assert [table.table for table in config.tables] == ["b", "De"]
        assert config.kafka.properties == {"socket.nagle.disable": "true"}

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"reading.confidence": "0"}, "option reading.confidence: unknown; did you mean reading.confidence_ms?"),
            ({"confidence_ms": "0"}, "option confidence_ms: unknown; did you mean reading.confidence_ms?"),
            ({"zzz": "0"}, "option zzz: unknown; options are named like the settings of the file"),
            ({"lanes": "x"}, "option lanes: must be a whole number from 1 to 1024, not 'x'"),
            *(
                (
                    {"reading.accept_data_loss": text},
                    f"option reading.accept_data_loss: must be true or false, not '{text}'",
                )
                for text in ("yes", "1", "")
            ),
            ({"table": "x"}, "option table.name: 'x' is not keyspace.table (quote a part as in CQL: ks.\"MyTable\")"),
            (
                {"scylla.contact_points": ""},
                "option scylla.contact_points[0]: '' is not host:port",
            ),
        ],
    )
    def test_problem(self, options: dict[str, str], expected: str) -> None:
        """A problem is reported with its option."""
        with pytest.raises(ConfigError) as caught:
            from_options({**OPTIONS, **options}, SourceConfig)
        assert caught.value.problems == [expected]

    def test_plain_secret(self) -> None:
        """A secret as an option is refused; the message does not show it, and says what to do instead."""
        options = {**OPTIONS, "scylla.username": "u", "scylla.password": "hunter2", "scylla.password.env": "P"}
        with pytest.raises(ConfigError) as caught:
            from_options(options, SourceConfig)
        assert caught.value.problems == [
            "option scylla.password: a secret can't be an option: give scylla.password.env or scylla.password.file"
        ]

    def test_missing(self) -> None:
        """Each missing required option is reported with its whole name."""
        with pytest.raises(ConfigError) as caught:
            from_options({}, SourceConfig)
        assert [problem.split(":")[0] for problem in caught.value.problems] == [
            "option scylla.contact_points",
            "option table.name",
        ]
