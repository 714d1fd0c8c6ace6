"""What the local CQL server shows as a given version of ScyllaDB: its system tables, and the columns that came later.

The server stands for a cluster that was created before ScyllaDB 4.4 and upgraded since: the older table of generations
exists, without rows. A node that was created since 2026.2 has no mark `rewritten` in `system.cdc_local`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sandbox.errors import LocalStackError

VERSIONS: Final = ("5.2", "6.2", "2025.1", "2025.4", "2026.2")
"""The versions that differ from the one before them, ascending."""
NEWEST: Final = VERSIONS[-1]

LAST_WITH_MARK: Final = "2025.4"
"""The last of `VERSIONS` in which a node marks the copy of the generations as complete."""

_TABLES: Final = (
    (
        "5.2",
        "cdc_generation_timestamps (key text, time timestamp, expired timestamp, PRIMARY KEY (key, time)) "
        "WITH CLUSTERING ORDER BY (time DESC)",
    ),
    (
        "5.2",
        "cdc_streams_descriptions_v2 (time timestamp, range_end bigint, streams frozen<set<blob>>, "
        "PRIMARY KEY (time, range_end))",
    ),
    ("5.2", "cdc_streams_descriptions (time timestamp PRIMARY KEY, streams frozen<set<blob>>, expired timestamp)"),
    ("5.2", "cdc_local (key text PRIMARY KEY, streams_timestamp timestamp, uuid uuid)"),
    ("5.2", "versions (key text PRIMARY KEY, build_id text, build_mode text, version text)"),
    (
        "5.2",
        "scylla_tables (keyspace_name text, table_name text, cdc frozen<map<text, text>>, partitioner text, "
        "version uuid, PRIMARY KEY (keyspace_name, table_name))",
    ),
    (
        "5.2",
        "scylla_keyspaces (keyspace_name text PRIMARY KEY, storage_type text, storage_options frozen<map<text, text>>)",
    ),
    (
        "2025.4",
        "cdc_timestamps (keyspace_name text, table_name text, timestamp timestamp, "
        "PRIMARY KEY ((keyspace_name, table_name), timestamp)) WITH CLUSTERING ORDER BY (timestamp DESC)",
    ),
    # On ScyllaDB the rows come in token order, and a filter by `stream_id` finds nothing. Two columns more do the same
    # here: `ring_token`, and `no_stream_id`, which is null in all rows and by which StatementRewriter.java filters.
    (
        "2025.4",
        "cdc_streams (keyspace_name text, table_name text, timestamp timestamp, stream_state tinyint, "
        "ring_token bigint, stream_id blob, no_stream_id blob, "
        "PRIMARY KEY ((keyspace_name, table_name), timestamp, stream_state, ring_token, stream_id))",
    ),
    # The simulator's own table: `sandbox.scylla.cluster.known_streams`.
    (
        "5.2",
        "known_streams (owner text, time bigint, range_ends frozen<list<bigint>>, streams frozen<list<blob>>, "
        "PRIMARY KEY (owner, time))",
    ),
)
_LATER_COLUMNS: Final = (
    ("6.2", "scylla_keyspaces", "initial_tablets int"),
    ("6.2", "scylla_tables", "committed_by_group0 boolean"),
    ("2025.4", "scylla_tables", "tablets frozen<map<text, text>>"),
    ("2026.2", "scylla_keyspaces", "consistency text"),
    ("2026.2", "scylla_tables", "storage_engine text"),
)
"""From which version on a table has a column that it did not have at first."""


def system_tables(version: str) -> Iterator[str]:
    """Return the statements that make a version's system tables, or bring those of an earlier version up to date.

    Args:
        version: one of `VERSIONS`.
    """
    for since, definition in _TABLES:
        if _is_in(since, version):
            yield f"CREATE TABLE IF NOT EXISTS {definition}"
    for since, table, column in _LATER_COLUMNS:
        if _is_in(since, version):
            yield f"ALTER TABLE {table} ADD IF NOT EXISTS {column}"
    yield f"INSERT INTO versions (key, version) VALUES ('local', '{version}.0')"  # noqa: S608  # a version of ours
    if _is_in(version, LAST_WITH_MARK):
        # The table of the oldest format exists, so its generations are marked as copied.
        yield "INSERT INTO cdc_local (key) VALUES ('rewritten')"


def check_upgrade(former: str, version: str) -> None:
    """Check that data of one version can be used as another one.

    Args:
        former: the version of the data, one of `VERSIONS`.
        version: the version that is wanted.

    Raises:
        LocalStackError: there is no such version, or it is older than the data.
    """
    if version not in VERSIONS:
        message = f"ScyllaDB {version} is not known here. Choose one of {', '.join(VERSIONS)}"
        raise LocalStackError(message)
    if VERSIONS.index(version) < VERSIONS.index(former):
        message = (
            f"the stack's data are those of ScyllaDB {former}, and ScyllaDB has no way back to {version}. Delete them "
            "first: scylla-cdc-bridge local down --delete-data"
        )
        raise LocalStackError(message)


def _is_in(since: str, version: str) -> bool:
    return VERSIONS.index(since) <= VERSIONS.index(version)
