"""The servers with logins and rights, for the tests of this folder."""

from __future__ import annotations

from tests.integration.security.security_world import world, written

__all__ = ["world", "written"]
