"""Temporary folders of jobs that run for long."""

from __future__ import annotations

import fcntl
import os

import pytest

from bridge.runtime.temp_dir import TemporaryFolder


def test_folder_is_locked_until_it_is_closed() -> None:
    """Programs that delete old temporary files skip locked folders."""
    folder = TemporaryFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "file").touch()
    other = os.open(folder.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder.close()
    folder.close()
    assert not folder.path.exists()
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
