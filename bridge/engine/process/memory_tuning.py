"""Fits the memory management of a Python process to its work."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Any, Final

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_M_MXFAST: Final = 1
"""The option of glibc's `mallopt` for the largest piece, in bytes, that goes to a list of freed small pieces."""


@cache
def tune_memory() -> None:
    """Tune this process's memory management, once."""
    apply_tuning(gc, ctypes.CDLL(None))


def apply_tuning(collector: Any, c_library: Any) -> None:
    """Tune a garbage collector and a C library.

    Args:
        collector: the `gc` module, or a stand-in.
        c_library: the process's C library; one without `mallopt` is left alone.
    """
    # PySpark collects garbage after every task. With the libraries' objects in it, that was nearly all of a small
    # micro-batch's CPU time.
    collector.collect()
    collector.freeze()
    # No object that is made for a change is part of a cycle. Collecting after each 700 objects takes 5 % of all CPU.
    collector.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # The Kafka client takes a few small pieces for each record and frees tens of thousands at a commit. glibc keeps
    # freed small pieces in lists and later walks them piece by piece: up to half of the client's CPU time.
    mallopt = getattr(c_library, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MXFAST, 0)
