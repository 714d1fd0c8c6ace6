"""The configuration: defaults, secrets, tables and topics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bridge.config.document import BridgeConfig, Secret, SourceConfig, validate
from bridge.config.reference.json_schema import json_schema
from bridge.errors import StartupError

SMALLEST: dict[str, Any] = {
    "name": "orders",
    "scylla": {"contact_points": "10.0.0.1:9042, [::1]:9042"},
    "kafka": {"bootstrap_servers": ["10.0.0.2:9092"]},
    "registry": {"url": "http://10.0.0.3:8081"},
    "tables": ["shop.orders", {"name": 'Shop."LineItems"', "topic": "{table}.lines", "lanes": 3}],
}


def _with(path: str, value: object) -> dict[str, Any]:
    section, _, name = path.partition(".")
    return {**SMALLEST, section: {**SMALLEST.get(section, {}), name: value} if name else value}


def test_smallest() -> None:
    """Required settings are enough; a table may be just its name, and addresses may be one text."""
    config = validate(SMALLEST)
    assert config.scylla.contact_points == ("10.0.0.1:9042", "[::1]:9042")
    assert [(table.keyspace, table.table) for table in config.tables] == [("shop", "orders"), ("shop", "LineItems")]
    assert config.reading.confidence_ms == 10_000


def test_topics() -> None:
    """A table's own topic replaces the template, and placeholders work in both."""
    first, _ = (
        config := validate({**SMALLEST, "tables": ["shop.orders", {"name": "shop.a", "topic": "x.{table}"}]})
    ).tables
    assert config.topic_of(first) == "shop.orders"
    assert config.topic_of(config.table("shop", "a")) == "x.a"
    assert config.progress_topic_of(first) == "orders.progress.shop.orders"
    with pytest.raises(KeyError):
        config.table("shop", "nothing")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("tables", ["a.b", "A.B"], "named twice"),
        ("tables", ["a.b", {"name": "a.c", "topic": "a.b"}], "each table needs a change topic"),
        ("publishing.dead_letter_topic", "{keyspace}.{table}", "shop.orders: a dead-letter topic can't be a change"),
        ("publishing.dead_letter_topic", "shop_orders", "a dead-letter topic can't be a change"),
        ("tables", ["a_b.c", "a.b_c"], "a.b_c (and a_b.c, which Kafka takes for the same name)"),
        ("publishing.topic", "{keyspace}.{tabel}", "publishing.topic: '{keyspace}.{tabel}' has '{tabel}'"),
        ("publishing.topic", "{keyspace}.{table", "publishing.topic: '{keyspace}.{table' has '{'"),
        ("publishing.dead_letter_topic", "{foo}.x", "publishing.dead_letter_topic: '{foo}.x' has '{foo}'"),
        ("tables", [{"name": "a.b", "topic": "{Table}"}], "tables.0.topic: '{Table}' has '{Table}'"),
        ("tables", [{"name": "a.b", "topic": ".."}], "would be '..', but Kafka takes names of 1 to 249"),
        ("publishing.dead_letter_topic", "x" * 250, "dead_letter_topic: the topic of table shop.orders would be"),
        ("tables", ['a."b c"'], "publishing.topic: the topic of table a.\"b c\" would be 'a.b c', but Kafka"),
        ("tables", ["no_keyspace"], "is not keyspace.table"),
        ("tables", [], "at least 1"),
        ("name", "has blanks", "pattern"),
        ("scylla.contact_points", ["10.0.0.1"], "is not host:port"),
        ("scylla.contact_points", ["10.0.0.1:0"], "0 is no port"),
        ("scylla.username", "someone", "go together"),
        ("registry.username", "someone", "go together"),
        ("registry.token", "hunter2", "a secret can't be in the file"),
        ("registry.logical_cluster", "lsrc-1", "go with a `token`"),
        ("registry.ca_file", "ca.pem", "begins with https://"),
        ("registry.client_key_file", "key.pem", "go with `client_certificate_file`"),
        ("registry.subject_name_strategy", "Topic", "'TopicName', 'RecordName' or 'TopicRecordName'"),
        ("kafka.properties", {"transactional.id": "mine"}, "exactly-once depends on it"),
        ("kafka.properties", {"ssl.keystore.password": "hunter2"}, "can't be in the file"),
        ("kafka.properties", {"sasl.password": "hunter2"}, "sasl.password: set kafka.sasl.password instead"),
        ("kafka.properties", {"enable.ssl.certificate.verification": False}, "are always verified"),
        ("kafka.properties", {"client.dns.lookup": "use_all_dns_ips"}, "not by those that the DNS gives"),
        ("kafka.properties", {"ssl.cipher.suites": "HIGH:eNULL"}, "ssl.cipher.suites: with these, connections are not"),
        ("kafka.properties", {"ssl.cipher.suites": "HIGH@SECLEVEL=0"}, "ssl.cipher.suites: with these"),
        ("kafka.properties", {"message.max.bytes": "0x4000"}, "message.max.bytes: must be a whole number"),
        ("kafka.properties", {"queue.buffering.max.kbytes": True}, "max.kbytes: must be a whole number"),
        ("kafka.properties", {"queue.buffering.max.ms": 5}, "queue.buffering.max.ms: set kafka.linger_ms instead"),
        ("kafka.properties", {"logger": "hunter2"}, "logger: librdkafka has no property of that name"),
        ("kafka.properties", {"oauth_cb": "hunter2"}, "oauth_cb: librdkafka has no property of that name"),
        ("kafka.tls", {"ca_file": "ca.pem"}, "need `enabled: true`"),
        ("scylla.tls", {"enabled": True, "client_key_file": "k.pem"}, "go with `client_certificate_file`"),
        ("kafka.sasl", {"username": "hunter2"}, "of no use without a `mechanism`: `username`"),
        ("kafka.sasl", {"mechanism": "PLAIN", "username": "hunter2"}, "needed with PLAIN: `password`"),
        ("kafka.sasl", {"mechanism": "PLAIN", "password": "hunter2"}, "a secret can't be in the file"),
        ("kafka.sasl", {"mechanism": "GSSAPI"}, "'OAUTHBEARER'"),
        ("kafka.sasl", {"mechanism": "OAUTHBEARER"}, "needs a `token`, or a `token_endpoint_url`"),
        (
            "kafka.sasl",
            {"mechanism": "OAUTHBEARER", "token": {"env": "T"}, "scope": "hunter2"},
            "of no use with OAUTHBEARER and a `token`: `scope`",
        ),
        (
            "kafka.sasl",
            {"mechanism": "OAUTHBEARER", "token_endpoint_url": "https://a/t", "client_id": "hunter2"},
            "needed with OAUTHBEARER and a `token_endpoint_url`: `client_secret`",
        ),
        ("kafka.sasl", {"mechanism": "OAUTHBEARER", "token_endpoint_url": "https://u:hunter2@a/t"}, "no user or"),
        (
            "kafka.sasl",
            {"mechanism": "OAUTHBEARER", "token": {"env": "T"}, "extensions": {"a": "hunter2,b=c"}},
            "may hold neither",
        ),
        ("reading.start", "2026-01-31T12:00:00", "UTC offset"),
        ("reading.start", "yesterday", "earliest"),
        ("reading.confidence_ms", -1, "greater than or equal to 0"),
        ("reading.confidence", 1, "Extra inputs"),
    ],
)
def test_refused(path: str, value: object, words: str) -> None:
    """Bad values are refused, and the message shows none that may be secret."""
    with pytest.raises(ValidationError) as caught:
        validate(_with(path, value))
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "output", "key", "tombstones"),
    [
        ("delta", {}, "partition_key", False),
        ("full", {}, "partition_key", False),
        ("debezium", {}, "primary_key", True),
        ("flat", {}, "primary_key", False),
        ("debezium", {"key": "partition_key", "tombstones": False}, "partition_key", False),
        ("delta", {"key": "primary_key", "tombstones": True}, "primary_key", True),
    ],
)
def test_keys_and_tombstones_by_shape(shape: str, output: dict[str, Any], key: str, tombstones: bool) -> None:
    """By default, keys and tombstones follow the shape, also a table's own shape."""
    tables = [{"name": "shop.orders", "shape": shape}]
    config = validate({**SMALLEST, "tables": tables, "output": output})
    found = config.output_of(config.tables[0])
    form = found.record_form(dead_letters=False)
    assert (found.options("job").key, form.primary_key, form.tombstones) == (key, key == "primary_key", tombstones)
    source = SourceConfig.model_validate({"scylla": SMALLEST["scylla"], "table": tables[0], "output": output})
    assert (source.output_options.key, source.table_output.record_form(dead_letters=False)) == (key, form)


