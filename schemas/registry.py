"""A schema registry, through Confluent's client.

The only module here that does I/O and the only importer of
``confluent_kafka.schema_registry``; the library's errors are mapped in one place,
``_registry_error``. It must not know tables or what the schemas mean.

The client's own retries are switched off: who calls decides how long to try, and
``RegistryError.retriable`` says whether that makes sense. No message and no ``repr`` holds
credentials, wherever they were given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.errors import IncompatibleSchemaError, RegistryError

Credentials: TypeAlias = tuple[str, str]
"""User name and password."""

Auth: TypeAlias = Credentials | Callable[[], Credentials]
"""Credentials, or where to ask for them: asked again after the registry refused them."""

T = TypeVar("T")

_STRANGE_ANSWERS: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What the library raises when an answer is no JSON or JSON of another shape."""

_UNAUTHORIZED: Final = 401
_CONFLICT: Final = 409
_RETRIABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MEANINGS: Final[dict[int, str]] = {
    401: "refuses the credentials",
    403: "forbids it",
    404: "does not know it",
    422: "does not accept the schema or subject",
}


class Registry:
    """Registers and fetches schemas; both are cached for the object's lifetime.

    `calls` counts what the registry was really asked.

    Threads may share one: at worst two of them register the same schema at once, which the
    registry answers with the same id.
    """

    def __init__(self, url: str, *, auth: Auth | None = None, timeout_s: float = 10.0) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: address, or several separated by commas which are tried in turn.
                ``mock://...`` is an in-memory registry, for tests.
            auth: credentials for HTTP basic authentication; they may be in the url instead.
            timeout_s: for connecting and for each read, in seconds, per address.

        Raises:
            RegistryError: the url or the credentials are unusable.
        """
        self.address, in_url = _split_credentials(url)
        if in_url is not None and auth is not None:
            raise RegistryError(f"schema registry {self.address}: credentials given twice", retriable=False)
        self._auth = auth if in_url is None else in_url
        self._timeout_s = timeout_s
        self.calls = 0
        self._lock = threading.Lock()
        self._schema_ids: dict[tuple[str, str], int] = {}
        self._texts: dict[int, str] = {}
        self._client = self._connect()

    def __repr__(self) -> str:
        """Show the address only."""
        return f"Registry({self.address!r})"

    def register(self, subject: str, schema_text: str) -> int:
        """Return the id of an Avro schema in a subject, registering it if it is new there.

        Raises:
            IncompatibleSchemaError: the subject's compatibility rule refuses it (HTTP 409).
            RegistryError: anything else; `retriable` says whether to try again.
        """
        known = self._schema_ids.get((subject, schema_text))
        if known is not None:
            return known
        schema = Schema(schema_text, "AVRO")
        schema_id = self._ask(
            f"register subject {subject}", lambda client: client.register_schema(subject, schema), subject
        )
        if not isinstance(schema_id, int):
            raise self._strange(f"register subject {subject}", schema_id)
        self._schema_ids[subject, schema_text] = schema_id
        return schema_id

    def get(self, schema_id: int) -> str:
        """Return the text of the schema with this id, as the registry keeps it.

        Raises:
            RegistryError: not found, or the registry could not answer.
        """
        known = self._texts.get(schema_id)
        if known is not None:
            return known
        text = self._ask(f"get schema {schema_id}", lambda client: client.get_schema(schema_id).schema_str)
        if not isinstance(text, str):
            raise self._strange(f"get schema {schema_id}", text)
        self._texts[schema_id] = text
        return text

    def ping(self) -> None:
        """Check that the registry answers and lets us in.

        Raises:
            RegistryError: it does not.
        """
        types = self._ask("list schema types", lambda client: client.get_schema_types())
        if not isinstance(types, list):
            raise self._strange("list schema types", types)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._client.close()

    def _strange(self, what: str, answer: object) -> RegistryError:
        # The library hands on what is missing in an answer as None.
        message = f"schema registry {self.address}: {what}: unintelligible answer ({type(answer).__name__})"
        return RegistryError(message, retriable=False)

    def _ask(self, what: str, request: Callable[[SchemaRegistryClient], T], subject: str | None = None) -> T:
        self.calls += 1
        try:
            return self._send(request)
        except (SchemaRegistryError, httpx2.HTTPError, httpx2.InvalidURL, *_STRANGE_ANSWERS) as error:
            # "from None": the library's message may quote the url, with what was in it.
            raise _registry_error(error, self.address, what, subject) from None

    def _send(self, request: Callable[[SchemaRegistryClient], T]) -> T:
        client = self._client
        try:
            return request(client)
        except SchemaRegistryError as error:
            if error.http_status_code != _UNAUTHORIZED or not callable(self._auth):
                raise
        return request(self._renewed(client))

    def _renewed(self, refused: SchemaRegistryClient) -> SchemaRegistryClient:
        with self._lock:
            if self._client is refused:
                # The old client is not closed: another thread may be in the middle of a request.
                self._client = self._connect()
            return self._client

    def _connect(self) -> SchemaRegistryClient:
        conf: dict[str, object] = {"url": self.address, "timeout": self._timeout_s, "max.retries": 0}
        if self._auth is not None:
            username, password = self._auth() if callable(self._auth) else self._auth
            if ":" in username:
                raise RegistryError(f"schema registry {self.address}: a user name may hold no colon", retriable=False)
            conf["basic.auth.user.info"] = f"{username}:{password}"
        try:
            return SchemaRegistryClient.new_client(conf)
        except (ValueError, TypeError, OSError):
            # "from None": the library's message may quote the url, with what was in it.
            message = f"schema registry {self.address}: the address or the credentials are unusable"
            raise RegistryError(message, retriable=False) from None


def _registry_error(error: Exception, address: str, what: str, subject: str | None) -> RegistryError:
    """Return our error for one of the library's: the table of what may be tried again."""
    at = f"schema registry {address}: {what}"
    if isinstance(error, SchemaRegistryError):
        status, reason = error.http_status_code, str(error.error_message)
        if status == _CONFLICT and subject is not None:
            message = f"{at}: incompatible with the versions before it: {reason}"
            return IncompatibleSchemaError(message, subject=subject, reason=reason)
        meaning = _MEANINGS.get(status, "failed")
        message = f"{at}: {meaning} (HTTP {status}, code {error.error_code}): {reason}"
        return RegistryError(message, retriable=status in _RETRIABLE_STATUS)
    if isinstance(error, httpx2.TimeoutException):
        return RegistryError(f"{at}: no answer in time", retriable=True)
    if isinstance(error, httpx2.TransportError):
        return RegistryError(f"{at}: no connection ({type(error).__name__})", retriable=True)
    return RegistryError(f"{at}: unintelligible answer ({type(error).__name__})", retriable=False)


def _split_credentials(url: str) -> tuple[str, Credentials | None]:
    """Return the addresses without user and password, and the first ones found.

    They go to the client apart from the url, since HTTP clients log the urls they ask.
    """
    bare, found = [], None
    for one in url.split(","):
        parts = urlsplit(one.strip())
        userinfo, _, host = parts.netloc.rpartition("@")
        if userinfo and found is None:
            username, _, password = userinfo.partition(":")
            found = unquote(username), unquote(password)
        bare.append(urlunsplit((parts.scheme, host, parts.path, "", "")))
    return ",".join(bare), found
