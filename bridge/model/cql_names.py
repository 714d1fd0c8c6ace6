"""Names as CQL and the configuration file take them. Pure."""

from __future__ import annotations

import re
from typing import Final

_NEEDS_NO_QUOTES: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def quoted(name: str) -> str:
    """A name in quotes, which CQL takes whatever its letters."""
    return '"' + name.replace('"', '""') + '"'


def shown_table(keyspace: str, table: str) -> str:
    """`keyspace.table` for people, who may put it into CQL or the configuration: quoted where it is not lower case."""
    return ".".join(part if _NEEDS_NO_QUOTES.fullmatch(part) else quoted(part) for part in (keyspace, table))
