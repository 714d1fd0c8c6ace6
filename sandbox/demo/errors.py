"""The demo's errors."""

from __future__ import annotations

from bridge.errors import BridgeError


class DemoError(BridgeError):
    """The demo cannot continue. The message says why, and shows the end of the log of the process at fault."""
