"""Debezium's own transform ExtractNewRecordState over our records: what a user of a sink connector gets of them.

Its jars come from Maven Central by Ivy, as the local stack's do, and into a folder of the test's: nothing but these
tests needs them. Apache Avro comes with pyspark, Kafka's client and Jackson with the local stack.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.runtime.java import find_java
from sandbox.stack.jars import KAFKA_VERSION, Jars, read_lock, resolve, verify
from tests.integration.support.java_reader import avro_jar

DEBEZIUM_VERSION = "3.2.3.Final"
_JACKSON_VERSION = "2.21.6"  # that of the local stack's Kafka
_SOURCE = Path(__file__).parent / "java" / "ApplyDebezium.java"
_LOCK = Path(__file__).parent / "java" / "debezium.lock"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TIMEOUT_S = 60

_DEPENDENCIES = "\n".join(
    f'<dependency org="{org}" name="{name}" rev="{version}" conf="debezium->default" transitive="false"/>'
    for org, version, names in (
        ("io.debezium", DEBEZIUM_VERSION, ("debezium-api", "debezium-common", "debezium-core")),
        ("org.apache.kafka", KAFKA_VERSION, ("connect-api", "connect-json", "connect-transforms")),
        ("com.fasterxml.jackson.module", _JACKSON_VERSION, ("jackson-module-blackbird",)),
    )
    for name in names
)
IVY_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="scylla-cdc-bridge" module="debezium-test"/>
  <configurations><conf name="debezium"/></configurations>
  <dependencies>
    {_DEPENDENCIES}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as it is in Kafka: schemas as the registry has them, unframed bodies; without a value, a tombstone."""

    key_schema: str
    key: bytes
    value_schema: str = ""
    value: bytes | None = None

    def line(self) -> str:
        value = "" if self.value is None else self.value.hex()
        return f"{self.key_schema}\t{self.key.hex()}\t{self.value_schema}\t{value}"


@dataclass(frozen=True, slots=True)
class Extracted:
    """What the transform makes of a record: the name of the value's schema, the value, the headers that it adds."""

    name: str
    value: Any
    headers: dict[str, Any]


class Debezium:
    """The transform, compiled into a folder."""

    def __init__(self, jars_folder: Path, folder: Path) -> None:
        """Fetch and compile; the local stack's jars must be there, as they are once a stack was up."""
        self._java = find_java()
        lock = read_lock(_LOCK.read_text(encoding="ascii"))
        resolve(folder, self._java, print, IVY_MODULE)
        verify(folder, lock)
        stack_jars = Jars(jars_folder, self._java)
        libraries = [*(str(folder / name) for name in lock), stack_jars.class_path("kafka"), str(avro_jar())]
        classes = folder / "classes"
        stack_jars.compile(_SOURCE, os.pathsep.join(libraries), classes)
        self._class_path = os.pathsep.join([str(classes), *libraries])

    def extract(self, records: Sequence[RawRecord], **settings: str) -> list[Extracted | None]:
        """Apply the transform with the given settings (underscores for points); None where it drops a record."""
        answer = subprocess.run(
            [
                *(self._java.command, *_JVM, "-cp", self._class_path, "ApplyDebezium"),
                *(f"{name.replace('_', '.')}={value}" for name, value in settings.items()),
            ],
            input="".join(f"{record.line()}\n" for record in records).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr.decode(errors="replace")[-5000:]
        lines = answer.stdout.decode().splitlines()
        return [None if line == "dropped" else _extracted(line) for line in lines]


def _extracted(line: str) -> Extracted:
    name, value, headers = line.split("\t")
    return Extracted(name, json.loads(value), json.loads(headers))
