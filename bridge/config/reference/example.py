"""Generates the example file `bridge/config/example.yaml` from the settings. Pure."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Final

from bridge.config.reference.catalog import Setting, catalog_of

_WIDTH: Final = 100

_EXAMPLES: Final[Mapping[str, str]] = {
    "name": "orders-bridge",
    "scylla.contact_points": "[127.0.0.1:9042]",
    "scylla.local_datacenter": "datacenter1",
    "scylla.username": "cdc_reader",
    "scylla.password": "{env: SCYLLA_PASSWORD}",
    "scylla.metadata_consistency": "QUORUM",
    "kafka.bootstrap_servers": "[127.0.0.1:9092]",
    "kafka.replication_factor": "3",
    "scylla.tls.ca_file": "/etc/ssl/scylla-ca.pem",
    "scylla.tls.client_certificate_file": "/run/secrets/scylla.pem",
    "scylla.tls.client_key_file": "/run/secrets/scylla.key",
    "scylla.tls.client_key_password": "{env: SCYLLA_KEY_PASSWORD}",
    "kafka.tls.ca_file": "/etc/ssl/kafka-ca.pem",
    "kafka.tls.client_certificate_file": "/run/secrets/kafka.pem",
    "kafka.tls.client_key_file": "/run/secrets/kafka.key",
    "kafka.tls.client_key_password": "{env: KAFKA_KEY_PASSWORD}",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "bridge",
    "kafka.sasl.password": "{file: /run/secrets/kafka-password}",
    "kafka.sasl.token": "{file: /var/run/secrets/tokens/kafka}",
    "kafka.sasl.token_endpoint_url": "https://login.example.com/oauth2/token",
    "kafka.sasl.token_endpoint_ca_file": "/etc/ssl/login-ca.pem",
    "kafka.sasl.client_id": "bridge",
    "kafka.sasl.client_secret": "{file: /run/secrets/kafka-client-secret}",
    "kafka.sasl.scope": "kafka",
    "registry.url": "http://127.0.0.1:8081",
    "registry.username": "bridge",
    "registry.password": "{file: /run/secrets/registry-password}",
    "registry.token": "{file: /run/secrets/registry-token}",
    "registry.logical_cluster": "lsrc-abc123",
    "registry.identity_pool": "pool-abc1",
    "registry.ca_file": "/etc/ssl/registry-ca.pem",
    "registry.client_certificate_file": "/run/secrets/bridge.pem",
    "registry.client_key_file": "/run/secrets/bridge.key",
    "registry.client_key_password": "{env: REGISTRY_KEY_PASSWORD}",
    "registry.key_subject_name_strategy": "TopicName",
    "registry.value_subject_name_strategy": "TopicRecordName",
    "tables[].name": "shop.orders",
    "tables[].topic": "orders",
    "tables[].start": "latest",
    "tables[].lanes": "4",
    "tables[].shape": "full",
    "output.key": "primary_key",
    "output.tombstones": "true",
    "publishing.dead_letter_topic": '"{name}.dead-letters"',
    "spark.lanes": "8",
}
"""Values of settings that have no default, as YAML."""

_HEAD: Final = """\
# Configuration of one scylla-cdc-bridge job.
#
# Settings that begin with `#` show their default, or, where it says "unset", an example.
# Secrets are never in this file: {env: NAME} or {file: PATH} says where they are.
"""


def example_yaml() -> str:
    """Return a whole configuration file: required settings have example values, the others are comments."""
    lines = _HEAD.splitlines()
    catalog = catalog_of()
    section = ""
    for setting in catalog.settings.values():
        parent, _, name = setting.path.rpartition(".")
        in_list = parent.endswith("[]")
        depth = parent.count(".") + bool(parent)
        indent = "  " * (depth + in_list)
        if parent != section:
            section = parent
            outer, own = "  " * (depth - 1), parent.rpartition(".")[2].removesuffix("[]")
            lines += ["", *_comment_lines(catalog.sections[parent], outer), f"{outer}{own}:"]
        elif not parent:
            lines.append("")
        # The required setting of a list's item comes first, so it begins the item.
        begins_item = in_list and setting.required
        lines += _comment_lines(_describe(setting), "  " if begins_item else indent)
        lines.append(
            ("  - " if begins_item else indent) + ("" if setting.required else "# ") + f"{name}: {_value_yaml(setting)}"
        )
    return "\n".join(lines) + "\n"


def _describe(setting: Setting) -> str:
    text = setting.description
    if setting.required:
        text += " Required."
    elif setting.default is None and "unset" not in text.lower():
        text += " Unset by default."
    # Other expectations are clear from the description and the shown value.
    return f"{text} ({setting.expected})" if setting.expected.startswith(_SHOWN_EXPECTATIONS) else text


_SHOWN_EXPECTATIONS: Final = ("a whole number", "one of", "a list of position", "{")


def _comment_lines(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _value_yaml(setting: Setting) -> str:
    """Return the default as YAML; an example if there is no default."""
    default = setting.default
    if setting.required or default is None:
        return _EXAMPLES[setting.path]
    if default == {}:
        return "{}"
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    text = str(default).lower() if isinstance(default, bool) else str(default)
    # YAML would read the text as something else without quotes.
    return f'"{text}"' if text[0] in "{[*&!%@`" else text


if __name__ == "__main__":
    sys.stdout.write(example_yaml())
