"""What the registered shapes say about themselves; `tests.unit.bridge.encoding.test_shapes` tests their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from schemas.errors import OutputError
from schemas.options import ShapeName
from schemas.shapes.catalog import SHAPES, shape_of


@dataclass(frozen=True)
class Options:
    """The `cdc` options of a log."""

    delta: str = "full"
    preimage: str = "false"
    postimage: bool = False


def test_names() -> None:
    """The type of the option lists the registered shapes."""
    assert list(SHAPES) == list(get_args(ShapeName))
    assert all(shape_of(name) is shape for name, shape in SHAPES.items())
    with pytest.raises(OutputError, match="no output shape 'avro'; known are delta, full, debezium, flat"):
        shape_of("avro")


def test_default_keys_and_tombstones() -> None:
    """A value that describes a row goes with a key that names a row."""
    assert {name for name, shape in SHAPES.items() if shape.default_key == "primary_key"} == {"debezium", "flat"}
    assert {name for name, shape in SHAPES.items() if shape.by_row} == {"debezium", "flat"}
    assert {name for name, shape in SHAPES.items() if shape.default_tombstones} == {"debezium"}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("preimage", ["true", "full"])
@pytest.mark.parametrize("postimage", [False, True])
def test_advice_about_partial_preimages(name: str, preimage: str, postimage: bool) -> None:
    """Pre-images of touched columns are unreliable for shapes with `before`, unless post-images make them whole."""
    given = shape_of(name).advice(Options(preimage=preimage, postimage=postimage))
    found = [advice for advice in given if "unreliable in batches" in advice]
    assert bool(found) == (preimage == "true" and not postimage and name in ("full", "debezium"))
    assert all("'preimage': 'full' avoids it" in advice for advice in found)


@pytest.mark.parametrize("name", SHAPES)
def test_advice_about_keys_only(name: str) -> None:
    """Every shape lacks the columns of a change whose log row has keys only."""
    assert any("holds keys only" in advice for advice in shape_of(name).advice(Options(delta="keys")))


@pytest.mark.parametrize("name", ["full", "debezium", "flat"])
def test_no_advice_for_a_log_with_all_images(name: str) -> None:
    """A log with whole pre- and post-images gives these shapes everything."""
    assert not list(shape_of(name).advice(Options(preimage="full", postimage=True)))


def test_images_are_unused_by_delta() -> None:
    """The shape delta loses nothing with images and gains nothing by them."""
    delta = shape_of("delta")
    assert not list(delta.advice(Options()))
    assert [advice.partition(",")[0] for advice in delta.advice(Options(postimage=True))] == ["its log holds images"]
    effects = [delta.preimage_effect("false"), delta.preimage_effect("full"), delta.postimage_effect(False)]
    assert not any(effect.is_loss for effect in effects)


@pytest.mark.parametrize("name", ["full", "debezium", "flat"])
def test_effects_of_image_options(name: str) -> None:
    """Partial and missing images are a loss, whole ones are not; an unknown value counts as partial."""
    shape = shape_of(name)
    assert [shape.preimage_effect(value).is_loss for value in ("false", "true", "full")] == [True, True, False]
    assert shape.preimage_effect("keys") == shape.preimage_effect("true")
    assert [shape.postimage_effect(value).is_loss for value in (False, True)] == [True, False]


@pytest.mark.parametrize("name", SHAPES)
def test_effects_of_delta_option(name: str) -> None:
    """Only 'keys' loses something."""
    assert shape_of(name).delta_effect("keys").is_loss
    assert not shape_of(name).delta_effect("full").is_loss
