"""Mistakes in configuration files and on the command line, by section of `docs/errors.md`."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

SECRET: Final = "hunter2"
"""Stands for a secret; no message may show it, wherever it was written."""
FILE: Final = "bridge.yaml"
VALIDATE: Final = ("validate", "-c", FILE)
GOOD: Final[dict[str, Any]] = {
    "name": "orders",
    "scylla": {"contact_points": "127.0.0.1:9042"},
    "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
    "registry": {"url": "http://127.0.0.1:8081"},
    "tables": ["shop.orders"],
}
GOOD_TEXT: Final = yaml.safe_dump(GOOD, sort_keys=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to try.

    Attributes:
        tried: what it is, in words.
        words: the command line.
        text: the configuration file; None if there is none.
    """

    tried: str
    words: tuple[str, ...] = VALIDATE
    text: str | bytes | None = GOOD_TEXT


@cache
def sections() -> dict[str, list[Case]]:
    """Return the cases by section; cached, because writing their YAML takes a while."""
    return {
        "The command line": _command_line(),
        "The file": _file(),
        "`name` and `tables`": _name_and_tables(),
        "Addresses": _addresses(),
        "Secrets and TLS": _secrets_and_tls(),
        "Numbers, durations, instants": _numbers_durations_instants(),
        "Choices and names": _choices_and_names(),
    }


def _command_line() -> list[Case]:
    return [
        Case("no command", ()),
        _command("runn"),
        _command("run"),
        _command("run", "-c"),
        _command("validate", FILE),
        _command("validate", "-c", ""),
        _command("--log-level", "debug", "status"),
        _command("status", "-c", FILE, "--log-level", "loud"),
        _command("consume", "-c", FILE),
        _command("consume", "-c", FILE, "shop.nothing"),
        _command("consume", "-c", FILE, "shop.orders", "--topic", "t"),
        _command("consume", "-c", FILE, "shop.orders", "--max", "0"),
        _command("consume", "-c", FILE, "shop.orders", "--max", "many"),
        _command("schemas", "-c", FILE, "orders"),
        _command("example", "more"),
        _command("local"),
        _command("local", "fly"),
        _command("local", "status", "--folder", "nowhere"),
        _command("local", "down", "--folder", "nowhere"),
        _command("local", "up", "--folder", FILE),
        _command("local", "up", "--kafka-port", "99999"),
        _command("local", "up", "--kafka-port", "kafka"),
        _command("local", "cql", "--folder", "nowhere", "SELECT 1"),
        _command("local", "streams"),
        _command("local", "streams", "show", "--folder", "nowhere"),
        _command("local", "streams", "split"),
        _command("local", "streams", "new-generation", "--in", "1"),
    ]


def _file() -> list[Case]:
    return [
        Case("`-c nothing.yaml`, which does not exist", ("validate", "-c", "nothing.yaml")),
        Case("`run` with a file that does not exist", ("run", "-c", "nothing.yaml")),
        Case("`-c .`, a folder", ("validate", "-c", ".")),
        Case("an empty file", text=""),
        Case("only comments", text="# name: orders\n"),
        Case("a list", text="- name: orders\n"),
        Case("the lines of a properties file", text="name=orders\nscylla.contact_points=127.0.0.1:9042\n"),
        Case("not UTF-8", text="name: Aufträge\n".encode("latin-1")),
        Case("UTF-16", text=GOOD_TEXT.encode("utf-16")),
        Case("a NUL character", text="name: a\0b\n"),
        Case("a tab for indentation", text="name: orders\nscylla:\n\tcontact_points: 127.0.0.1:9042\n"),
        Case("a bracket without its end", text="name: [orders\n"),
        Case("a quote without its end", text='name: "orders\n'),
        Case("a template that was not rendered", text="name: {{ .Values.name }}\n"),
        Case("nested 1,000 deep", text="name: " + "[" * 1000),
        _append("two documents", f"---\n{GOOD_TEXT}"),
        _append("a key twice", "name: others\n"),
        _append("a key twice in a section", "reading:\n  start: latest\n  start: earliest\n"),
        _append("a key that is a number", "5: orders\n"),
        _append("a key that is null", "~: orders\n"),
        _append("an alias inside the node that it names", "reading: &all\n  start: *all\n"),
        _append("an undefined alias", f"reading: *{SECRET}\n"),
        _append("a tag", f"reading: !{SECRET} x\n"),
        _append("a tag that would run a program", "reading: !!python/object/apply:os.system [ls]\n"),
        _append("a dotted key", "reading.start: latest\n"),
        _append("an invalid date", "reading: {start: 2026-02-31}\n"),
        _append("a section twice, once as a plain value", "scylla: yes\n"),
        _append("an unknown section, similar to a known one", "publish: {}\n"),
        _append("an unknown section", "sink: {}\n"),
        _without("name"),
        _without("scylla", "tables"),
    ]


