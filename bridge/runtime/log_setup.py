"""Sets up logging: to standard error, in UTC, as plain lines or as JSON.

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
"""The environment variable with the level and the form of the log, for the job's child processes."""

_silence_lock: Final = Lock()
_silenced: Final[dict[str, tuple[int, int]]] = {}
"""For each library: how many blocks silence it now, and its level before the first of them."""

Form = Literal["text", "json"]

LIBRARIES: Final = ("cassandra", "librdkafka", "py4j", "httpx", "httpx2", "httpcore", "httpcore2")
"""Loggers of libraries; what they log at INFO is of no use to operators."""


class LineFormatter(logging.Formatter):
    """One line for each record: time with milliseconds, level, logger, message.

    Args:
        library_tracebacks: whether to show the tracebacks of libraries, which they also add to warnings about errors
            that they recover from.
    """

    def __init__(self, *, library_tracebacks: bool) -> None:
        super().__init__()
        self._library_tracebacks = library_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; a traceback follows on further lines."""
        lines = [f"{_utc_time(record)} {record.levelname} {record.name}: {record.getMessage()}"]
        trace = self.trace(record)
        return "\n".join(lines if trace is None else [*lines, trace])

    def trace(self, record: logging.LogRecord) -> str | None:
        """The traceback to show; None for none."""
        if record.exc_info and (self._library_tracebacks or not _is_library(record.name)):
            return self.formatException(record.exc_info)
        return None


class JsonFormatter(LineFormatter):
    """One line of JSON for each record, with the fields at, level, logger, message, and traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        fields = {
            "at": _utc_time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = self.trace(record)
        return json.dumps(fields if trace is None else {**fields, "traceback": trace}, ensure_ascii=False)


def replace_closed_streams() -> None:
    """Replace standard output and error by /dev/null if the parent process has closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # stays open until the process ends


def export_settings(level: str, form: Form) -> None:
    """Pass level and form to all child processes; they apply them with `setup_from_environment`."""
    os.environ[VARIABLE] = f"{level} {form}"


def setup_from_environment() -> None:
    """Set the log up as `export_settings` has passed it on; does nothing if this process has a log already."""
    if logging.getLogger().handlers:
        return
    level, _, form = os.environ.get(VARIABLE, "").partition(" ")
    setup(level if level in LEVELS else "info", form="json" if form == "json" else "text")


def setup(level: str = "info", *, form: Form = "text", stream: TextIO | None = None) -> None:
    """Set up this process's log; a second call replaces the first.

    Args:
        level: one of `LEVELS`; `debug` includes the libraries' logs, from INFO on.
        form: lines for people, or JSON for log collectors.
        stream: where the lines are written; None for standard error.

    Raises:
        ValueError: there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    debug = level == "debug"
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    formatter = JsonFormatter if form == "json" else LineFormatter
    handler.setFormatter(formatter(library_tracebacks=debug))
    handler.addFilter(_assign_to_library)
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one.formatter, LineFormatter)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if debug else max(logging.WARNING, root.level))


def _utc_time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return f"{time.removesuffix('+00:00')}Z"


def _assign_to_library(record: logging.LogRecord) -> bool:
    """Assign a record of the root logger to the library that logged it; py4j logs so if the JVM has ended."""
    package = Path(record.pathname).parent.name
    if record.name != "root" or package not in LIBRARIES:
        return True
    record.name = package
    return logging.getLogger(package).isEnabledFor(record.levelno)


def _is_library(name: str) -> bool:
    return name.partition(".")[0] in LIBRARIES


@contextmanager
def silence_library(library: str) -> Iterator[None]:
    """Silence a library inside the block, whose errors the caller reports itself; at level debug it still logs."""
    logger = logging.getLogger(library)
    with _silence_lock:
        count, former = _silenced.get(library, (0, logger.level))
        _silenced[library] = count + 1, former
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        with _silence_lock:
            count, former = _silenced.pop(library)
            if count > 1:
                _silenced[library] = count - 1, former
            else:
                logger.setLevel(former)
