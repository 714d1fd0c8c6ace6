"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.go_tools import ToolMissingError

# Whatever the shell says: to compile the tests again, with their assertions, takes every worker longer than all that it
# imports, and each process that a test starts would compile the bridge again. What is kept is in no one's way.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes says more of the machine than of the code; each test as a whole has its bound.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Skip a test whose fixture lacks a tool, with the reason."""
    yield from _skipped_without_tools()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that lacks a tool, with the reason."""
    yield from _skipped_without_tools()


def _skipped_without_tools() -> Generator[None]:
    try:
        yield
    except ToolMissingError as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live to the end: to look through them for garbage, again and again, is a tenth of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)  # tests make little that refers to itself
        gc.enable()