def _name_and_tables() -> list[Case]:
    return [
        _set("name", ""),
        _set("name", "my orders"),
        _set("name", "x" * 101),
        _set("tables", []),
        _set("tables", None),
        _set("tables", "shop.orders"),
        _set("tables", {"shop.orders": {}}),
        _set("tables", ["orders"]),
        _set("tables", ["a.b.c"]),
        _set("tables", ["shop.or-ders"]),
        _set("tables", ['shop."Orders']),
        _set("tables", [5]),
        _set("tables", [None]),
        _set("tables", ["shop.orders", "shop.orders"]),
        _set("tables", ["shop.orders", "SHOP.Orders"]),
        _set("tables", [{"topic": "orders"}]),
        _set("tables", [{"name": "shop.orders", "shap": "full"}]),
        _set("tables", [{"name": "shop.orders", "lanes": 0}]),
        _set("tables", [{"name": "shop.orders", "topic": "my orders"}]),
        _set("tables", [{"name": "shop.orders", "topic": ".."}]),
        _set("tables", [{"name": "shop.orders", "topic": "t"}, {"name": "shop.lines", "topic": "t"}]),
        _set("tables", ["shop.or_ders", {"name": "shop.orders", "topic": "shop.or.ders"}]),
        _set("tables", [f"shop.{'x' * 250}"]),
    ]


def _addresses() -> list[Case]:
    return [
        _set("scylla.contact_points", "127.0.0.1"),
        _set("scylla.contact_points", "127.0.0.1:70000"),
        _set("scylla.contact_points", "127.0.0.1:0"),
        _set("scylla.contact_points", ""),
        _set("scylla.contact_points", []),
        _set("scylla.contact_points", 9042),
        _set("scylla.contact_points", "::1:9042"),
        _set("scylla.contact_points", "http://127.0.0.1:9042"),
        _set("scylla.contact_points", f"cdc:{SECRET}@127.0.0.1:9042"),
        _set("kafka.bootstrap_servers", "SASL_SSL://127.0.0.1:9092"),
        _set("kafka.bootstrap_servers", ["127.0.0.1:9092", 5]),
        _set("registry.url", "127.0.0.1:8081"),
        _set("registry.url", "ftp://127.0.0.1"),
        _set("registry.url", "http://127.0.0.1:99999"),
        _set("registry.url", "http://127.0.0.1:8081/?a=b"),
        _set("registry.url", f"http://bridge:{SECRET}@127.0.0.1:8081"),
        _set("monitoring.listen", "9404"),
        _set("monitoring.listen", "0.0.0.0:99999"),
    ]


def _secrets_and_tls() -> list[Case]:
    return [
        _set("scylla.username", "cdc"),
        _set("scylla.password", SECRET),
        _set("scylla.password", {"env": "A", "file": "b"}),
        _set("scylla.password", {"envv": SECRET}),
        _set("registry.token", SECRET),
        _set("kafka.sasl.mechanism", "GSSAPI"),
        _set("kafka.sasl.mechanism", "PLAIN"),
        _set("kafka.sasl.mechanism", "OAUTHBEARER"),
        _set("kafka.sasl.username", "bridge"),
        _set("kafka.sasl.token_endpoint_url", f"https://me:{SECRET}@login.example.com/token"),
        _set("kafka.sasl.token_endpoint_url", f"https://login.example.com/token?client_secret={SECRET}"),
        _set("kafka.sasl.extensions", {"apiSecret": SECRET}),
        _set("kafka.properties", {"sasl.password": SECRET}),
        _set("kafka.properties", {"enable.ssl.certificate.verification": False}),
        _set("spark.properties", {"spark.hadoop.fs.s3a.secret.key": SECRET}),
        _set("spark.properties", {"spark.driver.extraJavaOptions": f"-Djavax.net.ssl.keyStorePassword={SECRET}"}),
        _set("spark.checkpoint", f"s3a://key:{SECRET}@bucket/x"),
        _set("spark.checkpoint", f"wasbs://box@account.blob.core.windows.net/x?sig={SECRET}"),
        _set("scylla.tls", True),
        _set("scylla.tls.enabled", "perhaps"),
        _set("scylla.tls.ca_file", "/etc/ssl/ca.pem"),
    ]


