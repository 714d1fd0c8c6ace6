"""The section `kafka.sasl`: how to log in to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import AnyHttpUrl, Field, field_validator, model_validator

from bridge.config.base import HTTP_ADDRESS, Model
from bridge.config.refused_names import refuse_names
from bridge.config.secret import SecretSetting
from bridge.config.secret_patterns import holds_secret, names_secret

_LOGIN: Final = ("username", "password")
_OIDC: Final = ("token_endpoint_url", "client_id", "client_secret")
_OIDC_OPTIONAL: Final = ("scope", "token_endpoint_ca_file")
_SEPARATORS: Final = frozenset(",=")
"""librdkafka splits its list of extensions at these."""
_IN_PLAIN_TEXT_WHY: Final = (
    "a secret can't be in the file; `token` and `client_secret` take where one is, {env: NAME} or {file: PATH}"
)


class SaslSettings(Model):
    """How to log in to Kafka. OAUTHBEARER uses a token that something else renews, or a token endpoint (OIDC)."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, description="SASL mechanism; unset, no login."
    )
    username: str | None = Field(None, description="User, for PLAIN and SCRAM.")
    password: SecretSetting | None = Field(
        None, description="Where the user's password is; read again before each transaction."
    )
    token: SecretSetting | None = Field(
        None,
        description="Where a token for OAUTHBEARER is that something else renews, such as the file of a projected "
        "service account token in Kubernetes; read again after four fifths of its lifetime.",
    )
    token_endpoint_url: AnyHttpUrl | None = Field(
        None,
        description="Endpoint that issues tokens for OAUTHBEARER, instead of `token` (OIDC, client credentials grant).",
        json_schema_extra=dict(HTTP_ADDRESS),
    )
    token_endpoint_ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities to trust for the token endpoint's certificate; unset, the system's "
        "public ones.",
    )
    client_id: str | None = Field(None, description="The bridge's client id at the token endpoint.")
    client_secret: SecretSetting | None = Field(None, description="Where that client's secret is.")
    scope: str | None = Field(None, description="Scope to request at the token endpoint; unset, none.")
    extensions: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description="SASL extensions for OAUTHBEARER, such as Confluent Cloud's logicalCluster and identityPoolId.",
    )

    @property
    def credentials(self) -> str:
        """The names of the settings that hold the login, for messages."""
        if self.mechanism is None:
            return "kafka.sasl.mechanism"
        if self.mechanism != "OAUTHBEARER":
            return "kafka.sasl.username and kafka.sasl.password"
        if self.token is not None:
            return "kafka.sasl.token"
        return "kafka.sasl.token_endpoint_url, client_id and client_secret"

    @field_validator("extensions")
    @classmethod
    def _check_extensions(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        if any(_SEPARATORS & set(f"{name}{text}") for name, text in value.items()):
            raise ValueError("names and values of extensions may hold neither `,` nor `=`")
        secrets = [name for name, text in value.items() if names_secret(name) or holds_secret(str(text))]
        refuse_names((name, _IN_PLAIN_TEXT_WHY) for name in secrets)
        return value

    @field_validator("token_endpoint_url")
    @classmethod
    def _refuse_login(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        if value is not None and (value.username or value.password):
            raise ValueError("no user or password in the address: use `client_id` and `client_secret`")
        if value is not None and holds_secret(str(value)):
            raise ValueError("a secret can't be in the address: use `client_secret`")
        return value

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        required, optional, when = self._settings_of_mechanism()
        missing = [name for name in required if getattr(self, name) is None]
        if missing == ["token"]:
            raise ValueError("OAUTHBEARER needs a `token`, or a `token_endpoint_url` to ask for one")
        if missing:
            raise ValueError(f"needed {when}: {', '.join(f'`{name}`' for name in missing)}")
        given = {name for name in (*_LOGIN, "token", *_OIDC, *_OIDC_OPTIONAL) if getattr(self, name) is not None}
        if self.extensions:
            given.add("extensions")
        unused = sorted(given - {*required, *optional})
        if unused:
            raise ValueError(f"of no use {when}: {', '.join(f'`{name}`' for name in unused)}")
        return self

    def _settings_of_mechanism(self) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        """Return the settings that the mechanism needs, those that it can also use, and what to call this case."""
        if self.mechanism is None:
            return (), (), "without a `mechanism`"
        if self.mechanism != "OAUTHBEARER":
            return _LOGIN, (), f"with {self.mechanism}"
        if self.token_endpoint_url is None:
            return ("token",), ("extensions",), "with OAUTHBEARER and a `token`"
        if self.token is not None:
            raise ValueError("either `token` or `token_endpoint_url`, not both")
        return _OIDC, (*_OIDC_OPTIONAL, "extensions"), "with OAUTHBEARER and a `token_endpoint_url`"
