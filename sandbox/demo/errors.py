"""The demo's errors."""

from __future__ import annotations

from bridge.errors import BridgeError


class DemoError(BridgeError):
    """The demo can't go on; the message says why, and ends with the log of the process at fault if there is one."""
