"""The section `scylla`: how to reach the ScyllaDB cluster, and how to limit the load on it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bridge.config.base import HOUR_MS, Addresses, Model
from bridge.config.secret import SecretSetting
from bridge.config.tls import TlsSettings

Consistency = Literal["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE"]


class ScyllaSettings(Model):
    """How to reach the ScyllaDB cluster, and how to limit the load on it."""

    contact_points: Addresses = Field(description="Nodes to connect to first, `host:port`.")
    local_datacenter: str | None = Field(
        None, description="Data center whose nodes serve the requests; unset, that of the first contact point."
    )
    username: str | None = Field(None, description="Role to log in as; unset, no authentication.")
    password: SecretSetting | None = Field(
        None, description="Where the role's password is; read again for each connection."
    )
    consistency: Consistency = Field(
        "LOCAL_QUORUM",
        description="Consistency of log reads; it must overlap with that of the writers (R + W > RF).",
    )
    metadata_consistency: Consistency | None = Field(
        None,
        description="Consistency of generation reads; unset, QUORUM, or ONE when the cluster has one node. With "
        "several nodes, ONE and LOCAL_ONE are replaced by QUORUM: a node that lags behind would hide a generation.",
    )
    page_rows: int = Field(2000, ge=10, le=100_000, description="Maximum number of log rows in one page.")
    requests_in_flight: int = Field(
        32,
        ge=1,
        le=1024,
        description="Maximum number of log requests that one lane has under way at a time; a request for 16 streams "
        "counts as 16.",
    )
    requests_per_second: int = Field(
        10_000,
        ge=1,
        le=10_000_000,
        description="Maximum number of log requests per second for finding changes, over all tables (in equal shares) "
        "and their lanes. Each micro-batch requests each stream once, and a request for 16 streams counts as 16. So "
        "this limits how often a table with many streams is read, also after a failure. Further pages of streams that "
        "have changes do not count.",
    )
    request_timeout_ms: int = Field(10_000, ge=100, le=HOUR_MS, description="Timeout of one request, in ms.")
    tls: TlsSettings = TlsSettings()

    @model_validator(mode="after")
    def _pair_login(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("`username` and `password` go together: set both or none")
        return self
