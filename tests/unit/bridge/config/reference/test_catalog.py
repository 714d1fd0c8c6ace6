"""What is generated from the settings: the example file and the table for the documentation."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from bridge.config.document import BridgeConfig, SourceConfig, validate
from bridge.config.file.loader import load
from bridge.config.reference.catalog import catalog_of, example_yaml


def test_example_is_current() -> None:
    """The packaged example is what the settings give now."""
    packaged = resources.files("bridge.config").joinpath("example.yaml").read_text(encoding="utf-8")
    code = 'from bridge.config.reference.catalog import example_yaml; print(example_yaml(), end="")'
    how = f"python -c '{code}' > bridge/config/example.yaml"
    assert packaged == example_yaml(), f"bridge/config/example.yaml is out of date; make it anew: {how}"


def test_example_loads(tmp_path: Path) -> None:
    """The example is a good configuration with nothing but defaults."""
    path = tmp_path / "bridge.yaml"
    path.write_text(example_yaml(), encoding="utf-8")
    config = load(path)
    required = {name: getattr(config, name) for name in ("name", "scylla", "kafka", "registry", "tables")}
    assert config == validate(required)


_EITHER = {"username", "password"}, {"token", "logical_cluster", "identity_pool"}
"""Settings of the registry of which only the ones or the others can be given."""


@pytest.mark.parametrize("left_out", _EITHER)
def test_every_setting_uncommented_loads(tmp_path: Path, left_out: set[str]) -> None:
    """Each setting of the example is right as it stands, and each setting is there."""
    names = {path.rpartition(".")[2] for path in catalog_of().settings}
    text = re.sub(rf"^( *)# (?=(?:{'|'.join(names)}): )", r"\1", example_yaml(), flags=re.MULTILINE)
    # A login is by name or by token, and the token is given or asked for.
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
    """No setting and no section lacks its meaning."""
    catalog = catalog_of(model)
    assert [path for path, setting in catalog.settings.items() if not setting.description] == []
    assert [path for path, meaning in catalog.sections.items() if not meaning] == []
