"""The memory management of a process."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock, call

from bridge.engine.process.memory_tuning import apply_tuning


def test_freed_small_pieces_go_to_no_lists() -> None:
    """A C library without that option is left alone."""
    options: list[tuple[int, int]] = []
    for library in (SimpleNamespace(mallopt=lambda *option: options.append(option)), SimpleNamespace()):
        apply_tuning(Mock(), library)
    assert options == [(1, 0)]


def test_loaded_objects_leave_the_garbage_collectors_view() -> None:
    """After a last collection."""
    collector = Mock()
    apply_tuning(collector, SimpleNamespace())
    assert collector.mock_calls == [call.collect(), call.freeze(), call.set_threshold(50_000)]
