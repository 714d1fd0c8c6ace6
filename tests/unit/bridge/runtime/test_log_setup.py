"""The lines of the log."""

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


def test_line_has_time_level_logger_and_message() -> None:
    """The time is in UTC with milliseconds; each record is one line."""
    first = _lines("info")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO bridge\.x: one 1", first)


def test_libraries_log_warnings_without_tracebacks() -> None:
    """Our own tracebacks are kept."""
    text = "\n".join(_lines("info"))
    assert "chatter" not in text
    assert "WARNING cassandra.cluster: trouble" in text
    assert text.count("ValueError: invalid literal") == 1


def test_libraries_log_everything_at_level_debug() -> None:
    """At level debug the libraries tell everything."""
    text = "\n".join(_lines("debug"))
    assert "INFO cassandra.cluster: chatter" in text
    assert text.count("ValueError: invalid literal") == 2


def test_library_is_silenced() -> None:
    """Not at level debug."""
    for level, heard in (("info", False), ("debug", True)):
        log_setup.setup(level, stream=io.StringIO())
        with log_setup.silence_library("cassandra"):
            assert logging.getLogger("cassandra.cluster").isEnabledFor(logging.ERROR) is heard
        assert logging.getLogger("cassandra.cluster").isEnabledFor(logging.ERROR)


def test_library_stays_silenced_until_the_last_block_ends() -> None:
    """The block that began first may end first."""
    log_setup.setup("info", stream=io.StringIO())
    logger = logging.getLogger("cassandra.cluster")
    first, second = log_setup.silence_library("cassandra"), log_setup.silence_library("cassandra")
    with ExitStack() as lasting:
        with first:
            lasting.enter_context(second)
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.ERROR)


def test_records_of_the_root_logger_belong_to_their_library() -> None:
    """If the JVM has ended, py4j logs to the root logger; it can be silenced, and its traceback is hidden."""

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


def test_unknown_level_is_refused() -> None:
    """The message lists the levels."""
    with pytest.raises(ValueError, match="none of debug, info"):
        log_setup.setup("loud")


def test_json_records() -> None:
    """Each record is one JSON object on one line, its traceback included."""
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
def test_child_processes_log_alike(
    monkeypatch: pytest.MonkeyPatch, handed_on: tuple[str, log_setup.Form] | None, level: str, form: str
) -> None:
    """Child processes have no configuration; they read the environment."""
    monkeypatch.setattr(os, "environ", {})
    if handed_on is not None:
        log_setup.export_settings(*handed_on)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    root.handlers.clear()
    log_setup.setup_from_environment()
    log_setup.setup_from_environment()
    logging.getLogger("bridge.engine.process.process_cache").info("info")
    logging.getLogger("bridge.engine.process.process_cache").warning("warning")
    lines = stream.getvalue().splitlines()
    assert len(lines) == (2 if level == "info" else 1)
    assert [line.startswith("{") for line in lines] == [form == "json"] * len(lines)
