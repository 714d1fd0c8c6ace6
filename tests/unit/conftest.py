"""What holds for tests without servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.certificates import Authority


@pytest.fixture(scope="session", autouse=True)
def _few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority in place of the usual hundreds, which each client of the registry would read again."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(Authority.make(tmp_path_factory.mktemp("trusted"), "usual").file))
        yield
