"""The settings as data, and the example file that is generated from them.

Everything said about a setting comes from its field in `bridge.config`; what is added here are the example values of
settings that have no default. Knows nothing of files and servers.
"""

from __future__ import annotations

import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import AnyUrl, BaseModel
from pydantic.fields import FieldInfo

from bridge.config.base import InWords
from bridge.config.document import BridgeConfig, Secret

BOOLEAN: Final = "true or false"
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
"""What the example file shows for settings without a default, as YAML."""

_HEAD: Final = """\
# Configuration of one scylla-cdc-bridge job.
#
# Settings that begin with `#` show their default, or, where it says "unset", an example.
# Secrets never stand here: {env: NAME} or {file: PATH} says where they are found.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the configuration.

    Attributes:
        path: as in `reading.confidence_ms`; items of a list are `[]`, as in `tables[].name`.
        description: the field's own.
        expected: what a value must be, as in "a whole number from 1 to 1024".
        required: whether the file must give it.
        default: None when required, or when it is unset by default.
        kind: `mapping` for free mappings, `list` for lists, else `value`.
        secret: whether it says where a secret lies.
    """

    path: str
    description: str
    expected: str
    required: bool
    default: object
    kind: Literal["value", "list", "mapping"]
    secret: bool


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a configuration model has in it.

    Attributes:
        settings: every setting by its path, in the order of the model.
        sections: what each section is about, by its path (`scylla`; `tables[]` for the items of a list).
    """

    settings: Mapping[str, Setting]
    sections: Mapping[str, str]

    def knows(self, path: str) -> bool:
        """Whether there is a setting, a section or a list of sections at a path; "" is the whole."""
        return not path or path in self.settings or path in self.sections or f"{path}[]" in self.sections


@cache
def catalog_of(model: type[BaseModel] = BridgeConfig) -> Catalog:
    """The catalog of a model."""
    sections = {path: " ".join((section.__doc__ or "").split()) for path, section in _sections(model, "")}
    return Catalog({setting.path: setting for setting in _walk(model, "")}, sections)


def example_yaml() -> str:
    """A whole configuration file: what is required with example values, the rest commented with its default."""
    lines = _HEAD.splitlines()
    catalog = catalog_of()
    section = ""
    for setting in catalog.settings.values():
        parent, _, name = setting.path.rpartition(".")
        listed = parent.endswith("[]")
        depth = parent.count(".") + bool(parent)
        indent = "  " * (depth + listed)
        if parent != section:
            section = parent
            outer, own = "  " * (depth - 1), parent.rpartition(".")[2].removesuffix("[]")
            lines += ["", *_comment(catalog.sections[parent], outer), f"{outer}{own}:"]
        elif not parent:
            lines.append("")
        # The first setting of a list's item is the one that begins the item.
        begins = listed and setting.required
        lines += _comment(_meaning(setting), "  " if begins else indent)
        lines.append(("  - " if begins else indent) + ("" if setting.required else "# ") + f"{name}: {_shown(setting)}")
    return "\n".join(lines) + "\n"


def _meaning(setting: Setting) -> str:
    text = setting.description
    if setting.required:
        text += " Required."
    elif setting.default is None and "unset" not in text:
        text += " Unset by default."
    # Only what the description and the value that is shown do not say already.
    return f"{text} ({setting.expected})" if setting.expected.startswith(_WORTH_SAYING) else text


_WORTH_SAYING: Final = ("a whole number", "one of", "a list of position", "{")


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _shown(setting: Setting) -> str:
    """The default as YAML, or an example where there is none."""
    default = setting.default
    if setting.required or default is None:
        return _EXAMPLES[setting.path]
    if default == {}:
        return "{}"
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    text = str(default).lower() if isinstance(default, bool) else str(default)
    # What YAML would read as something else is quoted.
    return f'"{text}"' if text[0] in "{[*&!%@`" else text


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    # What is below comes last, as a file needs it: a setting that follows a section would be one of the section's.
    for name, field in sorted(model.model_fields.items(), key=lambda item: _nested(item[1].annotation) is not None):
        path = prefix + name
        nested = _nested(field.annotation)
        if nested is None:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield Setting(
                path,
                field.description or "",
                _expected(field),
                field.is_required(),
                default,
                _kind(field.annotation),
                secret=Secret in _parts(field.annotation),
            )
        else:
            yield from _walk(nested, f"{path}{_item(field)}.")


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        nested = _nested(field.annotation)
        if nested is not None:
            path = f"{prefix}{name}{_item(field)}"
            yield path, nested
            yield from _sections(nested, f"{path}.")


def _item(field: FieldInfo) -> str:
    return "[]" if get_origin(field.annotation) is tuple else ""


def _kind(annotation: object) -> Literal["value", "list", "mapping"]:
    origin = get_origin(annotation)
    return "mapping" if origin is dict else "list" if origin is tuple else "value"


def _parts(annotation: object) -> list[Any]:
    """The alternatives of an annotation, without None and without what only annotates."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for one in get_args(annotation) for part in _parts(one)]
    return [] if annotation is type(None) else [annotation]


def _nested(annotation: object) -> type[BaseModel] | None:
    """The model of a section, or of the items of a list of sections; a secret counts as a value."""
    parts = _parts(annotation)
    if len(parts) != 1:
        return None
    if get_origin(parts[0]) is tuple:
        return _nested(get_args(parts[0])[0])
    found = parts[0]
    return found if isinstance(found, type) and issubclass(found, BaseModel) and found is not Secret else None


def _expected(field: FieldInfo) -> str:
    words = [_expected_part(part, field) for part in _parts(field.annotation)]
    return " or ".join(words)


def _expected_part(part: Any, field: FieldInfo) -> str:
    origin = get_origin(part)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(part)))}"
    if origin is tuple:
        (choice, *_) = get_args(part)
        choices = get_args(choice) if get_origin(choice) is Literal else ("host:port",)
        return f"a list of {', '.join(map(str, choices))}"
    if origin is dict:
        return "names with text, numbers or booleans"
    if part is int:
        return _range(field)
    if isinstance(part, type) and issubclass(part, AnyUrl):
        return "an http or https address such as http://host:8081"
    own = next((one.text for one in field.metadata if isinstance(one, InWords)), None)
    return _WORDS[part] if own is None or part is not str else own


_WORDS: Final[Mapping[object, str]] = {
    str: "text",
    bool: BOOLEAN,
    Path: "a path",
    datetime: "an instant with its UTC offset",
    Secret: "{env: NAME} or {file: PATH}",
}


def _range(field: FieldInfo) -> str:
    found = ((name, getattr(one, name, None)) for one in field.metadata for name in ("ge", "le"))
    bounds = {name: value for name, value in found if value is not None}
    match bounds:
        case {"ge": low, "le": high}:
            return f"a whole number from {low} to {high}"
        case {"ge": low}:
            return f"a whole number of at least {low}"
        case {"le": high}:
            return f"a whole number of at most {high}"
    return "a whole number"