def _numbers_durations_instants() -> list[Case]:
    return [
        _set("scylla.page_rows", 0),
        _set("scylla.page_rows", -1),
        _set("scylla.page_rows", 10**30),
        _set("scylla.page_rows", 2.5),
        _set("scylla.page_rows", "2k"),
        _set("scylla.page_rows", True),
        _set("scylla.page_rows", float("nan")),
        _set("scylla.page_rows", [2000]),
        _set("scylla.page_rows", None),
        _set("scylla.request_timeout_ms", "10s"),
        _set("reading.confidence", 10),
        _set("reading.confidence_ms", -1),
        _set("reading.confidence_ms", 10**15),
        _set("publishing.max_transaction_bytes", "64MB"),
        _set("kafka.replication_factor", 0),
        _set("startup.patience_s", "1m"),
        _set("reading.start", "yesterday"),
        _set("reading.start", "2026-01-31"),
        _set("reading.start", "2026-01-31T12:00:00"),
        _set("reading.start", "2026-02-31T00:00:00Z"),
        _set("reading.start", 1700000000),
        _set("reading.start", "-1d"),
    ]


def _choices_and_names() -> list[Case]:
    return [
        _set("scylla.consistency", "quorum"),
        _set("scylla.port", 9042),
        _set("kafka.compression", "brotli"),
        _set("kafka.properties", {"acks": 1}),
        _set("kafka.properties", {"linger.ms": 5}),
        _set("kafka.properties", {"error_cb": "print"}),
        _set("kafka.properties", {"message.max.bytes": "lots"}),
        _set("kafka.properties", ["a"]),
        _set("kafka.properties", {"client.rack": ["a"]}),
        _set("registry.subject_name_strategy", "Topic"),
        _set("reading.integrity", True),
        _set("reading.accept_data_loss", "yes"),
        _set("reading.accept_data_loss", 1),
        _set("reading", "earliest"),
        _set("output.shape", "debesium"),
        _set("output.headers", ["cdc.position"]),
        _set("output.headers", ["position", "position"]),
        _set("publishing.topic", "{keyspace}-{tabel}"),
        _set("publishing.topic", "{keyspace"),
        _set("publishing.topic", ""),
        _set("publishing.progress_topic", "{keyspace}.{table}"),
        _set("publishing.dead_letter_topic", "{keyspace}.{table}"),
        _set("spark.master", "locl[*]"),
        _set("spark.master", "local[0]"),
        _set("spark.checkpoint", ""),
        _set("spark.properties", {"driver.memory": "1g"}),
        _set("spark.properties", {"spark.master": "yarn"}),
        _set("spark.properties", {"spark.speculation": True}),
        _set("logging.level", "debug"),
        _set("logging.format", "xml"),
    ]


def _set(path: str, value: object) -> Case:
    mapping = deepcopy(GOOD)
    *parents, last = path.split(".")
    inner: dict[str, Any] = mapping
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    shown = yaml.safe_dump(value, default_flow_style=True, width=200).removesuffix("...\n").strip()
    if len(shown) > 70:
        shown = f"{shown[:40]}... ({len(shown)} characters)"
    return Case(f"`{path}: {shown}`", text=yaml.safe_dump(mapping, sort_keys=False))


def _without(*paths: str) -> Case:
    mapping = {name: value for name, value in deepcopy(GOOD).items() if name not in paths}
    return Case(f"no {' and no '.join(f'`{path}`' for path in paths)}", text=yaml.safe_dump(mapping, sort_keys=False))


def _append(tried: str, text: str) -> Case:
    return Case(tried, text=GOOD_TEXT + text)


def _command(*words: str) -> Case:
    return Case(f"`{' '.join(words)}`", words)
