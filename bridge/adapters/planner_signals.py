"""Signals between the processes of a table's query: files on the machine of Spark's driver.

Spark does not pass to a source how many rows its tasks read, and it runs the planner in a process of its own beside the
job. The job learns of changes from its tasks' reports and signals them to the planner by touching a file; a lost signal
costs a table that is written to again some seconds of latency, once. The planner writes when it last polled the
streams, and how long that poll counts (`bridge.planning.poll_rate`), for the job and for the table's next planner; a
lost signal costs the cluster the requests of one micro-batch. The job writes which change topic has replaced
another one (`ReplacedTopic`).
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Final

from bridge.errors import BridgeError
from bridge.model.kept_formats import canonical_json
from bridge.model.table_facts import KnownTopic
from bridge.runtime.temp_dir import TemporaryFolder

_log = logging.getLogger(__name__)

_CHANGES: Final = "changes-came"
_LAST_POLL: Final = "last-poll"
_TOPIC: Final = "change-topic"


def signal_changes(path: str) -> None:
    """Signal to the planner that there were changes; a failure is logged.

    Args:
        path: `SignalFolder.path`.
    """
    try:
        os.utime(path)
    except OSError as error:
        _log.warning("changes can't be signalled to the planner (%s): %s", path, error.strerror)


class ChangeWatcher:
    """Notices the signals of `signal_changes`, in the planner.

    Args:
        path: `SignalFolder.path`.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen_ns = self._modified_ns()

    def saw_changes(self) -> bool:
        """Whether there was a signal since the last call, or since the watcher was made."""
        now_ns = self._modified_ns()
        changed, self._seen_ns = now_ns != self._seen_ns, now_ns
        return changed

    def _modified_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError as error:
            _log.warning("the signal for changes can't be read (%s): %s", self._path, error.strerror)
            return None


class LastPoll:
    """When a table's streams were last polled, and for how long that poll counts.

    Times are readings, in s, of the monotonic clock that all processes of this machine share (`time.monotonic`).

    Args:
        path: `SignalFolder.path`.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).with_name(_LAST_POLL)

    def record(self, at_s: float, counts_for_s: float) -> None:
        """Write a poll; a failure is logged.

        Args:
            at_s: when the poll was planned.
            counts_for_s: how long it counts, in s.
        """
        # A name of its own for each process: a planner that is about to end may write, too.
        new = self._path.with_suffix(f".{os.getpid()}")
        try:
            new.write_text(f"{at_s!r} {counts_for_s!r}", "ascii")
            new.replace(self._path)
        except OSError as error:
            _log.warning("the last poll of the streams can't be written (%s): %s", new, error.strerror)

    def remaining_s(self, now_s: float) -> float:
        """How much longer the last poll counts, in s; 0 if there was none."""
        try:
            at_s, counts_for_s = map(float, self._path.read_text("ascii").split())
        except FileNotFoundError:
            return 0.0
        except OSError as error:
            _log.warning("the last poll of the streams can't be read (%s): %s", self._path, error.strerror)
            return 0.0
        return min(counts_for_s, max(0.0, at_s + counts_for_s - now_s))


class ReplacedTopic:
    """The change topic that has replaced another one while the table runs: the job writes it, the planner reads it.

    Without it, the next job would warn of the new topic again.
    """

    def __init__(self, path: str) -> None:
        """Name the table by `SignalFolder.path`."""
        self._path = Path(path).with_name(_TOPIC)

    def write(self, topic: KnownTopic) -> None:
        """Write it; an error is logged."""
        temporary = self._path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(canonical_json(topic.to_json()), "utf-8")
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("the job could not write the change topic's id for the planner (%s): %s", temporary, error)

    def read(self) -> KnownTopic | None:
        """Return what was written last; None when nothing was, or on an error, which is logged."""
        try:
            return KnownTopic.from_json(json.loads(self._path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, BridgeError) as error:
            _log.warning("the planner could not read the change topic's id (%s): %s", self._path, error)
            return None


class SignalFolder:
    """The folder of one query's signal files; it exists until `close`.

    Attributes:
        path: the file whose modification time signals changes; the other signals lie beside it.

    Raises:
        OSError: there is no folder for temporary files.
    """

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        file = self._folder.path / _CHANGES
        file.touch()
        self.path = str(file)

    def close(self) -> None:
        """Remove the folder; safe to call twice."""
        self._folder.close()
