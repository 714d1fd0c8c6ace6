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
    r"|(sort|partition|clustering|foreign|row|cache|group|routing|message|record|public)[._-]?key"
    r"|^google_application_credentials)$"
)
"""Among those, names of what is no secret: where one lies, how one is called, what rows are sorted by."""
ASSIGNMENT: Final = r"""([A-Za-z0-9_.-]+)(?:\s*=\s*|["']\s*:\s*|\s*:\s+)["']?([^\s"';&,$]|\$[^\s"';&,({])"""
"""A name and what its value begins with: `-Dname=value`, `name="value"`, `"name": "value"`, `name: value`; not `$(A)`
and `${A}`."""
OPTION: Final = r"""--?[A-Za-z0-9_.][A-Za-z0-9_.-]*\s+["']?([^\s"';&,$-]|\$[^\s"';&,({])"""
"""The same of an option whose value is a word of its own: `--name value`; another option is none."""
LOGIN: Final = r"://[^/?#@\s:]*:([^/?#@\s$]|\$[^/?#@\s({])[^/?#@\s]*@"
"""An address with a password."""
SIGNED: Final = r"(^|[^A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
"""A JSON Web Token, whatever it is called (RFC 7515, section 3.1): its header begins with `{"`."""

_BEGIN: Final = re.compile(r"^[A-Za-z0-9_.-]+")


def names_secret(name: str) -> bool:
    """Whether what has this name is a secret."""
    return re.search(NAME, name) is not None and re.search(PLACE, name) is None


def holds_secret(text: str) -> bool:
    """Whether a secret stands in a text: after its name, in an address, or known by its own form."""
    if re.search(LOGIN, text) or re.search(SIGNED, text):
        return True
    # One after the other: what the one form has taken may begin another's name.
    found = [*re.finditer(ASSIGNMENT, text), *re.finditer(OPTION, text)]
    return any(names_secret(_BEGIN.findall(one[0])[0]) for one in found)
