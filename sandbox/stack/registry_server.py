"""The stack's schema registry: Apicurio Registry with its Confluent-compatible API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bridge.runtime.java import Java
from sandbox.stack.jars import Jars
from sandbox.stack.ports import LOOPBACK

_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """The registry in the folder `data`, for clients on `port`."""

    data: Path
    log: Path
    port: int
    java: Java
    jars: Jars
    name: str = "registry"

    @property
    def url(self) -> str:
        """The base URL for clients of the Confluent API."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def prepare(self) -> None:
        """Make the folder for the registry's scratch files."""
        self._scratch.mkdir(exist_ok=True)

    def command(self) -> list[str]:
        """Return the registry's command line."""
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.port),
            "quarkus.oidc.tenant-enabled": "false",
            # A database in a file keeps schema ids over a restart.
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:file:{self.data / 'registry'}",
            "apicurio.datasource.jdbc.initial-size": "2",
            "apicurio.datasource.jdbc.min-size": "2",
            "apicurio.datasource.jdbc.max-size": "10",
            # A schema with other white space is the same schema, as in Confluent's registry.
            "apicurio.ccompat.use-canonical-hash": "true",
            "apicurio.ccompat.max-subjects": "100000",
            "apicurio.import.work-dir": str(self._scratch),
            "apicurio.storage.snapshot.location": str(self._scratch),
            "java.io.tmpdir": str(self._scratch),
        }
        return [
            *(self.java.command, "-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{key}={value}" for key, value in settings.items()),
            *("-jar", str(self.jars.registry_jar)),
        ]

    def problem(self) -> str | None:
        """Read the global compatibility. At the first start, set it to BACKWARD: Apicurio's default is NONE."""
        try:
            if self._call("GET")["compatibilityLevel"] == "NONE" and not self._configured.exists():
                self._call("PUT", {"compatibility": "BACKWARD"})
                self._configured.touch()
        except (OSError, ValueError, KeyError) as error:
            return f"no answer from {self.url} ({error})"
        return None

    @property
    def _configured(self) -> Path:
        # A user who sets NONE later keeps it over a restart.
        return self.data / "compatibility-was-set"

    @property
    def _scratch(self) -> Path:
        return self.data / "tmp"

    def _call(self, method: str, body: dict[str, str] | None = None) -> dict[str, object]:
        request = urllib.request.Request(  # noqa: S310 (always http to the loopback interface)
            f"{self.url}/config",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # A proxy of the user's environment must not handle requests to the loopback interface.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_PROBE_TIMEOUT_S) as answer:
            document = json.load(answer)
        if not isinstance(document, dict):
            message = "the server is not a schema registry"
            raise ValueError(message)  # noqa: TRY004 (an answer of a wrong form, not an argument)
        return document
