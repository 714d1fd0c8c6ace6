"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more of the machine than of the code; each test as a whole has its bound.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
