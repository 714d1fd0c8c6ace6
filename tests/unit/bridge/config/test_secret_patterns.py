"""Finding secrets in free text."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from bridge.config.document import SparkSettings
from bridge.config.kafka import KafkaSettings
from bridge.config.secret_patterns import holds_secret, names_secret


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASSWORD",
        "apiToken",
        "client-secret",
        "AWS_SECRET_ACCESS_KEY",
        "KEY",
        "sig",
        "a.passphrase",
        "ACCOUNT_KEY_1",
        "DB_PASS",
        "keypass",
        "MYSQL_PWD",
    ],
)
def test_names_of_secrets(name: str) -> None:
    """Names of secrets are found in every spelling."""
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN_FILE",
        "AWS_ACCESS_KEY_ID",
        "sort.key",
        "publicKey",
        "secret.name",
        "tokenUrl",
        "keyStore",
        "design",
        "credentials.provider",
        "bypass",
        "PWD",
        "",
    ],
)
def test_names_of_other_things(name: str) -> None:
    """Names of a secret's place, or similar names, are not names of secrets."""
    assert not names_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "-Da=b -Djavax.net.ssl.keyStorePassword=a",
        "https://me:a@host/path",
        "user='a' password='b'",
        '{"token": "a"}',
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a==",
        "https://a/b?c=d&sig=a%3D",
        "password = a",
        "-Dpassword=$ecret",
        "--conf=spark.executor.extraJavaOptions=-Dpassword=a",
        "{'token': 'a'}",
        "https://me:$ecret@host",
        "password: a",
        "{user: u, 'api-key' : a}",
        "run --password a",
        "--conf token=a --user u",
        "--db-password 'a' --verbose",
        "Authorization Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
    ],
)
def test_text_with_a_secret(text: str) -> None:
    """Secrets are found in options, addresses, JSON and connection strings."""
    assert holds_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "-Djavax.net.ssl.keyStorePassword=$(STORE) -Djavax.net.ssl.keyStore=/a",
        "https://me:$(PASSWORD)@host",
        "https://me:${PASSWORD}@host",
        '{"token": "${TOKEN}"}',
        "https://host:8081/a@b",
        "abfss://box@account.dfs.core.windows.net/a",
        "-Da.token.file=/a",
        "password=",
        "the password is a secret",
        "[::1]:9042",
        "-Dsort.key=a -Dpartition_key=b",
        "--token-file /a --password --verbose",
        "--password $(PASSWORD) --key ${KEY}",
        "password: $(PASSWORD)",
        "a:b token:c",
        "heyJude12345.eyJsomething.more",
    ],
)
def test_text_without_a_secret(text: str) -> None:
    """References to variables, paths and plain words are not secrets."""
    assert not holds_secret(text)


@pytest.mark.parametrize("folder", ["s3a://b/key=1/x", "/data/monkey=banana/x", "s3a://b/token=x/y?versions=2"])
def test_checkpoint_in_a_folder_with_the_name_of_a_partition(folder: str) -> None:
    """The value in a partition's name is no secret; that of a parameter is."""
    assert SparkSettings(checkpoint=folder).checkpoint == folder
    for secret in (f"{folder}?sig=abc", f"{folder}&token=abc" if "?" in folder else f"s3a://u:p@{folder}"):
        with pytest.raises(ValidationError, match="can't be in the path"):
            SparkSettings(checkpoint=secret)


def test_all_refused_properties_are_reported_at_once() -> None:
    """One error names all refused properties, each with its first reason."""
    with pytest.raises(ValidationError, match="a secret can't be") as caught:
        SparkSettings(
            properties={"spark.a": "-Dpassword=hunter2", "b.token": "hunter2", "c": 1, "spark.master": "yarn"}
        )
    for words in ("spark.a", "b.token", "c: Spark ignores properties", "spark.master: set spark.master instead"):
        assert words in str(caught.value.errors(include_input=False)[0]["msg"])
    with pytest.raises(ValidationError, match="a secret can't be") as caught:
        KafkaSettings(
            bootstrap_servers=["a:1"],
            properties={"acks": 1, "client.rack": "password=hunter2", "sasl.password": "hunter2", "No": 1},
        )
    message = str(caught.value.errors(include_input=False)[0]["msg"])
    assert message.count("sasl.password: ") == 1
    for words in (
        "acks: set by the bridge",
        "client.rack: a secret",
        "No: librdkafka has no",
        "set kafka.sasl.password",
    ):
        assert words in message
    assert "hunter2" not in message
