"""Sessions of the CQL driver alone, as a program beside the bridge opens them."""

from __future__ import annotations

from typing import Any

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy
from cassandra.query import dict_factory

from sandbox.stack.stack import LocalStack

# The blob of {'enabled': true}: five options, sorted, each key and value with its length.
ENABLED_BLOB = bytes.fromhex(
    "05000000"
    "0500000064656c7461" + "0400000066756c6c"
    "07000000656e61626c6564" + "0400000074727565"
    "09000000706f7374696d616765" + "0500000066616c7365"
    "08000000707265696d616765" + "0500000066616c7365"
    "0300000074746c" + "050000003836343030"
)


def connect(stack: LocalStack, **options: Any) -> Cluster:
    host, _, port = stack.cql.partition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60.0, row_factory=dict_factory)
    return Cluster(
        [host],
        port=int(port),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.2, max_attempts=None),
        connect_timeout=30,
        **options,
    )


def extensions(session: Session, keyspace: str, table: str) -> dict[str, bytes]:
    rows = session.execute(
        "SELECT extensions FROM system_schema.tables WHERE keyspace_name=%s AND table_name=%s", (keyspace, table)
    )
    return dict(rows.one()["extensions"] or {})
