"""CQL identifiers as Avro names.

An Avro name is ``[A-Za-z_][A-Za-z0-9_]*``; a quoted CQL identifier is any text. An identifier that is an Avro name
stays as it is. In others every character that does not fit becomes ``_u<hex code point>_``:
``first name`` -> ``first_u20_name``, ``1st`` -> ``_u31_st``, ``zażółć`` -> ``za_u17c__uf3__u142__u107_``.

The mapping is injective and depends on one name alone. So two columns never collide, and a new column never renames
another one, which would break the schema's evolution. For this an underscore is escaped where it would begin an
escape: ``a_u20_b`` -> ``a_u5f_u20_b``.
"""

from __future__ import annotations

import re

_TO_ESCAPE = re.compile(
    r"""
    [^A-Za-z0-9_]                                     # not a character of an Avro name
    | \A[0-9]                                         # a name may not begin with a digit
    | _(?=u[0-9a-f]+(?:_|[^A-Za-z0-9_]))              # would read as an escape: _u20_, or _u20 before an escape
    """,
    re.VERBOSE,
)


def avro_name(identifier: str) -> str:
    """Return the Avro name of a CQL identifier, which is not empty and without its quotes."""
    return _TO_ESCAPE.sub(lambda match: f"_u{ord(match.group()):x}_", identifier)


def namespace(keyspace: str, table: str) -> str:
    """Return the Avro namespace of a table's schemas: ``<keyspace>.<table>``, both as Avro names."""
    return f"{avro_name(keyspace)}.{avro_name(table)}"
