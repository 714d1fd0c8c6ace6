"""The servers' jars: resolved by Apache Ivy, checked against a lock file, and the CQL server's extension compiled.

Ivy comes with the pyspark package, so that a Java runtime and Python packages are all that a machine needs. Ivy keeps
what it downloads in its usual cache below the user's home.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bridge.runtime.java import Java, find_java
from sandbox.errors import LocalStackError

CASSANDRA_VERSION = "5.0.9"
# Not 4.3 or 4.4 (KAFKA-20734): if a single broker, as this stack's, is killed during a commit, it does not write the
# commit's markers after its restart, and readers of committed records wait there for ever.
KAFKA_VERSION = "4.2.2"
KAFKA_LOGGING_VERSION = "2.25.5"
REGISTRY_VERSION = "3.0.9"

JARS_VARIABLE = "SCYLLA_CDC_BRIDGE_JARS"
_LOCK_FILE = Path(__file__).parent / "jars.lock"
_JAVA_SOURCES = Path(__file__).parent / "java"
_RESOLVE_TIMEOUT_S = 900.0
_PROGRESS_EVERY_S = 10.0
_TRIES = 3
"""The download of one of 147 jars fails sometimes. Downloaded jars stay in Ivy's cache."""
_COMPILE_TIMEOUT_S = 120.0

# The jars that the extension is compiled against, by the beginning of their names.
_COMPILE_AGAINST = ("cassandra-all-", "guava-", "slf4j-api-", "netty-buffer-", "netty-common-")

# Fetch the registry's archive without its POM: the POM names modules that are only in the archive.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true"/>
    <ibiblio name="central-without-pom" m2compatible="true" usepoms="false"/>
  </resolvers>
  <modules>
    <module organisation="io.apicurio" name="apicurio-registry-app" resolver="central-without-pom"/>
  </modules>
</ivysettings>
"""

# Two traps: Kafka's POM names no logging backend, and Ivy ignores the exclusion of chronicle-analytics that Cassandra's
# POM makes in its dependencyManagement.
_IVY_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="scylla-cdc-bridge" module="local-stack"/>
  <configurations><conf name="kafka"/><conf name="cql"/><conf name="registry"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="kafka->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{KAFKA_LOGGING_VERSION}"
                conf="kafka->default"/>
    <dependency org="org.apache.cassandra" name="cassandra-all" rev="{CASSANDRA_VERSION}" conf="cql->default"/>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{REGISTRY_VERSION}"
                conf="registry->default" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
    <exclude org="net.openhft" module="chronicle-analytics" conf="cql"/>
  </dependencies>
</ivy-module>
"""


def jars_folder(stack_folder: Path) -> Path:
    """Return the folder of the jars: the one that SCYLLA_CDC_BRIDGE_JARS names, else `jars` in the stack's folder."""
    named = os.environ.get(JARS_VARIABLE)
    return Path(named).absolute() if named else stack_folder / "jars"


