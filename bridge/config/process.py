"""The sections about the process itself: `spark`, `startup`, `monitoring` and `logging`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from bridge.config.base import DAY_S, HOUR_MS, Address, InWords, Model, RefusedNames, other_than, refuse_names
from bridge.config.secret_patterns import holds_secret


def _other_than(word: str) -> str:
    return other_than(word).removeprefix("^")


SPARK_SECRETS: Final = (
    "secret",
    "password",
    "passphrase",
    "token" + _other_than("file"),
    # The class or the file that a store takes its credentials from is none.
    rf"credential($|[^s.]|s{_other_than('.provider')}|\.{_other_than('provider')})",
    r"(access|account|private)\.key",
    r"encryption\.key$",
    r"azure\.sas\.",
)
_SECRET: Final = re.compile("|".join(SPARK_SECRETS), re.IGNORECASE)
_MASTER: Final = (
    r"^(local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?|local-cluster\[[0-9]+,[0-9]+,[0-9]+\]|yarn|(spark|k8s)://\S+)$"
)
_SETTINGS: Final = {
    "spark.master": "spark.master",
    "spark.app.name": "name",
    "spark.sql.streaming.checkpointLocation": "spark.checkpoint",
}
"""Spark's properties that have a setting of their own."""
SPARK_REFUSED: Final = RefusedNames(
    {name: f"set {setting} instead" for name, setting in _SETTINGS.items()},
    {SPARK_SECRETS: "a secret can not stand here; give it by the environment or the identity of the pod"},
    {(other_than("spark."),): "properties of Spark begin with `spark.`, and it ignores all others"},
)
"""Properties that `spark.properties` does not take."""
_IN_PLAIN_SIGHT: Final = (
    "a secret can't stand in the file, nor in Spark's command line; give it by the environment or the pod's identity"
)
_WITH_LOGIN: Final = re.compile(r"^[a-z][a-z0-9+.-]*://[^/]*@", re.IGNORECASE)


class SparkSettings(Model):
    """Where the work runs."""

    master: Annotated[str, InWords("local, local[N], local[*], spark://host:port, k8s://address or yarn")] = Field(
        "local[*]", pattern=_MASTER, description="Spark master; `local[*]` is this machine alone."
    )
    checkpoint: str = Field(
        "checkpoint",
        min_length=1,
        description="Folder (any Hadoop-compatible path) for Spark's plan; a lost one loses and doubles nothing.",
    )
    lanes: int | None = Field(
        None, ge=1, le=1024, description="Lanes of each table; unset, as many as there are cores to work them."
    )
    trigger_interval_ms: int = Field(
        200,
        ge=0,
        le=HOUR_MS,
        description="Shortest time from one micro-batch to the next, in ms. Each costs some 0.1 s of CPU, however few "
        "changes it has; longer, they are fewer, and changes up to twice as much later.",
    )
    properties: Annotated[dict[str, str | int | bool], SPARK_REFUSED] = Field(
        default_factory=dict,
        description="Further Spark properties. They stand in command lines, so secrets have no place among them: "
        "stores take those from the environment or from the pod's identity.",
    )

    @field_validator("checkpoint")
    @classmethod
    def _no_login(cls, value: str) -> str:
        if _WITH_LOGIN.match(value) and not value.startswith(("abfs", "wasb")):
            raise ValueError("a login can't stand in the path: give it by the environment or the pod's identity")
        # Folders may be named as partitions are (`key=1`); what stands behind a `?` are parameters.
        path, _, parameters = value.partition("?")
        if holds_secret(path.replace("=", "/")) or holds_secret(parameters):
            raise ValueError("a secret can't stand in the path: give it by the environment or the pod's identity")
        return value

    @field_validator("properties")
    @classmethod
    def _sparks_and_no_secrets(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        strange = [name for name in value if not name.startswith("spark.")]
        secret = [name for name, text in value.items() if _SECRET.search(name) or holds_secret(str(text))]
        refuse_names(
            [
                *((name, _IN_PLAIN_SIGHT) for name in secret),
                *((name, "Spark's properties begin with `spark.`, and it ignores all others") for name in strange),
                *((name, f"set {_SETTINGS[name]} instead") for name in value if name in _SETTINGS),
            ]
        )
        return value


class StartupSettings(Model):
    """How patient the start is with servers that are not there yet."""

    patience_s: int = Field(
        60, ge=0, le=DAY_S, description="How long in s an unreachable server is tried again at start."
    )


class MonitoringSettings(Model):
    """Metrics, probes and the status page, on one HTTP port of the job's first process."""

    enabled: bool = Field(True, description="Whether the port is opened.")
    listen: Address = Field(
        "127.0.0.1:9404",
        description="Where to listen, `host:port`; 0.0.0.0 is every interface. The default gives way to a free port "
        "when another job has it; an address that is set must be free.",
    )
    stalled_after_s: int = Field(
        60,
        ge=1,
        le=DAY_S,
        description="A table is not ready once its cursors have stood for this long, in s, although there is something "
        "to read.",
    )
    outlive_tables: bool = Field(
        False,
        description="Once every table has stopped for good, go on answering, not ready, instead of ending with status "
        "1; for where whatever ends is started again.",
    )
    dead_after_s: int = Field(
        300,
        ge=10,
        le=DAY_S,
        description="The job counts as dead once its supervisor has not looked at its queries for this long, in s.",
    )


class LoggingSettings(Model):
    """The job's own log, on standard error."""

    format: Literal["text", "json"] = Field(
        "text", description="Lines for people, or one JSON object a line for log collectors."
    )
