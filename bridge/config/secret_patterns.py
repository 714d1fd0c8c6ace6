"""Finds secrets in free text, such as the options of a JVM, by the names that the text assigns values to. Pure.

The regular expressions have the same meaning in Python and in Go, because the Helm chart's templates use them too.
"""

from __future__ import annotations

import re
from typing import Final

NAME: Final = (
    r"(?i)passw|passphrase|secret|token|credential|(access|account|private|api|encryption)[._-]?key|key$|(^|[._-])sig$"
    r"|(^|[^a-z]|key|store|db|user)pass$|[^a-z]pwd$"
)
"""Finds names of secrets: of environment variables, system properties and parameters."""
PLACE: Final = (
    r"(?i)((file|path|dir|directory|folder|location|url|uri|endpoint|provider|class|type|alias|name|id)"
    r"|(sort|partition|clustering|foreign|row|cache|group|routing|message|record|public)[._-]?key"
    r"|^google_application_credentials)$"
)
"""Finds the names among those that are not of secrets: of a secret's place or name, or of keys of rows."""
ASSIGNMENT: Final = r"""([A-Za-z0-9_.-]+)(?:\s*=\s*|["']\s*:\s*|\s*:\s+)["']?([^\s"';&,$]|\$[^\s"';&,({])"""
"""Finds a name and the beginning of its value: `-Dname=value`, `name="value"`, `"name": "value"`, `name: value`.

References to variables, `$(A)` and `${A}`, are not values."""
OPTION: Final = r"""--?[A-Za-z0-9_.][A-Za-z0-9_.-]*\s+["']?([^\s"';&,$-]|\$[^\s"';&,({])"""
"""Finds an option and the beginning of its value in the next word: `--name value`. Another option is not a value."""
LOGIN: Final = r"://[^/?#@\s:]*:([^/?#@\s$]|\$[^/?#@\s({])[^/?#@\s]*@"
"""Finds an address with a password."""
SIGNED: Final = r"(^|[^A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
"""Finds a JSON Web Token by its form (RFC 7515, section 3.1): its header begins with `{"`."""

_NAME_AT_START: Final = re.compile(r"^[A-Za-z0-9_.-]+")


def names_secret(name: str) -> bool:
    """Return whether a name is that of a secret."""
    return re.search(NAME, name) is not None and re.search(PLACE, name) is None


def holds_secret(text: str) -> bool:
    """Return whether a text holds a secret: after its name, in an address, or of a known form."""
    if re.search(LOGIN, text) or re.search(SIGNED, text):
        return True
    # Two searches, because a match of one form may contain the beginning of the other.
    matches = [*re.finditer(ASSIGNMENT, text), *re.finditer(OPTION, text)]
    return any(names_secret(_NAME_AT_START.findall(match[0])[0]) for match in matches)
