"""TLS as every server's section says it: whom to trust, and which certificate to show."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from bridge.config.base import Model, SecretSetting


class TlsFiles(Model):
    """The files of TLS. Certificates and host names are always verified, so there is no setting for it."""

    ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities that may have signed the server's certificate; unset, the usual "
        "public ones.",
    )
    client_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate to show to the server (mutual TLS); unset, none."
    )
    client_key_file: Path | None = Field(
        None, description="PEM file with that certificate's private key; unset, it is in the same file."
    )
    client_key_password: SecretSetting | None = Field(
        None, description="Where the password lies that the private key is encrypted with."
    )

    @model_validator(mode="after")
    def _key_goes_with_certificate(self) -> Self:
        if self.client_certificate_file is None and (self.client_key_file or self.client_key_password):
            raise ValueError("`client_key_file` and `client_key_password` go with `client_certificate_file`")
        return self


class _Switch(Model):
    enabled: bool = Field(False, description="Whether connections are encrypted.")


class TlsSettings(TlsFiles, _Switch):
    """Encrypted connections. The server's certificate and its host name are always verified."""

    @model_validator(mode="after")
    def _files_need_tls(self) -> Self:
        if not self.enabled and (self.ca_file or self.client_certificate_file):
            raise ValueError("`ca_file` and `client_certificate_file` need `enabled: true`")
        return self
