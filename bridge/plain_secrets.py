"""Whether free text, such as a JVM's options, holds a secret: by the names in it that are given values.

Regular expressions in a form that Python and Go read alike: the Helm chart's templates go by them, too. Pure.
"""

from __future__ import annotations

import re
from typing import Final

NAME: Final = (
    r"(?i)passw|passphrase|secret|token|credential|(access|account|private|api|encryption)[._-]?key|key$|(^|[._-])sig$"
    r"|(^|[^a-z]|key|store|db|user)pass$|[^a-z]pwd$"
)
"""Names of secrets: environment variables, system properties, parameters."""
PLACE: Final = (
    r"(?i)((file|path|dir|directory|folder|location|url|uri|endpoint|provider|class|type|alias|name|id)"
    r"|^google_application_credentials)$"
)
"""Among those, names of what is no secret: where one lies, how one is called."""
ASSIGNMENT: Final = r"""([A-Za-z0-9_.-]+)(?:\s*=\s*|["']\s*:\s*)["']?([^\s"';&,$]|\$[^\s"';&,({])"""
"""A name and what its value begins with: `-Dname=value`, `name="value"`, `"name": "value"`; not `$(A)` and `${A}`."""
LOGIN: Final = r"://[^/?#@\s:]*:([^/?#@\s$]|\$[^/?#@\s({])[^/?#@\s]*@"
"""An address with a password."""


def names_secret(name: str) -> bool:
    """Whether what has this name is a secret."""
    return re.search(NAME, name) is not None and re.search(PLACE, name) is None


def holds_secret(text: str) -> bool:
    """Whether a secret stands in a text: after its name, or in an address."""
    if re.search(LOGIN, text):
        return True
    return any(names_secret(found[1]) for found in re.finditer(ASSIGNMENT, text))