def test_one_identity() -> None:
    """The registry takes a user and password, or a token, but not both."""
    both = {"username": "u", "password": {"env": "A"}, "token": {"env": "B"}}
    with pytest.raises(ValidationError, match="not both"):
        validate({**SMALLEST, "registry": {"url": "http://a", **both}})


def test_subjects() -> None:
    """One strategy applies to all subjects; keys and values may have their own."""
    record = '{"type":"record","name":"a.R","fields":[]}'
    config = validate(_with("registry.subject_name_strategy", "RecordName"))
    assert [config.registry.subject_of("t", part, record) for part in ("key", "value")] == ["a.R", "a.R"]
    config = validate(_with("registry.value_subject_name_strategy", "TopicRecordName"))
    assert [config.registry.subject_of("t", part, record) for part in ("key", "value")] == ["t-key", "t-a.R"]


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (
            "SparkSettings",
            "spark.a.token spark.a.TokenFil spark.tokenFile spark.A.SECRET.b spark.access.key spark.access-key spar.k "
            "spark.account.key.a spark.private.Key.id spark.b.encryption.key "
            "spark.encryption.keySizeBits spark.azure.sas.a spark.a.credentials spark.Credential.a spark.credentialed "
            "spark.aws.credentials.provider spark.Credential.Provider.path spark.credentials.prov",
        ),
        (
            "KafkaSettings",
            "acks Acks ssl.key.PEM pem oauth_cb _cbx on_commit on_commits logger loggers b.c a.jaas.config",
        ),
    ],
)
def test_schema_refuses_the_names_that_the_bridge_refuses(model: str, names: str) -> None:
    """The JSON schema refuses the same properties as the models."""
    section = model.removesuffix("Settings").lower()
    patterns = json_schema()["definitions"][model]["properties"]["properties"]["patternProperties"]
    refused = []
    for name in names.split():
        try:
            validate({**SMALLEST, section: {**SMALLEST.get(section, {}), "properties": {name: 1}}})
        except ValidationError:
            refused.append(name)
    assert refused == [name for name in names.split() if any(re.search(one, name) for one in patterns)]
    assert 0 < len(refused) < len(names.split())


