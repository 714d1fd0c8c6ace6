"""The chart's `values.schema.json`: the chart's own values, and the configuration file as it may stand in `config`.

In `config`, a secret or a path of a certificate may also name an object of Kubernetes and a key in it; the chart mounts
the object and writes the path. What the chart decides itself can't be set there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bridge.config_schema import DRAFT, json_schema
from bridge.config_values import RefusedNames
from deploy.chart.values import ChartValues

OWNED: Final[Mapping[str, tuple[str, ...]]] = {
    "SparkSettings": ("master", "checkpoint"),
    "MonitoringSettings": ("enabled", "listen", "outlive_tables"),
}
"""Settings that the chart makes of its own values, by the model they are in."""

OWNED_PROPERTIES: Final[Mapping[str, str]] = {
    "spark.driver.memory": "driver.memory",
    "spark.executor.instances": "executors.instances",
    "spark.executor.cores": "executors.cores",
    "spark.executor.memory": "executors.memory",
    "spark.executor.memoryOverhead": "executors.memoryOverhead",
    "spark.kubernetes.executor.request.cores": "executors.cpuRequest",
    "spark.kubernetes.executor.limit.cores": "executors.cpuLimit",
    "spark.driver.port": "executors.driverPort",
    "spark.blockManager.port": "executors.blockManagerPort",
    "spark.driver.blockManager.port": "executors.blockManagerPort",
    "spark.driver.bindAddress": "",
    "spark.driver.host": "",
    "spark.kubernetes.driver.pod.name": "",
    "spark.kubernetes.namespace": "",
    "spark.kubernetes.container.image": "image",
    "spark.kubernetes.container.image.pullPolicy": "image.pullPolicy",
    "spark.kubernetes.executor.podNamePrefix": "fullnameOverride",
    "spark.kubernetes.executor.podTemplateFile": "executors",
    "spark.kubernetes.executor.podTemplateContainerName": "",
    "spark.kubernetes.executor.disableConfigMap": "",
    "spark.kubernetes.driver.service.deleteOnTermination": "",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "",
    "spark.authenticate": "",
    "spark.network.crypto.enabled": "",
    "spark.network.crypto.authEngineVersion": "",
    "spark.network.crypto.cipher": "",
    "spark.network.crypto.saslFallback": "",
}
"""Spark's properties that the chart sets, and of which of its values; a test has the templates keep to them."""

_CONTRADICTING: Final = (
    "spark.master",
    "spark.submit.deployMode",
    "spark.dynamicAllocation.enabled",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.executor.container.image",
    "spark.local.dir",
)
"""Further ones that would undo those, or the chart's pods."""

FREE_WITH_FILES: Final = ("KafkaSettings", "properties")
"""The free mapping in which files may be named as well: librdkafka's `ssl.crl.location` and its like."""

_OBJECT_NAME: Final = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_KEY: Final = {"type": "string", "pattern": r"^[-._a-zA-Z0-9]+$", "maxLength": 253}


def values_schema() -> dict[str, Any]:
    """The whole schema, ready to be written as JSON."""
    own = _without_nulls(json_schema(ChartValues))
    config = json_schema()
    definitions: dict[str, Any] = config.pop("definitions")
    for model, names in OWNED.items():
        for name in names:
            # Not there before its section is: a section may be younger than the chart's own values.
            definitions.get(model, {"properties": {}})["properties"].pop(name, None)
    definitions = {name: _with_references(one) for name, one in definitions.items()}
    definitions["Secret"] = _secret(definitions["Secret"]["description"])
    model, name = FREE_WITH_FILES
    definitions[model]["properties"][name]["additionalProperties"]["anyOf"] += [_in("Secret"), _in("ConfigMap")]
    properties = definitions["SparkSettings"]["properties"]["properties"]
    properties["patternProperties"] |= RefusedNames((*OWNED_PROPERTIES, *_CONTRADICTING)).schema()
    config.pop("$schema")
    return {
        "$schema": DRAFT,
        "title": "Values of the chart scylla-cdc-bridge",
        "type": "object",
        "additionalProperties": False,
        "required": [*own["required"], "config"],
        "properties": {
            "global": {"type": "object", "description": "Helm's own; not used."},
            **own["properties"],
            "config": _with_references(config),
        },
        "definitions": _merged(own["definitions"], definitions),
    }


def schema_text() -> str:
    """The schema as it is kept in the chart."""
    return json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_nulls(own: dict[str, Any]) -> dict[str, Any]:
    """The same, with null taken for no value: Helm drops what is null before it looks, so what must not go is required.

    Free mappings may go, which is Helm's way to undo a default; the security contexts may not.
    """
    for name, one in {"": own, **own["definitions"]}.items():
        properties = one["properties"].items()
        one["required"] = [key for key, value in properties if name == "Security" or value.get("type") != "object"]
    return own


def _with_references(node: Any) -> Any:
    """A schema in which every path may also be a key of a Secret or ConfigMap."""
    if isinstance(node, dict):
        if node.get("format") == "path":
            text = {key: value for key, value in node.items() if key != "format"}
            return {"anyOf": [text, _in("Secret"), _in("ConfigMap")]}
        return {key: _with_references(value) for key, value in node.items()}
    return [_with_references(one) for one in node] if isinstance(node, list) else node


def _secret(description: str) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return {
        "description": f"{description} In the chart also a key of a Secret that exists.",
        "type": "object",
        "oneOf": [_exactly(env=text), _exactly(file=text), _in("Secret")],
    }


def _in(kind: str) -> dict[str, Any]:
    return _exactly(**{f"existing{kind}": _OBJECT_NAME, "key": _KEY})


def _exactly(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _merged(own: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    shared = own.keys() & config.keys()
    if shared:
        raise ValueError(f"the chart's values and the configuration both have a model {', '.join(sorted(shared))}")
    return own | config
