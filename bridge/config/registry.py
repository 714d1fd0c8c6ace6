"""The section `registry`: how to reach the schema registry, and how to register schemas."""

from __future__ import annotations

from typing import Self

from pydantic import AnyHttpUrl, Field, field_validator, model_validator

from bridge.config.base import HOUR_MS, HTTP_ADDRESS, Model
from bridge.config.secret import SecretSetting
from bridge.config.tls import TlsFiles
from schemas.wire.subjects import Part, Subject, SubjectNameStrategy, subject_of


class _RegistryAccess(Model):
    """The registry's address, and the identity to use there."""

    url: AnyHttpUrl = Field(
        description="Base address, as Confluent's clients take it.", json_schema_extra=dict(HTTP_ADDRESS)
    )
    username: str | None = Field(None, description="User for basic authentication; unset, none.")
    password: SecretSetting | None = Field(
        None, description="Where the user's password is; read again when the registry refuses it."
    )
    token: SecretSetting | None = Field(
        None,
        description="Where a token for bearer authentication is, instead of user and password; read again when the "
        "registry refuses it.",
    )
    logical_cluster: str | None = Field(
        None, description="With a token, Confluent Cloud's id of the registry's cluster (`target-sr-cluster`)."
    )
    identity_pool: str | None = Field(
        None, description="With a token, Confluent Cloud's identity pool (`Confluent-Identity-Pool-Id`)."
    )


class RegistrySettings(TlsFiles, _RegistryAccess):
    """How to reach the schema registry (Confluent's REST interface), and how to register schemas."""

    request_timeout_ms: int = Field(10_000, ge=100, le=HOUR_MS, description="Timeout of one request, in ms.")
    auto_register: bool = Field(
        True,
        description="Whether the job registers schemas that their subjects do not hold yet. If not, register them "
        "beforehand; `scylla-cdc-bridge schemas` prints or registers them.",
    )
    subject_name_strategy: SubjectNameStrategy = Field(
        "TopicName",
        description="How subjects are named, as Confluent's strategies do: `<topic>-key` and `<topic>-value`, "
        "`<record>`, or `<topic>-<record>`.",
    )
    key_subject_name_strategy: SubjectNameStrategy | None = Field(
        None, description="How the subjects of keys are named; unset, as `subject_name_strategy`."
    )
    value_subject_name_strategy: SubjectNameStrategy | None = Field(
        None, description="How the subjects of values are named; unset, as `subject_name_strategy`."
    )

    @field_validator("url")
    @classmethod
    def _require_base_address(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password:
            raise ValueError("no user or password in the address: use `username` and `password`")
        if value.query is not None or value.fragment is not None:
            raise ValueError("a base address ends before `?` and `#`")
        return value

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("`username` and `password` go together: set both or none")
        if self.token is not None and self.username is not None:
            raise ValueError("either `username` and `password` or `token`, not both")
        if self.token is None and (self.logical_cluster is not None or self.identity_pool is not None):
            raise ValueError("`logical_cluster` and `identity_pool` go with a `token`")
        return self

    @model_validator(mode="after")
    def _require_https_for_files(self) -> Self:
        if self.url.scheme != "https" and (self.ca_file or self.client_certificate_file):
            raise ValueError("`ca_file` and `client_certificate_file` need an address that begins with https://")
        return self

    def subject_of(self, topic: str, part: Part, schema_text: str) -> Subject:
        """Return the subject under which the registry holds a schema.

        Args:
            topic: the topic of the records.
            part: whether the schema is of their keys or of their values.
            schema_text: the Avro schema.
        """
        own = self.key_subject_name_strategy if part == "key" else self.value_subject_name_strategy
        return subject_of(own or self.subject_name_strategy, topic, part, schema_text)
