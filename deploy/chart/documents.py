"""`values.yaml` and the tables of the chart's README, made of the models."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge.config.reference.catalog import catalog_of
from deploy.chart.schema import OWNED
from deploy.chart.values import ChartValues

CHART: Final = Path(__file__).parents[1] / "helm" / "scylla-cdc-bridge"
_WIDTH: Final = 110
_BEGIN: Final = "<!-- {} begin: made by `make chart-files` -->\n"
_END: Final = "<!-- {} end -->\n"

_HEAD: Final = """\
# Values of the chart scylla-cdc-bridge; made by `make chart-files` from deploy/chart/values.py.
# Unknown keys and bad values are refused (values.schema.json).
"""

_CONFIG: Final = """\
# The configuration file (`scylla-cdc-bridge example` prints every setting); the chart adds what it decides itself.
# Wherever a secret or a certificate's path is expected, a key of an object that exists can stand:
#   {existingSecret: NAME, key: KEY}, for certificates also {existingConfigMap: NAME, key: KEY}.
# Required: name, scylla.contact_points, kafka.bootstrap_servers, registry.url, tables. As in:
#   name: shop
#   scylla:
#     contact_points: [scylla-client.scylla.svc:9042]
#     username: cdc_reader
#     password: {existingSecret: scylla-reader, key: password}
#   kafka:
#     bootstrap_servers: [kafka-bootstrap.kafka.svc:9093]
#     tls: {enabled: true, ca_file: {existingSecret: kafka-ca, key: ca.crt}}
#     sasl: {mechanism: SCRAM-SHA-512, username: bridge, password: {existingSecret: kafka-bridge, key: password}}
#   registry:
#     url: https://registry.kafka.svc:8081
#     ca_file: {existingConfigMap: company-ca, key: ca.pem}
#   tables:
#     - shop.orders
config: {}
"""


def values_yaml() -> str:
    """The chart's default values, each with its meaning."""
    return "\n".join([_HEAD, _CONFIG, *_lines(ChartValues(), "")]) + "\n"


def with_tables(readme: str) -> str:
    """The chart's README with its generated parts made anew."""
    for name, table in (("values", _values_table()), ("config", _config_table())):
        begin, end = _BEGIN.format(name), _END.format(name)
        before, found, rest = readme.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the chart's README has no place for the generated part `{name}`")
        readme = f"{before}{begin}\n{table}\n{end}{after}"
    return readme


def _lines(values: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(values).model_fields.items():
        key, value = field.alias or name, getattr(values, name)
        if isinstance(value, BaseModel):
            yield from _comment(_meaning(field, value), indent)
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield from _comment(_meaning(field, value), indent)
            yield from _value(key, value, indent)
        if not indent:
            yield ""


def _value(key: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, dict | list) and value:
        text = yaml.safe_dump({key: value}, sort_keys=False, width=_WIDTH)
        return textwrap.indent(text, indent).splitlines()
    return [f"{indent}{key}: {json.dumps(value)}"]


def _meaning(field: FieldInfo, value: object) -> str:
    words = field.description or ""
    if not words and isinstance(value, BaseModel):
        words = " ".join((type(value).__doc__ or "").split())
    choices = _choices(field.annotation)
    return f"{words} One of {', '.join(choices)}." if choices else words


def _choices(annotation: object) -> list[str]:
    return [json.dumps(one) for one in get_args(annotation)] if get_origin(annotation) is Literal else []


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _values_table() -> str:
    rows = ["| Value | Default | Meaning |", "|---|---|---|"]
    rows += [
        f"| `{path}` | `{json.dumps(default)}` | {_cell(_meaning(field, default))} |"
        for path, field, default in leaves(ChartValues())
    ]
    return "\n".join(rows) + "\n"


def leaves(values: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Every value that is no section: its path, its field and what it is."""
    for name, field in type(values).model_fields.items():
        path, value = prefix + (field.alias or name), getattr(values, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{path}.")
        else:
            yield path, field, value


def _config_table() -> str:
    rows = ["| Value | Default | Value | Meaning |", "|---|---|---|---|"]
    for setting in catalog_of().settings.values():
        if setting.path in _owned_paths():
            continue
        default = "required" if setting.required else "unset" if setting.default is None else f"`{setting.default}`"
        cells = (f"`config.{setting.path}`", default, setting.expected, setting.description)
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(rows) + "\n"


def _owned_paths() -> set[str]:
    return {f"{model.removesuffix('Settings').lower()}.{name}" for model, names in OWNED.items() for name in names}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
