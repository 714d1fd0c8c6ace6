"""The sections about the job's processes: `spark`, `startup`, `monitoring` and `logging`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from bridge.config.base import DAY_S, HOUR_MS, Address, ExpectedText, Model
from bridge.config.refused_names import RefusedNames, other_than, refuse_names
from bridge.config.secret_patterns import holds_secret


def _other_than(word: str) -> str:
    return other_than(word).removeprefix("^")


SPARK_SECRETS: Final = (
    "secret",
    "password",
    "passphrase",
    "token" + _other_than("file"),
    # The class or the file that provides a store's credentials is no secret.
    rf"credential($|[^s.]|s{_other_than('.provider')}|\.{_other_than('provider')})",
    r"(access|account|private)\.key",
    r"encryption\.key$",
    r"azure\.sas\.",
)
_SECRET: Final = re.compile("|".join(SPARK_SECRETS), re.IGNORECASE)
_MASTER: Final = (
    r"^(local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?|local-cluster\[[0-9]+,[0-9]+,[0-9]+\]|yarn|(spark|k8s)://\S+)$"
)
_SETTING_BY_PROPERTY: Final = {
    "spark.master": "spark.master",
    "spark.app.name": "name",
    "spark.sql.streaming.checkpointLocation": "spark.checkpoint",
}
"""Properties of Spark that have a setting of their own."""
AUTHENTICATE: Final = "spark.authenticate"
ENCRYPT: Final = "spark.network.crypto.enabled"
"""Properties that make Spark's processes authenticate each other, and encrypt their traffic; on by default."""
COMMON_FOLDER: Final = (
    "spark.authenticate.secret in the spark-defaults.conf of the folder SPARK_CONF_DIR, here and on the cluster's "
    "machines"
)
"""Where a standalone cluster and its jobs have their common secret."""
_HARMFUL: Final = {
    "spark.speculation": "a second attempt at a lane would take the lane's transactional id, and Kafka would fence the "
    "first one. Spark retries failed tasks without it",
}
"""Properties that the exactly-once protocol does not bear -> why."""
SPARK_REFUSED: Final = RefusedNames(
    {name: f"set {setting} instead" for name, setting in _SETTING_BY_PROPERTY.items()} | _HARMFUL,
    {SPARK_SECRETS: "a secret can not be here; give it by the environment or the identity of the pod"},
    {(other_than("spark."),): "Spark ignores properties that do not begin with `spark.`"},
)
"""Properties that `spark.properties` refuses."""
_IN_PLAIN_TEXT_WHY: Final = (
    "a secret can't be in the file, nor in Spark's command line; give it by the environment or the pod's identity"
)
_WITH_LOGIN: Final = re.compile(r"^[a-z][a-z0-9+.-]*://[^/]*@", re.IGNORECASE)


class SparkSettings(Model):
    """Where Spark runs the job, and how."""

    master: Annotated[str, ExpectedText("local, local[N], local[*], spark://host:port, k8s://address or yarn")] = Field(
        "local[*]", pattern=_MASTER, description="Spark master; `local[*]` is this machine alone."
    )
    checkpoint: str = Field(
        "checkpoint",
        min_length=1,
        description="Folder for Spark's plan (any Hadoop-compatible path). Losing it neither loses nor duplicates "
        "changes.",
    )
    lanes: int | None = Field(None, ge=1, le=1024, description="Lanes of each table; unset, one for each core.")
    trigger_interval_ms: int = Field(
        200,
        ge=0,
        le=HOUR_MS,
        description="Shortest time in ms from one micro-batch to the next. Each micro-batch costs about 0.1 s of CPU, "
        "however few changes it has. A longer interval saves CPU and delays changes by up to twice its length.",
    )
    fast_start: bool = Field(
        True,
        description="Whether to start Spark's JVM directly, with an archive of its classes where one was made, and "
        "Python processes as forks of one that has imported everything; that takes a third of the CPU. `false` leaves "
        "it to PySpark.",
    )
    properties: Annotated[dict[str, str | int | bool], SPARK_REFUSED] = Field(
        default_factory=dict,
        description="Further Spark properties. They appear in command lines, so secrets are refused: stores take those "
        "from the environment or from the pod's identity.",
    )

    @field_validator("checkpoint")
    @classmethod
    def _refuse_login(cls, value: str) -> str:
        if _WITH_LOGIN.match(value) and not value.startswith(("abfs", "wasb")):
            raise ValueError("a login can't be in the path: give it by the environment or the pod's identity")
        # Names of folders may have the form of partitions (`key=1`); parameters follow a `?`.
        path, _, parameters = value.partition("?")
        if holds_secret(path.replace("=", "/")) or holds_secret(parameters):
            raise ValueError("a secret can't be in the path: give it by the environment or the pod's identity")
        return value

    @field_validator("properties")
    @classmethod
    def _refuse_properties(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        unknown = [name for name in value if not name.startswith("spark.")]
        secrets = [name for name, text in value.items() if _SECRET.search(name) or holds_secret(str(text))]
        refuse_names(
            [
                *((name, _IN_PLAIN_TEXT_WHY) for name in secrets),
                *((name, "Spark ignores properties that do not begin with `spark.`") for name in unknown),
                *(
                    (name, f"set {_SETTING_BY_PROPERTY[name]} instead")
                    for name in value
                    if name in _SETTING_BY_PROPERTY
                ),
                *((name, f"leave it out: {_HARMFUL[name]}") for name in value if name in _HARMFUL),
            ]
        )
        return value


class StartupSettings(Model):
    """How long the start waits for servers that do not answer yet."""

    patience_s: int = Field(60, ge=0, le=DAY_S, description="How long in s the start tries to reach servers.")


class MonitoringSettings(Model):
    """Metrics, probes and the status page, on one HTTP port of the driver process."""

    enabled: bool = Field(True, description="Whether to open the port.")
    listen: Address = Field(
        "127.0.0.1:9404",
        description="Where to listen, `host:port`; 0.0.0.0 is every interface. If the default is in use, the job "
        "takes a free port instead; an address that is set must be free.",
    )
    stalled_after_s: int = Field(
        60,
        ge=1,
        le=DAY_S,
        description="A table counts as not ready once its cursors have not moved for this long, in s, although there "
        "are changes to read. After three times as long, and at least 20 s, its query is started again.",
    )
    outlive_tables: bool = Field(
        False,
        description="Once every table has stopped for good, keep answering as not ready instead of ending with status "
        "1. For environments that restart a process that ends.",
    )
    dead_after_s: int = Field(
        300,
        ge=10,
        le=DAY_S,
        description="The job counts as dead once its supervisor has not checked its queries for this long, in s.",
    )


class LoggingSettings(Model):
    """The job's own log, on standard error."""

    format: Literal["text", "json"] = Field(
        "text", description="Lines for people, or one JSON object on each line for log collectors."
    )
