"""Secrets of the configuration.

The file never holds a secret, only where it is. A secret is read at each use, so that the next connection uses a
rotated one, and so that none reaches a log, a repr, a metric or a Spark option.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from bridge.config.base import Model
from bridge.errors import AccessError


class Secret(Model):
    """Where a secret is: in an environment variable, or in a file, whose trailing newline is dropped."""

    env: str | None = Field(None, description="Name of the environment variable that holds the secret.")
    file: Path | None = Field(None, description="Path of the file that holds the secret; read again at each use.")

    @model_validator(mode="after")
    def _require_one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name one place for the secret: either `env` or `file`")
        return self

    def reveal(self, setting: str) -> str:
        """Return the secret itself.

        Args:
            setting: the setting that it belongs to, as in `scylla.password`; for error messages.

        Raises:
            AccessError: the variable is not set, the file can't be read, or the secret is empty.
        """
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                state = "not set" if value is None else "empty"
                raise AccessError(f"{setting}: the environment variable {self.env} is {state}; it should hold a secret")
            return value
        assert self.file is not None
        try:
            value = self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            # Without the cause, whose text has the secret's bytes.
            raise AccessError(f"{setting}: the secret's file {self.file} is not UTF-8 text") from None
        except OSError as error:
            raise AccessError(f"{setting}: the secret's file {self.file} can't be read: {error.strerror}") from error
        if not value:
            raise AccessError(f"{setting}: the secret's file {self.file} is empty")
        return value


def _refuse_plain_secret(value: object) -> object:
    if isinstance(value, str):
        # pydantic reports ValueErrors, not TypeErrors.
        raise ValueError("a secret can't be in the file: write {env: NAME} or {file: PATH}")  # noqa: TRY004
    return value


SecretSetting = Annotated[Secret, BeforeValidator(_refuse_plain_secret)]
