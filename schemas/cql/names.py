"""Names as CQL and the configuration file accept them. Pure."""

from __future__ import annotations

import re
from typing import Final

_NEEDS_NO_QUOTES: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def quoted(name: str) -> str:
    """Return a name in double quotes, as CQL accepts every name."""
    return '"' + name.replace('"', '""') + '"'


def shown_table(keyspace: str, table: str) -> str:
    """Return `keyspace.table` for messages, quoted where CQL and the configuration file need quotes."""
    return ".".join(part if _NEEDS_NO_QUOTES.fullmatch(part) else quoted(part) for part in (keyspace, table))
