"""The catalog of settings, and the example file that is generated from it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from bridge.config.document import BridgeConfig, SourceConfig, validate
from bridge.config.file.loader import load
from bridge.config.reference.catalog import catalog_of
from bridge.config.reference.example import example_yaml


def test_example_is_current() -> None:
    """The packaged example is the one that the settings generate."""
    packaged = resources.files("bridge.config").joinpath("example.yaml").read_text(encoding="utf-8")
    assert packaged == example_yaml(), "bridge/config/example.yaml is out of date: make docs"


def test_example_loads(tmp_path: Path) -> None:
    """The example is a valid configuration whose settings have their defaults."""
    path = tmp_path / "bridge.yaml"
    path.write_text(example_yaml(), encoding="utf-8")
    config = load(path)
    required = {name: getattr(config, name) for name in ("name", "scylla", "kafka", "registry", "tables")}
    assert config == validate(required)


_EITHER = {"username", "password"}, {"token", "logical_cluster", "identity_pool"}
"""Settings of the registry that exclude each other."""


@pytest.mark.parametrize("left_out", _EITHER)
def test_every_setting_uncommented_loads(tmp_path: Path, left_out: set[str]) -> None:
    """The example has every setting, and each is valid without its comment sign."""
    names = {path.rpartition(".")[2] for path in catalog_of().settings}
    text = re.sub(rf"^( *)# (?=(?:{'|'.join(names)}): )", r"\1", example_yaml(), flags=re.MULTILINE)
    # A login uses a name or a token, and either has the token or requests it.
    idle = "token|token_endpoint_url|token_endpoint_ca_file|client_id|client_secret|scope|extensions"
    text = re.sub(rf"^    (?=(?:{idle}): )", "    # ", text, flags=re.MULTILINE)
    text = text.replace("enabled: false", "enabled: true")
    before, registry, after = re.split(r"(^registry:\n(?:  .*\n)+)", text, flags=re.MULTILINE)
    registry = re.sub(rf"^  (?={'|'.join(left_out)}: )", "  # ", registry.replace("http://", "https://"), flags=re.M)
    path = tmp_path / "bridge.yaml"
    path.write_text(before + registry + after, encoding="utf-8")
    config = load(path)
    assert config.scylla.password is not None
    assert (config.registry.token is None) == ("token" in left_out)
    assert config.tables[0].lanes == 4
    for path_of in catalog_of().settings:
        name = path_of.rpartition(".")[2]
        assert re.search(rf"^ *(?:# )?(?:- )?{name}: ", text, re.MULTILINE), path_of


@pytest.mark.parametrize("model", [BridgeConfig, SourceConfig])
def test_every_setting_is_described(model: type[BridgeConfig] | type[SourceConfig]) -> None:
    """Every setting and every section has a description."""
    catalog = catalog_of(model)
    assert [path for path, setting in catalog.settings.items() if not setting.description] == []
    assert [path for path, meaning in catalog.sections.items() if not meaning] == []
