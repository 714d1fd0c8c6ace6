"""A Java program as a reader of topics: kafka-clients and Apache Avro, which have nothing in common with our encoder.

Needs no jars beyond those that are there: kafka-clients and Jackson come with the local stack's Kafka, Apache Avro with
the package pyspark. (The registry has an Avro too, but that is 1.12.0, whose arrays of doubles hold floats: AVRO-4108.)
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.runtime.java import find_java
from sandbox.stack.jars import Jars
from sandbox.stack.stack import LocalStack

_SOURCE = Path(__file__).parent / "java" / "ReadTopic.java"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The program's own timeout tells what was missing, so it must come first.
_GRACE_S = 15


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as a reader gives it; records are dicts, enum symbols str, fixed bytes, floats as wide as Python's."""

    partition: int
    offset: int
    key: Any
    value: Any


class JavaReader:
    """The program, compiled into a folder."""

    def __init__(self, jars_folder: Path, folder: Path) -> None:
        """Compile; the jars must be there, as they are once a stack was up."""
        self._java = find_java()
        jars = Jars(jars_folder, self._java)
        libraries = [jars.class_path("kafka"), str(avro_jar())]
        jars.compile(_SOURCE, os.pathsep.join(libraries), folder)
        self._class_path = os.pathsep.join([str(folder), *libraries])

    def read(self, stack: LocalStack, wanted: Mapping[str, int], timeout_s: int = 60) -> dict[str, list[ReadRecord]]:
        """Read topics to their ends, and at least as many records of each as wanted; each partition in its order."""
        answer = subprocess.run(
            [
                *(self._java.command, *_JVM, "-cp", self._class_path, "ReadTopic"),
                *(stack.kafka, stack.registry, str(timeout_s)),
                *(f"{topic}={count}" for topic, count in wanted.items()),
            ],
            capture_output=True,
            timeout=timeout_s + _GRACE_S,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr.decode(errors="replace")[-5000:]
        found: dict[str, list[ReadRecord]] = {topic: [] for topic in wanted}
        for line in answer.stdout.splitlines():
            record = json.loads(line)
            key, value = _plain(record["key"]), _plain(record["value"])
            found[record["topic"]].append(ReadRecord(record["partition"], record["offset"], key, value))
        return found


def avro_jar() -> Path:
    """Apache Avro, as it comes with the package pyspark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/avro-[0-9]*.jar")
    return jar


def _plain(node: Any) -> Any:
    """Turn the program's tagged JSON into the values that a reader in Python has."""
    if not isinstance(node, dict):
        assert node is None or isinstance(node, bool | list), node
        return [_plain(item) for item in node] if isinstance(node, list) else node
    if "record" in node:
        return {name: _plain(value) for name, value in node["fields"].items()}
    ((tag, content),) = node.items()
    match tag:
        case "int" | "long":
            assert type(content) is int
            return content
        case "float" | "double":
            (number,) = struct.unpack(">f" if tag == "float" else ">d", bytes.fromhex(content))
            return number
        case "string" | "enum":
            return content
        case "uuid":
            return uuid.UUID(content)
        case "bytes" | "fixed":
            return bytes.fromhex(content)
        case "map":
            return {name: _plain(value) for name, value in content.items()}
        case _:
            raise AssertionError(f"not what ReadTopic prints: {node}")