@pytest.mark.parametrize("suites", ["HIGH:!aNULL:!eNULL", "ECDHE-RSA-AES256-GCM-SHA384", "DEFAULT@SECLEVEL=2"])
def test_good_cipher_suites_are_accepted(suites: str) -> None:
    """A list of strong cipher suites is accepted."""
    config = validate({**SMALLEST, "kafka": {**SMALLEST["kafka"], "properties": {"ssl.cipher.suites": suites}}})
    assert config.kafka.properties == {"ssl.cipher.suites": suites}


def test_frozen() -> None:
    """A configuration cannot be changed."""
    config = validate(SMALLEST)
    with pytest.raises(ValidationError):
        config.name = "another"  # type: ignore[misc]  # that is the point


def test_json_and_back() -> None:
    """A configuration survives its way to Spark's workers as JSON."""
    config = validate({**SMALLEST, "reading": {"start": "2026-01-31T12:00:00+01:00"}})
    assert BridgeConfig.model_validate_json(config.model_dump_json()) == config


def test_source_by_itself() -> None:
    """The source needs one table and a cluster, but no Kafka."""
    assert SourceConfig.model_validate({"scylla": SMALLEST["scylla"], "table": "a.b"}).table.keyspace == "a"


class TestSecret:
    def test_from_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A secret is read when it is used, and is not in the repr."""
        monkeypatch.setenv("PASSWORD_OF_TEST", "hunter2")
        secret = Secret(env="PASSWORD_OF_TEST")
        assert secret.reveal("a.password") == "hunter2"
        assert "hunter2" not in repr(secret)

    def test_from_file(self, tmp_path: Path) -> None:
        """The next use reads a rotated secret; the trailing newline is dropped."""
        file = tmp_path / "password"
        secret = Secret(file=file)
        for password in ("hunter2", "hunter3"):
            file.write_text(password + "\n", encoding="utf-8")
            assert secret.reveal("a.password") == password

    def test_absent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error of a missing secret names its setting and its place."""
        monkeypatch.delenv("PASSWORD_OF_TEST", raising=False)
        with pytest.raises(StartupError, match=r"a\.password: the environment variable PASSWORD_OF_TEST is not set"):
            Secret(env="PASSWORD_OF_TEST").reveal("a.password")
        with pytest.raises(StartupError, match="can't be read: No such file"):
            Secret(file=tmp_path / "nothing").reveal("a.password")
        monkeypatch.setenv("PASSWORD_OF_TEST", "")
        with pytest.raises(StartupError, match="PASSWORD_OF_TEST is empty"):
            Secret(env="PASSWORD_OF_TEST").reveal("a.password")
        (tmp_path / "empty").write_text("\n", encoding="utf-8")
        with pytest.raises(StartupError, match=r"a\.password: the secret's file .*empty is empty"):
            Secret(file=tmp_path / "empty").reveal("a.password")

    @pytest.mark.parametrize("value", ["hunter2", {}, {"env": "A", "file": "b"}])
    def test_in_plain_text(self, value: object) -> None:
        """A secret in the file itself is refused, and the message does not show it."""
        with pytest.raises(ValidationError) as caught:
            validate({**SMALLEST, "scylla": {"contact_points": "a:1", "username": "u", "password": value}})
        assert "hunter2" not in str(caught.value)


def test_json_has_places_but_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON for Spark's workers has the places of secrets, and gives the same configuration."""
    monkeypatch.setenv("PLACE", "hunter2")
    place = {"env": "PLACE"}
    tls = {"enabled": True, "client_certificate_file": "c.pem", "client_key_password": place}
    config = validate(
        {
            **SMALLEST,
            "scylla": {**SMALLEST["scylla"], "username": "u", "password": place, "tls": tls},
            "kafka": {
                **SMALLEST["kafka"],
                "tls": tls,
                "sasl": {"mechanism": "PLAIN", "username": "u", "password": place},
            },
        }
    )
    text = config.model_dump_json()
    assert text.count("PLACE") == 4
    assert "hunter2" not in text + repr(config)
    assert BridgeConfig.model_validate_json(text) == config
    assert config.kafka.sasl.password is not None
    assert config.kafka.sasl.password.reveal("a.password") == "hunter2"
