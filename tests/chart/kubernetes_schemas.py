"""JSON schemas of Kubernetes' objects for kubeconform, made of what the Go modules of their projects hold.

`k8s.io/kubernetes` has its API's OpenAPI document, the Prometheus operator its CustomResourceDefinitions. Every object
with named properties is closed, so that a misspelt field is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.go_tools import ToolMissingError, module_folder, tools_folder

Schema = dict[str, Any]
KUBERNETES: Final = "k8s.io/kubernetes"
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
VERSIONS: Final = ("1.31.14", "1.33.13", "1.36.3")
"""Of Kubernetes: the oldest that the chart takes, one between, the newest."""

_EITHER: Final = {"type": ["string", "integer"]}
_REFERENCE: Final = "#/definitions/"


def schemas_folder(version: str) -> Path:
    """Return the folder of one version's schemas; each is a file `<kind>-<group>-<version>.json`.

    Raises:
        ToolMissingError: the schemas are not built.
    """
    folder = _folder(version)
    if not folder.exists():
        raise ToolMissingError(f"{folder.name} is not built here; `make tools` builds it and needs Go")
    return folder


def build_schemas(version: str) -> Path:
    """Build one version's schemas unless they are built already, and return their folder.

    Raises:
        ToolMissingError: Go, which fetches the modules, is not installed.
        RuntimeError: Go fails; with its output.
    """
    folder = _folder(version)
    if not folder.exists():
        document = json.loads(
            (module_folder(f"{KUBERNETES}@v{version}") / "api/openapi-spec/swagger.json").read_bytes()
        )
        fresh = folder.with_suffix(".new")
        fresh.mkdir(parents=True, exist_ok=True)
        for name, schema in (*_builtin(document["definitions"]), *_custom()):
            (fresh / name).write_text(json.dumps(schema), encoding="utf-8")
        fresh.replace(folder)
    return folder


def _folder(version: str) -> Path:
    return tools_folder() / f"schemas-{version}"


def _builtin(definitions: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    closed = {name: _closed(one) for name, one in definitions.items()}
    for name, one in definitions.items():
        kinds = one.get("x-kubernetes-group-version-kind", [])
        # Not lists, nor what only requests are made of.
        if len(kinds) == 1 and "metadata" in one.get("properties", {}) and not name.endswith("List"):
            used: dict[str, Schema] = {}
            _collect(name, closed, used)
            yield _file_name(**kinds[0]), {"$ref": _REFERENCE + name, "definitions": used}


def _custom() -> Iterator[tuple[str, Schema]]:
    folder = module_folder(OPERATOR) / "example" / "prometheus-operator-crd"
    for plural in ("servicemonitors", "prometheusrules"):
        text = (folder / f"monitoring.coreos.com_{plural}.yaml").read_text(encoding="utf-8")
        spec = yaml.safe_load(text)["spec"]
        for version in spec["versions"]:
            schema = _closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            yield _file_name(spec["group"], version["name"], spec["names"]["kind"]), schema


def _file_name(group: str, version: str, kind: str) -> str:
    # As kubeconform names them: of a group only what is before the first dot.
    prefix = f"{group.partition('.')[0]}-" if group else ""
    return f"{kind}-{prefix}{version}.json".lower()


def _collect(name: str, definitions: dict[str, Schema], used: dict[str, Schema]) -> None:
    if name in used:
        return
    used[name] = definitions[name]
    for reference in _references(definitions[name]):
        _collect(reference.removeprefix(_REFERENCE), definitions, used)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for one in node.values():
            yield from _references(one)
    elif isinstance(node, list):
        for one in node:
            yield from _references(one)


def _closed(schema: Schema) -> Schema:
    """A schema whose objects take their named properties only, without words, in JSON schema's own terms."""
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return _EITHER
    if schema.get("description", "").startswith("Quantity is"):
        return {"type": ["string", "number"]}
    kept = {key: value for key, value in schema.items() if key in ("type", "required", "enum", "pattern", "$ref")}
    if "properties" in schema:
        kept["properties"] = {name: _closed(one) for name, one in schema["properties"].items()}
        kept["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = _closed(schema["additionalProperties"])
    if "items" in schema:
        kept["items"] = _closed(schema["items"])
    return kept
