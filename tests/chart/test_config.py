"""The configuration file that is mounted: what was given, what the chart decides, and where secrets are found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.config.file.loader import load
from bridge.config.reference.catalog import catalog_of
from deploy.chart.documents import CHART, values_yaml
from deploy.chart.schema import OWNED_PROPERTIES
from tests.chart.rendering import FULL, LOCAL, NAME, Chart, Rendered

ETC = "/etc/scylla-cdc-bridge"


@pytest.mark.parametrize("values", [LOCAL, FULL], ids=lambda path: path.stem)
def test_the_job_takes_the_file(chart: Chart, values: Path, tmp_path: Path) -> None:
    """The rendered configuration file has no mistake and the given values."""
    path = tmp_path / "bridge.yaml"
    path.write_text(chart.render(values).config_text, encoding="utf-8")
    config = load(path)
    given = yaml.safe_load(values.read_text(encoding="utf-8"))["config"]
    assert config.name == given["name"]
    assert len(config.tables) == len(given["tables"])
    assert config.spark.checkpoint == "/var/lib/scylla-cdc-bridge"


def _examples() -> dict[str, Any]:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    comments = re.findall(r"^#   (.*)$", values_yaml().partition("As in:\n")[2], re.MULTILINE)
    (values,) = re.findall(r"^```yaml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return {"README.md": yaml.safe_load(values), "values.yaml": {"config": yaml.safe_load("\n".join(comments))}}


@pytest.mark.parametrize("document", _examples())
def test_examples_are_good(chart: Chart, document: str, tmp_path: Path) -> None:
    """What the chart's documents show as values is taken by the chart and by the job."""
    (tmp_path / "given.yaml").write_text(yaml.safe_dump(_examples()[document]), encoding="utf-8")
    (tmp_path / "bridge.yaml").write_text(chart.render(tmp_path / "given.yaml").config_text, encoding="utf-8")
    assert load(tmp_path / "bridge.yaml").name == "shop"


def _objects(node: Any) -> set[tuple[str, str, str]]:
    """Kind, name and key of what values name."""
    if isinstance(node, list):
        return {found for one in node for found in _objects(one)}
    if not isinstance(node, dict):
        return set()
    found = {
        (kind, node[f"existing{kind}"], node["key"]) for kind in ("Secret", "ConfigMap") if f"existing{kind}" in node
    }
    return found.union(*(_objects(one) for one in node.values()))


