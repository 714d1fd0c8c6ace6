"""The image's root file system, made by the Dockerfile's own steps and used as Kubernetes would: it alone is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.chart.values import RESTRICTED_POD
from tests.chart.rendering import LOCAL, Chart
from tests.image.dockerfile import Copy, UnknownStepError, stages
from tests.image.rootfs import ENTRYPOINT, RootFileSystem, image_root

# The first test of the image builds it.
pytestmark = pytest.mark.timeout(1800)

PYTHON = ENTRYPOINT[0]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> RootFileSystem:
    """Return the image's root file system."""
    return image_root(tmp_path_factory.mktemp("image"))


def test_image_is_what_the_chart_counts_on() -> None:
    """The chart gives only arguments, and its pods run as the image's user."""
    image = stages()[-1]
    assert ENTRYPOINT == ("python", "-m", "spark.jvm.executor_entrypoint")
    assert image.last("USER") == f"{RESTRICTED_POD['runAsUser']}:{RESTRICTED_POD['runAsGroup']}"
    assert [copy.stage for copy in image.copies()] == ["build"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM a\nSHELL bash", "SHELL bash"),
        ("FROM a\nWORKDIR /a\nCOPY --chown=1:1 README.md ./", "COPY --chown=1:1 README.md ./"),
        ("FROM a\nWORKDIR /a\nCOPY tests ./", "COPY tests: .dockerignore keeps it from the build"),
        ("FROM a\nWORKDIR /a\nRUN useradd --uid 1 --home-dir / --shell sh x && curl b", "RUN curl b"),
        ("FROM a AS build\nFROM b", "no WORKDIR"),
    ],
)
def test_step_that_cannot_be_followed_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A step of the Dockerfile that the check cannot follow is an error."""
    with pytest.raises(UnknownStepError, match=re.escape(words)):
        RootFileSystem(tmp_path / "root").build(text)


def test_steps_are_read_as_docker_reads_them() -> None:
    """Continued lines, comments between them, variables of the base in others, the exec form."""
    text = """
ARG BASE=a
FROM ${BASE} AS build
WORKDIR /src
COPY a b/ ./
RUN one \\
    # why
    && two
FROM ${BASE}
ENV PATH=/opt/bin:${PATH} \\
    HOME=/tmp
COPY --from=build /opt /opt
CMD ["--help"]
"""
    build, image = stages(text)
    assert (build.name, build.commands()) == ("build", ("one && two",))
    assert build.copies() == (Copy(("a", "b/"), "./", ""),)
    assert image.copies() == (Copy(("/opt",), "/opt", "build"),)
    assert image.environment({"PATH": "/bin"}) == {"PATH": "/opt/bin:/bin", "HOME": "/tmp"}
    assert image.arguments("CMD") == ("--help",)


def test_command_answers(image: RootFileSystem) -> None:
    """The entry point is the command line of this release."""
    ended = image.run([*ENTRYPOINT, "--version"])
    assert (ended.returncode, ended.stdout) == (0, "scylla-cdc-bridge 0.1.0\n"), ended.stderr


def test_nothing_is_writable_but_tmp(image: RootFileSystem) -> None:
    """As user 10001, on a read-only root file system, without the installer."""
    script = """
import os, pathlib, importlib.util
def writable(folder):
    try:
        (pathlib.Path(folder) / "probe").write_text("x")
    except OSError:
        return False
    return True
print(os.getuid(), [folder for folder in ("/", "/opt/scylla-cdc-bridge", "/usr", "/tmp") if writable(folder)])
print(importlib.util.find_spec("pip"))
"""
    ended = image.run([PYTHON, "-c", script])
    assert ended.stdout == "10001 ['/tmp']\nNone\n", ended.stderr


def test_image_holds_no_file_of_the_sandbox(image: RootFileSystem) -> None:
    """The image has neither the simulator nor the local stack."""
    packages = {path.name for path in image.root.glob("opt/scylla-cdc-bridge/lib/python*/site-packages/*")}
    assert {"bridge", "schemas", "spark"} <= packages
    assert "sandbox" not in packages
    assert not list(image.root.glob("**/jars.lock"))


def test_rendered_configuration_is_taken(image: RootFileSystem, chart: Chart) -> None:
    """The image accepts the chart's configuration file."""
    write = "import pathlib, sys; pathlib.Path('/tmp/bridge.yaml').write_text(sys.argv[1]); "
    run = "from spark.jvm.executor_entrypoint import main; sys.exit(main(['validate', '-c', '/tmp/bridge.yaml']))"
    ended = image.run([PYTHON, "-c", write + run, chart.render(LOCAL).config_text])
    assert ended.returncode == 0, ended.stderr
    assert "/tmp/bridge.yaml: no problem found" in ended.stdout


def test_spark_works_without_network(image: RootFileSystem) -> None:
    """Jars, JVM and Python workers are all inside: a task runs with nothing to fetch from."""
    script = """
from pathlib import Path
from bridge.config.document import SparkSettings
from spark.jvm.session import StartingSession
told = {"spark.driver.extraJavaOptions": "-Xlog:class+load:file=/tmp/loaded"}
session = StartingSession("check", SparkSettings(master="local[1]", properties=told)).result()
print(session.sparkContext.parallelize([1, 2, 3], 1).map(lambda x: x + 1).sum())
print(Path("/tmp/loaded").read_text().count("source: shared objects file (top)"))
session.stop()
"""
    ended = image.run([PYTHON, "-c", script], within_s=240)
    *_, computed, archived = ended.stdout.split()
    assert computed == "9", ended.stderr[-3000:]
    # The image's own archive of classes fits the image's JVM and jars.
    assert int(archived) > 3_000


def test_executor_starts_its_jvm(image: RootFileSystem) -> None:
    """With a pod's environment the JVM of Spark's Kubernetes executor comes up, and looks for its driver."""
    pod = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "spark-check",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "check-exec-1",
    }
    ended = image.run([*ENTRYPOINT, "executor"], environment=pod, within_s=240)
    assert ended.returncode != 0
    assert "KubernetesExecutorBackend" in ended.stderr
    assert re.search(r"Failed to connect to /?127\.0\.0\.1:9", ended.stderr), ended.stderr[-3000:]
    refused = image.run([*ENTRYPOINT, "executor"])
    assert (refused.returncode, "SPARK_DRIVER_URL" in refused.stderr) == (2, True)
