"""The supported versions of Kubernetes and the Prometheus operator accept every field of every manifest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.kubernetes_schemas import VERSIONS, schemas_folder
from tests.chart.rendering import FULL, LOCAL, NAME, Chart
from tests.go_tools import KUBECONFORM


def conform(manifests: str, version: str) -> subprocess.CompletedProcess[str]:
    """Run kubeconform on manifests."""
    location = f"{schemas_folder(version)}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return subprocess.run(
        [KUBECONFORM.get(), "-strict", "-summary", "-kubernetes-version", version, "-schema-location", location],
        input=manifests,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [LOCAL, FULL], ids=lambda path: path.stem)
def test_manifests_conform(chart: Chart, values: Path, version: str) -> None:
    """No manifest has an unknown field, a wrong type, or no schema; nor has the executors' pod template."""
    rendered = chart.render(values)
    manifests = list(rendered.manifests)
    if values == FULL:
        manifests.append(rendered.executor | {"metadata": {"name": "executor"}})
    ended = conform(yaml.safe_dump_all(manifests), version)
    assert ended.returncode == 0, ended.stdout
    assert f"Valid: {len(manifests)}, Invalid: 0, Errors: 0, Skipped: 0" in ended.stdout


def test_misspelt_field_is_found(chart: Chart) -> None:
    """The schemas are closed: a field that Kubernetes does not know is an error."""
    statefulset = chart.render().find("StatefulSet")
    statefulset["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    ended = conform(yaml.safe_dump(statefulset), VERSIONS[0])
    assert ended.returncode == 1
    assert NAME in ended.stdout
    assert "readynessProbe" in ended.stdout
