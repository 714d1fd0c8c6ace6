"""The configuration reference as Markdown: one table for each section of the file. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from pydantic import BaseModel

from bridge.config.document import BridgeConfig
from bridge.config.reference.catalog import Setting, catalog_of

_HEAD: Final = "| Setting | Default | Value | Meaning |\n|---|---|---|---|\n"


def settings_markdown(model: type[BaseModel] = BridgeConfig, level: int = 3) -> str:
    """Return the reference of every setting of a model, grouped by section.

    Args:
        model: the configuration model to document.
        level: depth of the headings; 3 writes `### scylla`.

    Returns:
        Markdown with one heading, the section's description and one table for each section. Settings outside of any
        section come first, without a heading. The text ends with a line feed.
    """
    catalog = catalog_of(model)
    parts = []
    for section, settings in groupby(catalog.settings.values(), key=_section):
        heading = f"{'#' * level} `{section}`\n\n{catalog.sections[section]}\n\n" if section else ""
        parts.append(heading + _HEAD + "".join(map(_row, settings)))
    return "\n".join(parts)


def _section(setting: Setting) -> str:
    return setting.path.rpartition(".")[0]


def _row(setting: Setting) -> str:
    cells = (f"`{setting.path}`", _default_text(setting), setting.expected, setting.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default_text(setting: Setting) -> str:
    default = setting.default
    if setting.required:
        return "required"
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default}`"
