"""Generates the configuration file's JSON schema, for editors and for the Helm chart's values. Pure.

The schema describes single values. Rules about several values together are checked only by the models.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from bridge.config.document import BridgeConfig

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest draft that Helm's older releases and all editors support."""


def json_schema(model: type[BaseModel] = BridgeConfig) -> dict[str, Any]:
    """Return the schema of a model: what the file may hold, with descriptions and defaults.

    Returns:
        A draft-07 schema; sections are under `definitions` by the name of their model.
    """
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs", {})
    found: dict[str, Any] = without_titles({"$schema": DRAFT, **schema, "definitions": definitions})
    return found


def without_titles(node: Any) -> Any:
    """Return a schema without the titles that pydantic derives from field names."""
    if isinstance(node, dict):
        return {
            key: without_titles(value) for key, value in node.items() if key != "title" or not isinstance(value, str)
        }
    return [without_titles(item) for item in node] if isinstance(node, list) else node
