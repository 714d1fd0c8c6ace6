"""The ports of a job's Spark: who reaches them, and who is refused. The JVM is started as the job starts it."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

_RPC_REQUEST, _RPC_RESPONSE, _RPC_FAILURE = 3, 4, 5
_LISTENING = "0A"
_WITHIN_S = 60.0
_SPARK = """
import json, os, sys
from bridge.config.document import SparkSettings
from spark.jvm.session import StartingSession

starting = StartingSession("ports", SparkSettings.model_validate(json.loads(sys.argv[1])))
session = starting.result()
context = session.sparkContext
held = context.broadcast(b"rows of a table")
hadoop = context._jvm.org.apache.hadoop
user = hadoop.security.UserGroupInformation.getCurrentUser()
# Spark keeps the secret that it made under this name.
secret = user.getCredentials().getSecretKey(hadoop.io.Text("sparkCookie"))
(manager,) = context._jvm.scala.jdk.javaapi.CollectionConverters.asJava(context._jsc.sc().getExecutorMemoryStatus())
told = {
    "blocks": int(manager.rpartition(":")[2]),
    "rpc": int(context.getConf().get("spark.driver.port")),
    "gateway": context._gateway.gateway_parameters.port,
    "secret": "" if secret is None else bytes(secret).decode(),
    "pids": [os.getpid(), context._gateway.proc.pid],
    "conf": dict(context.getConf().getAll()),
    "app": context.applicationId,
    "block": f"broadcast_{held._jbroadcast.id()}_piece0",
}
print(json.dumps(told), flush=True)
sys.stdin.read()
session.stop()
starting.wait(60)
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a running Spark tells of itself; it works on this machine alone."""
    folder = tmp_path_factory.mktemp("spark")
    settings = json.dumps({"master": "local[2]", "checkpoint": str(folder / "checkpoint")})
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", _SPARK, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=Path(__file__).parents[3],
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield json.loads(line)
        process.communicate(timeout=_WITHIN_S)
    assert process.returncode == 0, (folder / "log").read_text()


def open_blocks(spark: dict[str, Any]) -> bytes:
    """Spark's own message for reading a block."""

    def text(value: str) -> bytes:
        return struct.pack(">i", len(value)) + value.encode()

    return b"\0" + text(spark["app"]) + text("driver") + struct.pack(">i", 1) + text(spark["block"])


def request(port: int, body: bytes) -> tuple[int, bytes]:
    """The type and the text of the answer to a request in Spark's protocol; type 0 if the connection is closed."""
    head = struct.pack(">bqi", _RPC_REQUEST, 7, len(body))
    with socket.create_connection(("127.0.0.1", port), _WITHIN_S) as client:
        client.sendall(struct.pack(">q", 8 + len(head) + len(body)) + head + body)
        with client.makefile("rb") as stream:
            length = stream.read(8)
            if len(length) < 8:
                return 0, b""
            answer = stream.read(struct.unpack(">q", length)[0] - 8)
            return answer[0], answer


def test_block_manager_refuses_strangers(spark: dict[str, Any]) -> None:
    """A client without the job's secret reads no block, although it knows the block's name."""
    kind, answer = request(spark["blocks"], open_blocks(spark))
    assert kind == _RPC_FAILURE, answer
    assert b"SaslMessage" in answer


def test_driver_refuses_strangers(spark: dict[str, Any]) -> None:
    """The driver does not even look at the message of a client without the job's secret."""
    kind, answer = request(spark["rpc"], b"anything")
    assert kind == _RPC_FAILURE, answer
    assert b"SaslMessage" in answer


def test_gateway_refuses_strangers(spark: dict[str, Any]) -> None:
    """Python's way to the JVM would run any code; it wants its own token first, and hangs up."""
    with socket.create_connection(("127.0.0.1", spark["gateway"]), _WITHIN_S) as client:
        client.sendall(b"r\nu\njava\ne\n")
        with client.makefile("rb") as stream:
            answer = stream.readline()
    # Py4J's marks of an error with a text.
    assert answer.startswith(b"!xsAuthentication error"), answer


def test_secret_is_the_drivers_alone(spark: dict[str, Any]) -> None:
    """Other users see command lines, the same user environments, and the configuration is logged and copied."""
    secret = spark["secret"]
    assert len(secret) >= 32
    for pid in spark["pids"]:
        for name in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert secret not in json.dumps(spark["conf"])
    assert spark["conf"]["spark.authenticate"] == "true"


def listening(pid: int) -> Iterator[str]:
    """Yield the addresses on which a process listens for TCP."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING and f"socket:[{words[9]}]" in links:
                raw = bytes.fromhex(words[1].partition(":")[0])
                # Each word of four bytes is in this machine's order.
                yield str(ip_address(b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))))


def test_local_ports_are_on_the_loopback_interface(spark: dict[str, Any]) -> None:
    """No other machine reaches them."""
    for pid in spark["pids"]:
        for address in listening(pid):
            found = ip_address(address)
            mapped = getattr(found, "ipv4_mapped", None)
            assert (mapped or found).is_loopback, address
    assert sum(1 for _ in listening(spark["pids"][1])) >= 3
