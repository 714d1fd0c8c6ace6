"""TLS settings that the servers' sections share: which authorities to trust, and which certificate to present."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from bridge.config.base import Model
from bridge.config.secret import SecretSetting


class TlsFiles(Model):
    """Files for TLS. Certificates and host names are always verified; no setting turns that off."""

    ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities to trust for the server's certificate; unset, the system's public "
        "ones.",
    )
    client_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate to present to the server (mutual TLS); unset, none."
    )
    client_key_file: Path | None = Field(
        None, description="PEM file with that certificate's private key; unset, it is in the same file."
    )
    client_key_password: SecretSetting | None = Field(
        None, description="Where the password of the encrypted private key is."
    )

    @model_validator(mode="after")
    def _require_certificate_for_key(self) -> Self:
        if self.client_certificate_file is None and (self.client_key_file or self.client_key_password):
            raise ValueError("`client_key_file` and `client_key_password` go with `client_certificate_file`")
        return self


class _TlsSwitch(Model):
    enabled: bool = Field(False, description="Whether connections are encrypted.")


class TlsSettings(TlsFiles, _TlsSwitch):
    """Encrypted connections. The server's certificate and its host name are always verified."""

    @model_validator(mode="after")
    def _require_tls_for_files(self) -> Self:
        if not self.enabled and (self.ca_file or self.client_certificate_file):
            raise ValueError("`ca_file` and `client_certificate_file` need `enabled: true`")
        return self