class Jars:
    """The jars in one folder, which several stacks may share. Made usable by `ensure`."""

    def __init__(self, folder: Path, java: Java, *, lock: Mapping[str, str] | None = None) -> None:
        """Take the folder as it is; `lock` maps `<server>/<file>` to its SHA-256 (default: the package's lock file)."""
        self.folder = folder
        self._java = java
        self._lock = dict(read_lock(_LOCK_FILE.read_text(encoding="ascii")) if lock is None else lock)

    def ensure(self, report: Callable[[str], None]) -> None:
        """Fetch missing jars, check all jars, compile the extension and unpack the registry.

        Raises:
            LocalStackError: a jar could not be fetched or does not match the lock file, or the compiler failed.
        """
        with _locked(self.folder, report):
            missing = [name for name in self._lock if not self.folder.joinpath(name).is_file()]
            if missing:
                report(f"Resolving {len(self._lock)} jars from Maven Central into {self.folder} (one to two minutes)")
                began_s = time.monotonic()
                resolve(self.folder, self._java, report)
                report(f"Jars resolved in {time.monotonic() - began_s:.0f} s")
            verify(self.folder, self._lock)
            self._unpack_registry()
            self._compile_extension(report)

    def class_path(self, server: str) -> str:
        """Return the class path of "kafka" or of "cql" (with its extension in front)."""
        jars = [str(self.folder / name) for name in sorted(self._lock) if name.startswith(f"{server}/")]
        if server == "cql":
            jars.insert(0, str(self._extension()))
        return os.pathsep.join(jars)

    def jar(self, server: str, prefix: str) -> Path:
        """Return one jar of a server by the beginning of its file name.

        Raises:
            LocalStackError: the lock file has no such jar.
        """
        for name in sorted(self._lock):
            if name.startswith(f"{server}/{prefix}"):
                return self.folder / name
        message = f"jars.lock names no {prefix}* for {server}"
        raise LocalStackError(message)

    @property
    def registry_jar(self) -> Path:
        """The registry's own jar, which names the others next to it."""
        return self._registry_home / f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"

    @property
    def _registry_home(self) -> Path:
        return self.folder / f"registry-{REGISTRY_VERSION}"

    def _unpack_registry(self) -> None:
        if self.registry_jar.is_file():
            return
        with _made_whole(self._registry_home) as made, tarfile.open(self.jar("registry", "apicurio")) as archive:
            archive.extractall(made, filter="data")

    def _extension(self) -> Path:
        digest = hashlib.sha256(CASSANDRA_VERSION.encode())
        for source in sorted(_JAVA_SOURCES.rglob("*.java")):
            digest.update(source.relative_to(_JAVA_SOURCES).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
        return self.folder / f"extension-{digest.hexdigest()[:16]}"

    def _compile_extension(self, report: Callable[[str], None]) -> None:
        target = self._extension()
        if target.is_dir():
            return
        report("Compiling the CQL server's extension")
        against = os.pathsep.join(str(self.jar("cql", prefix)) for prefix in _COMPILE_AGAINST)
        with _made_whole(target) as made:
            self.compile(_JAVA_SOURCES, against, made)

    def compile(self, sources: Path, class_path: str, target: Path) -> None:
        """Compile a Java file, or every one below a folder, into the folder `target`.

        The compiler is the one that comes with the CQL server's jars, because a Java runtime has none.

        Raises:
            LocalStackError: the compiler failed (the message has its output), or took more than two minutes.
        """
        command = [
            *(self._java.command, "-cp", str(self.jar("cql", "ecj-"))),
            *("org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17", "-target", "17"),
            *("-proc:none", "-nowarn", "-classpath", class_path, "-d", str(target), str(sources)),
        ]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMPILE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            message = f"{sources} is not compiled after {_COMPILE_TIMEOUT_S:.0f} s"
            raise LocalStackError(message) from error
        if answer.returncode != 0:
            message = f"{sources} does not compile:\n{answer.stderr}{answer.stdout}"
            raise LocalStackError(message)


def read_lock(text: str) -> dict[str, str]:
    """Read lines `<sha256>  <server>/<file>`, as sha256sum writes them; lines beginning with # are comments.

    Raises:
        LocalStackError: a line is something else.
    """
    lock: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != hashlib.sha256().digest_size * 2 or "/" not in name:
            message = f"jars.lock has a line that is not `<sha256>  <server>/<file>`: {line!r}"
            raise LocalStackError(message)
        lock[name] = digest
    return lock


def verify(folder: Path, lock: Mapping[str, str]) -> None:
    """Check every file of the lock.

    Raises:
        LocalStackError: files are missing or differ; all of them are named.
    """
    missing = [name for name in lock if not folder.joinpath(name).is_file()]
    if missing:
        message = f"Missing in {folder} after resolving: {', '.join(missing)}"
        raise LocalStackError(message)
    wrong = [name for name, digest in lock.items() if _sha256(folder / name) != digest]
    if wrong:
        message = (
            f"Not the files that jars.lock names, by SHA-256, in {folder}: {', '.join(wrong)}. Nothing was started. "
            "Delete them there and in Ivy's cache (~/.ivy2/cache), and try again; if they come back so, don't use them."
        )
        raise LocalStackError(message)


def resolve(folder: Path, java: Java, report: Callable[[str], None], ivy_module: str = _IVY_MODULE) -> None:
    """Fetch all jars of an Ivy file into `<folder>/<configuration>/`, reporting progress every ten seconds.

    Args:
        folder: is made if it is missing.
        java: runs Ivy.
        report: takes a line for people.
        ivy_module: the Ivy file; of its own, the local stack's, whose configurations are the servers.

    Raises:
        LocalStackError: Ivy isn't there, failed several times, or took more than 15 minutes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for tries_left in reversed(range(_TRIES)):
        failure = _run_ivy(folder, java, report, ivy_module)
        if failure is None:
            return
        if not tries_left:
            raise LocalStackError(failure)
        report("Maven Central did not give all of them; trying again for the rest")


def _run_ivy(folder: Path, java: Java, report: Callable[[str], None], ivy_module: str) -> str | None:
    """Run Ivy once; return the reason if it failed, else None."""
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=folder) as scratch_name:
        scratch = Path(scratch_name)
        settings, module, log = scratch / "settings.xml", scratch / "ivy.xml", folder / "resolve.log"
        settings.write_text(_IVY_SETTINGS, encoding="utf-8")
        module.write_text(ivy_module, encoding="utf-8")
        # With types or configurations named here, Ivy fetches nothing and succeeds, so name neither.
        command = [
            *(java.command, "-cp", _ivy_class_path(), "org.apache.ivy.Main"),
            *("-settings", str(settings), "-ivy", str(module), "-retrieve"),
            str(folder / "[conf]" / "[artifact]-[revision](-[classifier]).[ext]"),
        ]
        with log.open("wb") as output:
            ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            try:
                _watch(ivy, log, report)
            finally:
                if ivy.poll() is None:
                    ivy.kill()
                ivy.wait()
    if ivy.returncode == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = "\n".join(f"    {line}" for line in lines if line.strip(". "))[-3000:]
    return f"Ivy could not resolve the jars. Is Maven Central reachable? The end of {log}:\n{told}"


def _watch(ivy: subprocess.Popen[bytes], log: Path, report: Callable[[str], None]) -> None:
    began_s = time.monotonic()
    while True:
        try:
            ivy.wait(timeout=_PROGRESS_EVERY_S)
        except subprocess.TimeoutExpired:
            passed_s = time.monotonic() - began_s
            if passed_s > _RESOLVE_TIMEOUT_S:
                message = f"Ivy is not done after {passed_s:.0f} s; see {log}"
                raise LocalStackError(message) from None
            text = log.read_text(encoding="utf-8", errors="replace")
            done = f"{text.count('found ')} modules found, {text.count('[SUCCESSFUL')} files fetched"
            report(f"  {passed_s:.0f} s: {done}")
        else:
            return


def _ivy_class_path() -> str:
    # Looked up, not imported: this package must not depend on pyspark's code, only on the jars in it.
    spec = importlib.util.find_spec("pyspark")
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [
        jar
        for location in locations
        for pattern in ("ivy-*.jar", "commons-cli-*.jar")
        for jar in sorted(Path(location, "jars").glob(pattern))
    ]
    if len(found) < 2:  # Ivy and the command line parser that it needs.
        message = f"The package pyspark, whose Ivy resolves the jars, is not complete in {sys.prefix}: install it."
        raise LocalStackError(message)
    return os.pathsep.join(map(str, found))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _made_whole(target: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes the name `target` only when the block ends well."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    try:
        yield scratch
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# flock() is per open file, but threads of one process must wait for each other as well.
_in_this_process = threading.Lock()


@contextmanager
def _locked(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time change a folder of jars."""
    folder.mkdir(parents=True, exist_ok=True)
    with _in_this_process, folder.joinpath(".lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"Waiting for another process that is preparing {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_lock() -> None:
    """Resolve into a fresh folder and write the package's lock file from what came."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        resolve(folder, find_java(), lambda line: print(line, flush=True))  # noqa: T201
        names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*") if path.is_file())
        comments = [line for line in _LOCK_FILE.read_text(encoding="ascii").splitlines() if line.startswith("#")]
        lines = [*comments, *(f"{_sha256(folder / name)}  {name}" for name in names)]
        _LOCK_FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    _write_lock()
