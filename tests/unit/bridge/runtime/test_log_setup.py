"""The log's lines."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import is_error

from bridge.runtime import log_setup


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    former = root.level, list(root.handlers), {name: logging.getLogger(name).level for name in log_setup.LIBRARIES}
    yield
    root.setLevel(former[0])
    root.handlers[:] = former[1]
    for name, level in former[2].items():
        logging.getLogger(name).setLevel(level)


def _lines(level: str) -> list[str]:
    stream = io.StringIO()
    log_setup.setup("error", stream=io.StringIO())
    log_setup.setup(level, stream=stream)
    logging.getLogger("bridge.x").info("one %d", 1)
    logging.getLogger("cassandra.cluster").info("chatter")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("cassandra.cluster").warning("trouble", exc_info=True)
        logging.getLogger("bridge.x").warning("ours", exc_info=True)
    return stream.getvalue().splitlines()


def test_line() -> None:
    """A line has the instant in UTC with milliseconds, level, logger and message; each comes once."""
    first = _lines("info")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO bridge\.x: one 1", first)


def test_drivers_are_quiet() -> None:
    """Libraries are heard from WARNING on and without the tracebacks of what they recover from; ours are kept."""
    text = "\n".join(_lines("info"))
    assert "chatter" not in text
    assert "WARNING cassandra.cluster: trouble" in text
    assert text.count("ValueError: invalid literal") == 1


def test_debug() -> None:
    """At level debug the libraries tell everything."""
    text = "\n".join(_lines("debug"))
    assert "INFO cassandra.cluster: chatter" in text
    assert text.count("ValueError: invalid literal") == 2


def test_quiet() -> None:
    """A library is silent for a while where we say ourselves what fails, but not at level debug."""
    for level, heard in (("info", False), ("debug", True)):
        log_setup.setup(level, stream=io.StringIO())
        with log_setup.silence_library("cassandra"):
            assert logging.getLogger("cassandra.cluster").isEnabledFor(logging.ERROR) is heard
        assert logging.getLogger("cassandra.cluster").isEnabledFor(logging.ERROR)


def test_quiet_of_several_threads() -> None:
    """The first to begin may be the first to end: silence lasts until the last, and no longer."""
    log_setup.setup("info", stream=io.StringIO())
    logger = logging.getLogger("cassandra.cluster")
    first, second = log_setup.silence_library("cassandra"), log_setup.silence_library("cassandra")
    with ExitStack() as lasting:
        with first:
            lasting.enter_context(second)
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.ERROR)


def test_library_without_a_name() -> None:
    """Where the JVM is gone, py4j logs as nobody: its traceback is hidden as any library's, and it can be silenced."""

    def hang_up(listener: socket.socket) -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    stream = io.StringIO()
    log_setup.setup("info", stream=stream)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=hang_up, args=[listener], daemon=True)
        answering.start()
        client = GatewayClient(port=listener.getsockname()[1])
        with log_setup.silence_library("py4j"):
            assert is_error(client.send_command("x\n", retry=False))[0]
        assert stream.getvalue() == ""
        assert is_error(client.send_command("x\n", retry=False))[0]
        listener.shutdown(socket.SHUT_RDWR)
        answering.join(5)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("ERROR py4j: Exception while sending command.")


def test_unknown_level() -> None:
    """A level that does not exist is refused."""
    with pytest.raises(ValueError, match="none of debug, info"):
        log_setup.setup("loud")


def test_json() -> None:
    """For collectors each record is one JSON object on one line, its traceback included."""
    stream = io.StringIO()
    log_setup.setup("info", form="json", stream=stream)
    logging.getLogger("bridge.x").info("über %s", '"1"\n2')
    try:
        int("broken")
    except ValueError:
        logging.getLogger("cassandra.cluster").warning("trouble", exc_info=True)
        logging.getLogger("bridge.x").warning("ours", exc_info=True)
    first, theirs, ours = map(json.loads, stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("at"))
    assert first == {"level": "INFO", "logger": "bridge.x", "message": 'über "1"\n2'}
    assert "traceback" not in theirs
    assert "ValueError: invalid literal" in ours["traceback"]


@pytest.mark.parametrize(
    ("handed_on", "level", "form"), [(None, "info", "text"), (("warning", "json"), "warning", "json")]
)
def test_processes_of_a_job_log_alike(
    monkeypatch: pytest.MonkeyPatch, handed_on: tuple[str, log_setup.Form] | None, level: str, form: str
) -> None:
    """What Spark starts knows no configuration; the job's environment tells it."""
    monkeypatch.setattr(os, "environ", {})
    if handed_on is not None:
        log_setup.export_settings(*handed_on)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    root.handlers.clear()
    log_setup.setup_from_environment()
    log_setup.setup_from_environment()
    logging.getLogger("bridge.engine.process_cache").info("info")
    logging.getLogger("bridge.engine.process_cache").warning("warning")
    lines = stream.getvalue().splitlines()
    assert len(lines) == (2 if level == "info" else 1)
    assert [line.startswith("{") for line in lines] == [form == "json"] * len(lines)
