"""What is generated in the chart is what the models give now; needs no Helm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from bridge.config.document import BridgeConfig, Secret
from bridge.config.reference.catalog import catalog_of, type_alternatives
from deploy.chart.__main__ import generated
from deploy.chart.dashboard import dashboard_text
from deploy.chart.documents import CHART, values_yaml
from deploy.chart.schema import OWNED, values_schema
from deploy.chart.values import ChartValues


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    """Each generated file holds what its models say."""
    assert path.read_text(encoding="utf-8") == generated()[path], "out of date: make chart-files"


def test_default_values_are_the_models_defaults() -> None:
    """`values.yaml` read back is the model with nothing given."""
    values = yaml.safe_load(values_yaml())
    assert values.pop("config") == {}
    assert ChartValues.model_validate(values) == ChartValues()
    assert values == ChartValues().model_dump(by_alias=True)


def _objects(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every schema of an object with named properties, with its place."""
    found = [(path, schema)] if "properties" in schema else []
    inner = {
        f"{path}/{key}/{name}": one
        for key in ("properties", "definitions")
        for name, one in schema.get(key, {}).items()
    }
    inner |= {f"{path}/{key}/{at}": one for key in ("anyOf", "oneOf") for at, one in enumerate(schema.get(key, []))}
    inner |= {
        f"{path}/{key}": schema[key]
        for key in ("items", "additionalProperties", "then", "else")
        if isinstance(schema.get(key), dict)
    }
    return found + [deeper for place, one in inner.items() for deeper in _objects(one, place)]


def test_every_object_of_the_schema_is_closed() -> None:
    """No object with named properties takes further ones."""
    objects = _objects(values_schema())
    assert len(objects) > 30
    assert [path for path, node in objects if node["additionalProperties"] is not False] == []


def test_every_setting_of_the_configuration_file_is_a_value() -> None:
    """Each setting can be given under `config`, except those that the chart decides."""
    schema = values_schema()
    models = _models(BridgeConfig)
    for model, fields in models.items():
        known = schema["properties"]["config"] if model == "BridgeConfig" else schema["definitions"][model]
        assert set(known["properties"]) == fields, model
        refused = {name for name, one in known["properties"].items() if one.keys() == {"const", "not"}}
        assert refused == set(OWNED.get(model, ())), model


def _models(model: type[BaseModel]) -> dict[str, set[str]]:
    found = {model.__name__: set(model.model_fields)}
    for field in model.model_fields.values():
        for part in _inner(field.annotation):
            found |= _models(part)
    return found


def _inner(annotation: object) -> list[type[BaseModel]]:
    parts = [inner for part in type_alternatives(annotation) for inner in (getattr(part, "__args__", None) or [part])]
    flat = [one for part in parts for one in type_alternatives(part)]
    return [one for one in flat if isinstance(one, type) and issubclass(one, BaseModel) and one is not Secret]


def test_paths_and_secrets_are_told_apart_by_name() -> None:
    """The templates write a path where a setting's name ends in `_file`, and a secret elsewhere: so it is named."""
    settings = catalog_of().settings.values()
    assert [one.path for one in settings if one.expected == "a path" and not one.path.endswith("_file")] == []
    assert [one.path for one in settings if one.secret and one.path.endswith(("_file", ".location"))] == []


def _names(text: str) -> set[str]:
    return set(re.findall(r"scylla_cdc_bridge_[a-z0-9_]+", text))


def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    """Every metric in a query is one that the job gives, with the suffix of its kind."""
    documented = (CHART.parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", documented, re.MULTILINE)
    given = {name for name, kind in rows if kind != "histogram"}
    given |= {f"{name}_{part}" for name, kind in rows if kind == "histogram" for part in ("bucket", "count", "sum")}
    rules = (CHART / "templates" / "monitoring" / "prometheusrule.yaml").read_text(encoding="utf-8")
    assert _names(rules) | _names(dashboard_text()) <= given
    assert len(_names(dashboard_text())) > 10


def test_dashboard_fills_its_rows() -> None:
    """No two panels overlap, and each has a query."""
    panels = json.loads(dashboard_text())["panels"]
    cells = [
        (panel["gridPos"]["y"] + dy, panel["gridPos"]["x"] + dx)
        for panel in panels
        for dy in range(panel["gridPos"]["h"])
        for dx in range(panel["gridPos"]["w"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for _, column in cells) == 23
    assert all(panel["targets"] for panel in panels)
