"""The configuration file's JSON schema, for editors and for the Helm chart's values. Made of the models alone.

It holds what one value can be, not what several must be together: `bridge.config` has the last word.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from bridge.config.document import BridgeConfig

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""What Helm's older releases and every editor know."""


def json_schema(model: type[BaseModel] = BridgeConfig) -> dict[str, Any]:
    """The schema of a model: what may be written in the file, with meanings and defaults.

    Returns:
        A draft-07 schema; sections are under `definitions` by the name of their model.
    """
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs", {})
    found: dict[str, Any] = without_titles({"$schema": DRAFT, **schema, "definitions": definitions})
    return found


def without_titles(node: Any) -> Any:
    """A schema without the titles that pydantic makes of field names; they say nothing."""
    if isinstance(node, dict):
        return {
            key: without_titles(value) for key, value in node.items() if key != "title" or not isinstance(value, str)
        }
    return [without_titles(one) for one in node] if isinstance(node, list) else node
