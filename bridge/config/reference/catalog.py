"""The settings of a configuration model as data, taken from the fields of the model. Pure."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import AnyUrl, BaseModel
from pydantic.fields import FieldInfo

from bridge.config.base import ExpectedText
from bridge.config.document import BridgeConfig, Secret

BOOLEAN: Final = "true or false"


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the configuration.

    Attributes:
        path: as in `reading.confidence_ms`; items of a list are `[]`, as in `tables[].name`.
        description: the field's description.
        expected: what a value must be, as in "a whole number from 1 to 1024".
        required: whether the file must have it.
        default: None if it is required, or unset by default.
        kind: `mapping` for free mappings, `list` for lists, else `value`.
        secret: whether it names the place of a secret.
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
    """The settings and sections of a configuration model.

    Attributes:
        settings: every setting by its path, in the order of the model.
        sections: the description of each section by its path (`scylla`; `tables[]` for the items of a list).
    """

    settings: Mapping[str, Setting]
    sections: Mapping[str, str]

    def knows(self, path: str) -> bool:
        """Return whether a path is a setting, a section, a list of sections, or "" for the whole file."""
        return not path or path in self.settings or path in self.sections or f"{path}[]" in self.sections


@cache
def catalog_of(model: type[BaseModel] = BridgeConfig) -> Catalog:
    """Return the catalog of a model."""
    sections = {path: " ".join((section.__doc__ or "").split()) for path, section in _find_sections(model, "")}
    return Catalog({setting.path: setting for setting in _find_settings(model, "")}, sections)


def _find_settings(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    # Sections come last, as in a file: there, a setting that follows a section would belong to the section.
    for name, field in sorted(
        model.model_fields.items(), key=lambda item: _section_model(item[1].annotation) is not None
    ):
        path = prefix + name
        section = _section_model(field.annotation)
        if section is None:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield Setting(
                path,
                field.description or "",
                _expected(field),
                field.is_required(),
                default,
                _kind(field.annotation),
                secret=Secret in type_alternatives(field.annotation),
            )
        else:
            yield from _find_settings(section, f"{path}{_item(field)}.")


def _find_sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = _section_model(field.annotation)
        if section is not None:
            path = f"{prefix}{name}{_item(field)}"
            yield path, section
            yield from _find_sections(section, f"{path}.")


def _item(field: FieldInfo) -> str:
    return "[]" if get_origin(field.annotation) is tuple else ""


def _kind(annotation: object) -> Literal["value", "list", "mapping"]:
    origin = get_origin(annotation)
    return "mapping" if origin is dict else "list" if origin is tuple else "value"


def type_alternatives(annotation: object) -> list[Any]:
    """Return the types that an annotation allows, without None and without the parts that only annotate."""
    if get_origin(annotation) is Annotated:
        return type_alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [found for part in get_args(annotation) for found in type_alternatives(part)]
    return [] if annotation is type(None) else [annotation]


def _section_model(annotation: object) -> type[BaseModel] | None:
    """Return the model of a section, or of the items of a list of sections; None for a value, as a secret is."""
    alternatives = type_alternatives(annotation)
    if len(alternatives) != 1:
        return None
    if get_origin(alternatives[0]) is tuple:
        return _section_model(get_args(alternatives[0])[0])
    found = alternatives[0]
    return found if isinstance(found, type) and issubclass(found, BaseModel) and found is not Secret else None


def _expected(field: FieldInfo) -> str:
    return " or ".join(_expected_of(type_, field) for type_ in type_alternatives(field.annotation))


def _expected_of(type_: Any, field: FieldInfo) -> str:
    origin = get_origin(type_)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(type_)))}"
    if origin is tuple:
        (choice, *_) = get_args(type_)
        choices = get_args(choice) if get_origin(choice) is Literal else ("host:port",)
        return f"a list of {', '.join(map(str, choices))}"
    if origin is dict:
        return "names with text, numbers or booleans"
    if type_ is int:
        return _range(field)
    if isinstance(type_, type) and issubclass(type_, AnyUrl):
        return "an http or https address such as http://host:8081"
    described = next((one.text for one in field.metadata if isinstance(one, ExpectedText)), None)
    return _EXPECTED_BY_TYPE[type_] if described is None or type_ is not str else described


_EXPECTED_BY_TYPE: Final[Mapping[object, str]] = {
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