def test_steps_of_the_installation_make_what_its_values_name() -> None:
    """The README's steps create every Secret and ConfigMap of its values, with the key, before Helm is called."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    steps = text.partition("helm install")[0]
    made = re.findall(
        r"^kubectl -n cdc create (secret generic|configmap) (\S+) --from-file=([^=]+)=", steps, re.MULTILINE
    )
    named = {(kind.partition(" ")[0].replace("configmap", "configMap").lower(), *rest) for kind, *rest in made}
    values = _examples()["README.md"]
    assert named == {(kind.lower(), *rest) for kind, *rest in _objects(values)}
    repository = values["image"]["repository"]
    assert {f"docker build -f deploy/Dockerfile -t {repository}:0.1.0 .", f"docker push {repository}:0.1.0"} <= set(
        steps.splitlines()
    )


def test_secrets_become_files(full: Rendered) -> None:
    """A key of a Secret or ConfigMap becomes the path at which it is mounted, as a secret or as a plain path."""
    config = full.config
    assert config["scylla"]["password"] == {"file": f"{ETC}/secrets/scylla-reader/password"}
    assert config["registry"]["token"] == {"file": f"{ETC}/secrets/registry-token/token"}
    assert config["registry"]["client_key_password"] == {"env": "REGISTRY_KEY_PASSWORD"}
    assert config["registry"]["ca_file"] == f"{ETC}/configmaps/company-ca/ca.pem"
    assert config["registry"]["client_key_file"] == f"{ETC}/secrets/registry-client/tls.key"
    assert config["scylla"]["tls"]["ca_file"] == f"{ETC}/configmaps/company-ca/ca.pem"
    assert config["kafka"]["tls"]["client_key_file"] == f"{ETC}/secrets/kafka-client/tls.key"
    assert config["kafka"]["sasl"]["password"] == {"file": f"{ETC}/secrets/kafka-client/password"}
    assert config["kafka"]["properties"]["ssl.crl.location"] == f"{ETC}/configmaps/company-ca/crl.pem"


def _paths(node: Any) -> set[str]:
    if isinstance(node, dict):
        return {path for one in node.values() for path in _paths(one)}
    if isinstance(node, list):
        return {path for one in node for path in _paths(one)}
    return {node} if isinstance(node, str) and node.startswith("/") else set()


@pytest.mark.parametrize("pod", ["driver", "executor", "test"])
def test_every_path_is_mounted(full: Rendered, pod: str) -> None:
    """Each file that the configuration names lies in a volume of driver, executors and test."""
    spec = {"driver": full.driver, "executor": full.executor["spec"], "test": full.find("Pod", f"{NAME}-test")["spec"]}[
        pod
    ]
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(mounts.values()) <= volumes.keys()
    paths = [Path(path) for path in _paths(full.config) if "/secrets/" in path or "/configmaps/" in path]
    assert len(paths) == 9
    for path in paths:
        volume = volumes[mounts[str(path.parent)]]
        named = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
        assert named == path.parent.name
    mounted = {
        (folder, item["path"])
        for folder, name in mounts.items()
        for item in (volumes[name].get("secret") or volumes[name].get("configMap") or {}).get("items", [])
        if "/secrets/" in folder or "/configmaps/" in folder
    }
    # An object may have further keys, such as another user's password.
    assert mounted == {(str(path.parent), path.name) for path in paths}
    objects = [volumes[name] for folder, name in mounts.items() if "/secrets/" in folder or "/configmaps/" in folder]
    assert all((one.get("secret") or one["configMap"])["items"] for one in objects)


def _given(paths: list[str], value: Any) -> dict[str, Any]:
    """Values under `config` with one value at each path."""
    values: dict[str, Any] = {}
    for at, path in enumerate(paths):
        node = values
        *sections, name = path.split(".")
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value(at)
    return {"config": values}


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_every_secret_and_every_file_may_lie_in_an_object(chart: Chart, kind: str) -> None:
    """The object of every secret and path is mounted where the configuration file says.

    The chart knows no such setting by name, so a new setting needs no change of the chart.
    """
    settings = [one for one in catalog_of().settings.values() if "[]" not in one.path]
    files = [one.path for one in settings if one.expected == "a path" and one.path != "spark.checkpoint"]
    secrets = [one.path for one in settings if one.secret] if kind == "Secret" else []
    paths = [*files, *secrets]
    assert len(files) >= 3
    rendered = chart.render(values=_given(paths, lambda at: {f"existing{kind}": f"object-{at}", "key": "the.key"}))
    mounts = {mount["mountPath"]: mount["name"] for mount in rendered.container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in rendered.driver["volumes"]}
    for at, path in enumerate(paths):
        found = rendered.config
        for name in path.split("."):
            found = found[name]
        folder, _, key = (found if path in files else found["file"]).rpartition("/")
        volume = volumes[mounts[folder]]
        named = volume["secret"]["secretName"] if kind == "Secret" else volume["configMap"]["name"]
        assert (named, key) == (f"object-{at}", "the.key"), path


def test_large_numbers_stay_whole(full: Rendered) -> None:
    """Helm keeps numbers as floats; the file has them as given."""
    assert '"max_transaction_bytes": 67108864' in full.config_text
    assert '"message.max.bytes": 10000000' in full.config_text


def test_local_work_is_done_by_as_many_tasks_as_cores(chart: Chart) -> None:
    """The number of tasks is given: in a container `local[*]` would count the node's cores."""
    config = chart.render(values={"driver": {"cores": 3, "memory": "2g"}}).config
    assert config["spark"]["master"] == "local[3]"
    assert config["spark"]["properties"] == {"spark.driver.memory": "2g"}


