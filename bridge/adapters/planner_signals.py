"""Word from process to process of a table's query, by files on the machine of Spark's driver.

Spark tells a source nothing of the rows that its tasks read, and runs the planner in a process of its own, beside the
job's first one. That learns it from the tasks' reports and tells the planner that changes came, by a file's time; a
lost word costs a table that is written to again some seconds of latency once. The planner tells the job and the table's
next planner how long what it has asked last still counts (`bridge.planning.poll_rate`); a lost word costs the cluster a
micro-batch's requests. And it tells them which TTLs the log has had; the job keeps that in the checkpoint.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from bridge.planning.retention import LogTtl
from bridge.runtime.temp_dir import TemporaryFolder

_log = logging.getLogger(__name__)

_NAME: Final = "changes-came"
_ASKED: Final = "asked"
_TTL: Final = "ttl"


def signal_changes(path: str) -> None:
    """Say that changes came; what can't be said is logged."""
    try:
        os.utime(path)
    except OSError as error:
        _log.warning("the planner could not be told of changes (%s): %s", path, error.strerror)


class ChangeWatcher:
    """The planner's side."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen_ns = self._now_ns()

    def came(self) -> bool:
        """Whether changes came since the last time this was asked."""
        now_ns = self._now_ns()
        came, self._seen_ns = now_ns != self._seen_ns, now_ns
        return came

    def _now_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError as error:
            _log.warning("whether changes came can't be seen (%s): %s", self._path, error.strerror)
            return None


class LastPoll:
    """When a table's streams were asked last, and for how long that counts.

    Readings are of the clock that all processes of this machine have in common and that only goes forward
    (`time.monotonic`), in s.
    """

    def __init__(self, path: str) -> None:
        """Say whose.

        Args:
            path: of the file whose time says that changes came.
        """
        self._path = Path(path).with_name(_ASKED)

    def note(self, at_s: float, counts_for_s: float) -> None:
        """Say it; what can't be said is logged."""
        # A planner that is only just ending may say it, too.
        made = self._path.with_suffix(f".{os.getpid()}")
        try:
            made.write_text(f"{at_s!r} {counts_for_s!r}", "ascii")
            made.replace(self._path)
        except OSError as error:
            _log.warning("what was asked of the cluster could not be noted (%s): %s", made, error.strerror)

    def counts_for_s(self, now_s: float) -> float:
        """For how long it still counts; 0 when nothing was asked yet."""
        try:
            at_s, counts_for_s = map(float, self._path.read_text("ascii").split())
        except FileNotFoundError:
            return 0.0
        except OSError as error:
            _log.warning("what was asked of the cluster can't be seen (%s): %s", self._path, error.strerror)
            return 0.0
        return min(counts_for_s, max(0.0, at_s + counts_for_s - now_s))


class KnownTtl:
    """For how long a table's log keeps changes, as its planners have seen it: the next one goes on from that."""

    def __init__(self, path: str) -> None:
        """Say whose; as of `LastPoll`."""
        self._path = Path(path).with_name(_TTL)

    def note(self, ttl: LogTtl) -> None:
        """Say it; what can't be said is logged."""
        made = self._path.with_suffix(f".{os.getpid()}")
        try:
            made.write_text(ttl.to_text(), "ascii")
            made.replace(self._path)
        except OSError as error:
            _log.warning("the log's TTL could not be noted (%s): %s", made, error.strerror)

    def known(self) -> LogTtl:
        """What was said last."""
        try:
            return LogTtl.from_text(self._path.read_text("ascii"))
        except FileNotFoundError:
            return LogTtl()
        except OSError as error:
            _log.warning("what was known of the log's TTL can't be seen (%s): %s", self._path, error.strerror)
            return LogTtl()


class SignalFolder:
    """The files, for as long as the job runs; raises OSError where there is no folder for temporary files."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        file = self._folder.path / _NAME
        file.touch()
        self.path = str(file)

    def close(self) -> None:
        """Remove it; safe to call twice."""
        self._folder.close()
