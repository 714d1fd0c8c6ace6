"""What is taken for a secret in free text, and what is not."""

from __future__ import annotations

import pytest

from bridge.plain_secrets import holds_secret, names_secret


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
    """In whatever way names are written."""
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    ["TOKEN_FILE", "AWS_ACCESS_KEY_ID", "secret.name", "tokenUrl", "keyStore", "design", "credentials.provider", "bypass", "PWD", ""],
)
def test_names_of_what_is_no_secret(name: str) -> None:
    """What says where a secret lies or how it is called, and what sounds alike."""
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
    ],
)
def test_text_with_a_secret(text: str) -> None:
    """Options, addresses, JSON, connection strings."""
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
    ],
)
def test_text_without_one(text: str) -> None:
    """References, places, words."""
    assert not holds_secret(text)
