"""The chart's `values.schema.json`: the chart's own values, and the configuration file in `config`.

In `config`, a secret or a certificate's path can also name a Kubernetes object and a key in it. The chart mounts the
object and writes the path. The schema rejects settings that the chart makes itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.config.kafka import KAFKA_REFUSED, KAFKA_SECRETS
from bridge.config.process import SPARK_REFUSED, SPARK_SECRETS
from bridge.config.reference.catalog import catalog_of
from bridge.config.reference.json_schema import DRAFT, json_schema
from bridge.config.refused_names import RefusedNames, left_out, never
from bridge.config.secret_patterns import ASSIGNMENT, LOGIN, NAME, OPTION, PLACE, SIGNED
from deploy.chart.values import ChartValues

OWNED: Final[Mapping[str, Mapping[str, str]]] = {
    "SparkSettings": {
        "master": "`mode`, with `driver.cores` or `executors`, says where the work is done",
        "checkpoint": "set `checkpoint.path` or `checkpoint.persistence` instead",
    },
    "MonitoringSettings": {
        "enabled": "always so here: the probes of the pod ask there",
        "listen": "set `monitoring.port` instead",
        "outlive_tables": "always so here: what ends would be started again",
    },
}
"""Settings that the chart derives from its own values: model -> setting -> what to do instead."""

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
"""Spark properties that the chart sets -> the chart value that they come from; "" if there is none."""

_CONTRADICTING: Final = {
    "spark.master": OWNED["SparkSettings"]["master"],
    "spark.submit.deployMode": "the driver always is a pod of its own",
    "spark.dynamicAllocation.enabled": "the number of executors is fixed: set `executors.instances`",
    "spark.kubernetes.driver.container.image": "set `image` instead",
    "spark.kubernetes.executor.container.image": "set `image` instead",
    "spark.local.dir": "pods can write one folder alone: set `temporary`",
    "spark.sql.streaming.checkpointLocation": OWNED["SparkSettings"]["checkpoint"],
    "spark.app.name": "set `config.name` instead",
}
"""Spark properties that would contradict the chart's settings or pods -> what to do instead."""

_OBJECT_FORM: Final = "{existingSecret: NAME, key: KEY}"
_REFUSED_BY_SPARK_SECTION: Final = (
    "a secret would stand in a ConfigMap and in command lines; give it to the pods by `driver.extraEnv` and "
    "`executors.extraEnv`, with `valueFrom`, or by the identity of their accounts"
)
_REFUSED_BY_KAFKA_SECTION: Final = (
    f"a secret would stand in a ConfigMap; config.kafka.sasl and config.kafka.tls take {_OBJECT_FORM}"
)

FREE_WITH_FILES: Final = ("KafkaSettings", "properties")
"""The free mapping whose values can name files, such as librdkafka's `ssl.crl.location`: model and field."""

_OBJECT_NAME: Final = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_KEY: Final = {"type": "string", "pattern": r"^[-._a-zA-Z0-9]+$", "maxLength": 253}


def values_schema() -> dict[str, Any]:
    """Return the whole schema as JSON values."""
    own = _require_values(json_schema(ChartValues))
    config = json_schema()
    definitions: dict[str, Any] = config.pop("definitions")
    for model, names in OWNED.items():
        definitions[model]["properties"] |= {name: left_out(text) for name, text in names.items()}
    definitions = {name: _allow_references(one) for name, one in definitions.items()}
    definitions["Secret"] = _secret_schema(definitions["Secret"]["description"])
    model, name = FREE_WITH_FILES
    definitions[model]["properties"][name]["additionalProperties"]["anyOf"] += [
        _object_key("Secret"),
        _object_key("ConfigMap"),
    ]
    for model, refused in _refused_properties().items():
        definitions[model]["properties"]["properties"]["patternProperties"] = refused.schema()
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
            "config": _allow_references(config),
        },
        "definitions": _merge_definitions(own["definitions"], definitions),
    }


def schema_text() -> str:
    """Return the text of `values.schema.json`."""
    return json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n"


def secrets_text() -> str:
    """Return the text of `files/secrets.json`: the patterns by which templates detect secrets in free values.

    A template can explain the rejection; the schema could only reject the value.
    """
    forms = {
        "name": NAME,
        "place": PLACE,
        "assignment": ASSIGNMENT,
        "option": OPTION,
        "login": LOGIN,
        "signed": SIGNED,
    }
    return json.dumps(forms, indent=2) + "\n"


def _refused_properties() -> dict[str, RefusedNames]:
    """Return the refused names of free properties by model, with settings named as values of the chart."""
    of_values = {
        name: f"the chart sets it, by `{value}`" if value else "the chart sets it"
        for name, value in OWNED_PROPERTIES.items()
    }
    spark = {name: _name_as_values(text) for name, text in SPARK_REFUSED.names.items()}
    kafka = {name: _name_as_values(text) for name, text in KAFKA_REFUSED.names.items()}
    return {
        "SparkSettings": replace(
            SPARK_REFUSED,
            names=spark | of_values | _CONTRADICTING,
            words=dict(SPARK_REFUSED.words) | {SPARK_SECRETS: _REFUSED_BY_SPARK_SECTION},
        ),
        "KafkaSettings": replace(
            KAFKA_REFUSED, names=kafka, words=dict(KAFKA_REFUSED.words) | {KAFKA_SECRETS: _REFUSED_BY_KAFKA_SECTION}
        ),
    }


def _name_as_values(text: str) -> str:
    """Return a text with its settings renamed to values of the chart (`config.` in front)."""
    catalog = catalog_of()
    return re.sub(
        r"\b[a-z]+\.[a-z_.]*[a-z]\b", lambda found: f"config.{found[0]}" if catalog.knows(found[0]) else found[0], text
    )


def _require_values(own: dict[str, Any]) -> dict[str, Any]:
    """Make all values required except free mappings, because Helm drops null values before it validates.

    A null free mapping is Helm's way to remove a default. The security contexts stay required.
    """
    for name, one in {"": own, **own["definitions"]}.items():
        properties = one["properties"].items()
        one["required"] = [key for key, value in properties if name == "Security" or value.get("type") != "object"]
    return own


def _allow_references(node: Any) -> Any:
    """Return a schema in which every path can also be a key of a Secret or ConfigMap."""
    if isinstance(node, dict):
        if node.get("format") == "path":
            text = {key: value for key, value in node.items() if key != "format"}
            return {"anyOf": [text, _object_key("Secret"), _object_key("ConfigMap")]}
        return {key: _allow_references(value) for key, value in node.items()}
    return [_allow_references(one) for one in node] if isinstance(node, list) else node


def _secret_schema(description: str) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return {
        "description": f"{description} In the chart also a key of a Secret that exists.",
        "if": {"type": "object"},
        "then": {"oneOf": [_closed_object(env=text), _closed_object(file=text), _object_key("Secret")]},
        "else": never(f"{_OBJECT_FORM}: a secret is named here, and lies elsewhere"),
    }


def _object_key(kind: str) -> dict[str, Any]:
    return _closed_object(**{f"existing{kind}": _OBJECT_NAME, "key": _KEY})


def _closed_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _merge_definitions(own: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    shared = own.keys() & config.keys()
    if shared:
        raise ValueError(f"the chart's values and the configuration both have a model {', '.join(sorted(shared))}")
    return own | config
