"""Logging of our processes: to standard error, in UTC, as plain lines or as JSON.

`2026-01-01T12:00:00.123Z INFO bridge.publishing.lane_publisher: ...`, or
`{"at": "2026-01-01T12:00:00.123Z", "level": "INFO", "logger": "bridge.publishing.lane_publisher", "message": "..."}`
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")

VARIABLE: Final = "SCYLLA_CDC_BRIDGE_LOG"
"""Tells a job's processes what to log, and in which form."""

_silencing: Final = Lock()
_silenced: Final[dict[str, tuple[int, int]]] = {}
"""Library -> how many want it silent now, and its level before the first of them: the last to leave may be another."""

Form = Literal["text", "json"]

LIBRARIES: Final = ("cassandra", "librdkafka", "py4j", "httpx", "httpx2", "httpcore", "httpcore2")
"""Loggers of libraries, which say at INFO what interests nobody."""


class LineFormatter(logging.Formatter):
    """One line a record: instant with milliseconds, level, logger, message.

    Libraries add tracebacks to warnings that they recover from; those are shown at level debug only.
    """

    def __init__(self, *, driver_tracebacks: bool) -> None:
        super().__init__()
        self._driver_tracebacks = driver_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        lines = [f"{_instant(record)} {record.levelname} {record.name}: {record.getMessage()}"]
        trace = self.trace(record)
        return "\n".join(lines if trace is None else [*lines, trace])

    def trace(self, record: logging.LogRecord) -> str | None:
        """The traceback to show, if any."""
        if record.exc_info and (self._driver_tracebacks or not _is_driver(record.name)):
            return self.formatException(record.exc_info)
        return None


class JsonFormatter(LineFormatter):
    """One JSON object a record and line: at, level, logger, message, and traceback where the lines have one."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        fields = {
            "at": _instant(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = self.trace(record)
        return json.dumps(fields if trace is None else {**fields, "traceback": trace}, ensure_ascii=False)


def replace_closed_streams() -> None:
    """Have standard output and error be there, though whoever started us has closed them: then they lead nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # for as long as we live


def export_settings(level: str, form: Form) -> None:
    """Have the processes that this one starts, and those that they start, log likewise (`ensure`)."""
    os.environ[VARIABLE] = f"{level} {form}"


def setup_from_environment() -> None:
    """Set the log up in a process that Spark has started, so that what it says looks like the rest of the job's."""
    if logging.getLogger().handlers:
        return
    level, _, form = os.environ.get(VARIABLE, "").partition(" ")
    setup(level if level in LEVELS else "info", form="json" if form == "json" else "text")


def setup(level: str = "info", *, form: Form = "text", stream: TextIO | None = None) -> None:
    """Send this process's log to `stream` (standard error by default); a second call replaces the first.

    Args:
        level: one of `LEVELS`; at `debug` the libraries' own log comes with it, from INFO on.
        form: lines for people, or JSON for log collectors.
        stream: where the lines go.

    Raises:
        ValueError: there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    debug = level == "debug"
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    formatter = JsonFormatter if form == "json" else LineFormatter
    handler.setFormatter(formatter(driver_tracebacks=debug))
    handler.addFilter(_of_its_library)
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one.formatter, LineFormatter)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if debug else max(logging.WARNING, root.level))


def _instant(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return f"{instant.removesuffix('+00:00')}Z"


def _of_its_library(record: logging.LogRecord) -> bool:
    """Treat what a library logs under no name (py4j does, where the JVM is gone) as its own logger's."""
    package = Path(record.pathname).parent.name
    if record.name != "root" or package not in LIBRARIES:
        return True
    record.name = package
    return logging.getLogger(package).isEnabledFor(record.levelno)


def _is_driver(name: str) -> bool:
    return name.partition(".")[0] in LIBRARIES


@contextmanager
def silence_library(driver: str) -> Iterator[None]:
    """Keep a library silent while we say ourselves what fails; not at level debug."""
    logger = logging.getLogger(driver)
    with _silencing:
        count, former = _silenced.get(driver, (0, logger.level))
        _silenced[driver] = count + 1, former
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        with _silencing:
            count, former = _silenced.pop(driver)
            if count > 1:
                _silenced[driver] = count - 1, former
            else:
                logger.setLevel(former)
