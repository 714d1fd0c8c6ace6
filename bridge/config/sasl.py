"""How to log in to Kafka: the section `kafka.sasl`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import AnyHttpUrl, Field, field_validator, model_validator

from bridge.config.base import HTTP_ADDRESS, Model, SecretSetting, refuse_names
from bridge.config.secret_patterns import holds_secret, names_secret

_SPLITTING = frozenset(",=")
_IN_PLAIN_SIGHT: Final = (
    "a secret can't stand in the file; `token` and `client_secret` take where one lies, {env: NAME} or {file: PATH}"
)


class SaslSettings(Model):
    """How to log in to Kafka. OAUTHBEARER takes a token that something else renews, or asks a token endpoint (OIDC)."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, description="SASL mechanism; unset, no login."
    )
    username: str | None = Field(None, description="User, for PLAIN and SCRAM.")
    password: SecretSetting | None = Field(
        None, description="Where the user's password lies; read again before each transaction."
    )
    token: SecretSetting | None = Field(
        None,
        description="Where a token for OAUTHBEARER lies that something else renews, such as a file of a projected "
        "service account token in Kubernetes; read again when four fifths of its life are over.",
    )
    token_endpoint_url: AnyHttpUrl | None = Field(
        None,
        description="Where to ask for tokens for OAUTHBEARER instead (OIDC, with the client credentials grant).",
        json_schema_extra=dict(HTTP_ADDRESS),
    )
    token_endpoint_ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities that may have signed the token endpoint's certificate; unset, the "
        "usual public ones.",
    )
    client_id: str | None = Field(None, description="The bridge's client id at the token endpoint.")
    client_secret: SecretSetting | None = Field(None, description="Where that client's secret lies.")
    scope: str | None = Field(None, description="Scope to ask the token endpoint for; unset, none.")
    extensions: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description="SASL extensions for OAUTHBEARER, such as Confluent Cloud's logicalCluster and identityPoolId.",
    )

    @property
    def credentials(self) -> str:
        """The settings that say who we are, for messages."""
        if self.mechanism is None:
            return "kafka.sasl.mechanism"
        if self.mechanism != "OAUTHBEARER":
            return "kafka.sasl.username and kafka.sasl.password"
        if self.token is not None:
            return "kafka.sasl.token"
        return "kafka.sasl.token_endpoint_url, client_id and client_secret"

    @field_validator("extensions")
    @classmethod
    def _plain(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        if any(_SPLITTING & set(f"{name}{text}") for name, text in value.items()):
            raise ValueError("names and values of extensions may hold neither `,` nor `=`")
        secret = [name for name, text in value.items() if names_secret(name) or holds_secret(str(text))]
        refuse_names((name, _IN_PLAIN_SIGHT) for name in secret)
        return value

    @field_validator("token_endpoint_url")
    @classmethod
    def _no_credentials(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        if value is not None and (value.username or value.password):
            raise ValueError("no user or password in the address: use `client_id` and `client_secret`")
        if value is not None and holds_secret(str(value)):
            raise ValueError("a secret can't stand in the address: use `client_secret`")
        return value

    @model_validator(mode="after")
    def _what_goes_together(self) -> Self:
        login = {"username": self.username, "password": self.password}
        token = {"token": self.token}
        oidc = {
            "token_endpoint_url": self.token_endpoint_url,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        more = {"scope": self.scope, "token_endpoint_ca_file": self.token_endpoint_ca_file}
        if self.mechanism is None:
            wanted: dict[str, object] = {}
            why = "without a `mechanism`"
        elif self.mechanism == "OAUTHBEARER":
            if self.token is not None and self.token_endpoint_url is not None:
                raise ValueError("either `token` or `token_endpoint_url`, not both")
            wanted = {**token} if self.token_endpoint_url is None else {**oidc}
            why = f"with OAUTHBEARER and a `{'token' if self.token_endpoint_url is None else 'token_endpoint_url'}`"
        else:
            wanted = {**login}
            why = f"with {self.mechanism}"
        lacking = [name for name, value in wanted.items() if value is None]
        if lacking == ["token"]:
            raise ValueError("OAUTHBEARER needs a `token`, or a `token_endpoint_url` to ask for one")
        if lacking:
            raise ValueError(f"needed {why}: {', '.join(f'`{name}`' for name in lacking)}")
        useful = wanted | (more if wanted.keys() == oidc.keys() else {})
        given = {name for name, value in (login | token | oidc | more).items() if value is not None}
        if self.extensions:
            given.add("extensions")
            useful |= {"extensions": self.extensions} if self.mechanism == "OAUTHBEARER" else {}
        idle = sorted(given - useful.keys())
        if idle:
            raise ValueError(f"of no use {why}: {', '.join(f'`{name}`' for name in idle)}")
        return self