def test_further_spark_properties_are_taken(chart: Chart) -> None:
    """Spark properties that the chart does not set come from the configuration."""
    given = {"spark.log.level": "WARN"}
    config = chart.render(values={"config": {"spark": {"properties": given, "lanes": 8}}}).config
    assert config["spark"]["properties"] == {"spark.driver.memory": "1g", **given}
    assert config["spark"]["lanes"] == 8
    assert config["spark"]["master"] == "local[2]"


def test_executors_are_asked_for_in_the_releases_namespace(full: Rendered) -> None:
    """Client mode: where the driver listens, which pod owns the executors, what they are made of."""
    properties = full.config["spark"]["properties"]
    assert full.config["spark"]["master"] == "k8s://https://kubernetes.default.svc:443"
    expected = {
        "spark.executor.instances": 3,
        "spark.executor.cores": 2,
        "spark.kubernetes.namespace": "data",
        "spark.kubernetes.driver.pod.name": f"{NAME}-0",
        "spark.driver.host": f"{NAME}-0.{NAME}-driver.data.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.kubernetes.executor.request.cores": "500m",
        "spark.kubernetes.executor.limit.cores": "2",
        "spark.kubernetes.container.image": full.container["image"],
        "spark.kubernetes.executor.podTemplateFile": f"{ETC}/config/executor.yaml",
        "spark.authenticate": True,
        "spark.network.crypto.enabled": True,
        "spark.network.crypto.authEngineVersion": 2,
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": False,
    }
    assert {name: properties[name] for name in expected} == expected
    given = yaml.safe_load(FULL.read_text(encoding="utf-8"))["config"]["spark"]["properties"]
    assert given.items() <= properties.items()
    assert properties.keys() - given.keys() == OWNED_PROPERTIES.keys()


def test_change_of_the_file_restarts_the_driver(chart: Chart, local: Rendered) -> None:
    """The pod carries the file's checksum: another file is another pod, the same file is the same pod."""

    def pod(rendered: Rendered) -> Any:
        return rendered.find("StatefulSet")["spec"]["template"]

    assert pod(chart.render(LOCAL)) == pod(local)
    changed = chart.render(values={"config": {"reading": {"confidence_ms": 20_000}}})
    assert pod(changed)["metadata"]["annotations"] != pod(local)["metadata"]["annotations"]


def test_checksum_of_the_file_is_the_charts(chart: Chart, local: Rendered) -> None:
    """An annotation of that name, taken over from another chart's values, does not hide a change of the file."""
    given = {"checksum/config": "mine", "note": "mine"}
    own = local.find("StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    for values in ({"driver": {"podAnnotations": given}}, {"commonAnnotations": given}):
        pod = chart.render(values=values).find("StatefulSet")["spec"]["template"]["metadata"]
        assert pod["annotations"]["note"] == "mine"
        assert pod["annotations"]["checksum/config"] not in ("mine", "")
        assert len(pod["annotations"]["checksum/config"]) == len(own["checksum/config"])


def test_checkpoint_may_lie_in_an_object_store(chart: Chart) -> None:
    """A Hadoop-compatible path takes the volume's place."""
    rendered = chart.render(values={"checkpoint": {"path": "s3a://bucket/checkpoint"}})
    assert rendered.config["spark"]["checkpoint"] == "s3a://bucket/checkpoint"
    assert not [one for one in rendered.kinds() if one.startswith("PersistentVolumeClaim")]
    assert "checkpoint" not in {volume["name"] for volume in rendered.driver["volumes"]}


def test_job_goes_on_answering_when_its_tables_have_stopped(local: Rendered) -> None:
    """The job keeps answering after its tables have stopped, because the pod would restart in a loop."""
    assert local.config["monitoring"]["outlive_tables"] is True
