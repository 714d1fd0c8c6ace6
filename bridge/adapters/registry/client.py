"""A schema registry, through Confluent's client.

The requests are those of Confluent's REST interface, version 1: ``POST /subjects/{s}`` looks a schema up,
``POST /compatibility/subjects/{s}/versions?verbose=true`` checks a new one, ``POST /subjects/{s}/versions`` registers
it, and ``GET /config`` names the compatibility rule that refused one.

The client's own retries are off: the caller decides how long to try, and ``RegistryError.retriable`` shows whether that
makes sense. No message and no ``repr`` contains credentials, wherever they were given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from bridge.adapters.registry.access import Auth, Hints, Tls, identity_properties, split_credentials
from bridge.adapters.registry.errors import (
    CONFLICT,
    HTTP_ERRORS,
    NOT_FOUND,
    UNAUTHORIZED,
    is_registry_code,
    malformed_answer,
    translate_error,
)
from schemas.errors import IncompatibleSchemaError, RegistryError, UnregisteredSchemaError

T = TypeVar("T")

_UNKNOWN_SUBJECT: Final = 40401
"""The registry's error code for a subject that does not exist."""
_NO_REASON: Final = (
    "the registry gives no reason; if output.shape or another form of the output was changed, the topic needs a new "
    "name, for schemas of different shapes don't fit each other"
)


class SchemaIdStore(Protocol):
    """A store of schema ids that outlives a `Registry`."""

    def get(self, subject: str, schema_text: str) -> int | None:
        """The id of a schema in a subject; None if the store does not have it."""

    def put(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Store the id of a schema in a subject."""


class Registry:
    """Registers, finds and fetches schemas; each answer is requested once and then remembered.

    Threads may share one: at worst two of them register the same schema at once, and the registry gives both the same
    id.

    Attributes:
        address: the registry's, without credentials.
        calls: how many requests were sent.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: Auth | None = None,
        tls: Tls | None = None,
        timeout_s: float = 10.0,
        known: SchemaIdStore | None = None,
        hints: Hints | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: one address, or several separated by commas, which are tried in turn.
                ``mock://...`` is an in-memory registry, for tests.
            auth: our identity; the url may contain user and password instead.
            tls: trusted authorities and our certificate, for https.
            timeout_s: for connecting and for each read, in s, per address.
            known: a store of schema ids, read before the registry is asked; None for no store.
            hints: the settings that error messages name.

        Raises:
            RegistryError: the url, the credentials or the TLS files are unusable.
        """
        self.address, in_url = split_credentials(url)
        if in_url is not None and auth is not None:
            raise RegistryError(f"schema registry {self.address}: credentials given twice", retriable=False)
        self._auth = auth if in_url is None else in_url
        self._tls = tls or Tls()
        self._timeout_s = timeout_s
        self._known = known
        self._hints = hints or Hints()
        self.calls = 0
        self._lock = threading.Lock()
        self._schema_ids: dict[tuple[str, str], int] = {}
        self._texts: dict[int, str] = {}
        self._client = self._make_client()

    def __repr__(self) -> str:
        """Show the address only."""
        return f"Registry({self.address!r})"

    def find(self, subject: str, schema_text: str) -> int | None:
        """Return the id of an Avro schema in a subject, or None when it is not registered there.

        Raises:
            RegistryError: the registry could not answer, or refused.
        """
        known = self._find_known(subject, schema_text)
        return known if known is not None else self._look_up(subject, schema_text)[0]

    def require(self, subject: str, schema_text: str) -> int:
        """Return the id of an Avro schema that another system registers.

        Raises:
            UnregisteredSchemaError: it is not in the subject.
            RegistryError: anything else; `retriable` shows whether to try again.
        """
        schema_id = self.find(subject, schema_text)
        if schema_id is None:
            at = f"schema registry {self.address}: subject {subject}"
            raise UnregisteredSchemaError(f"{at} does not hold the needed schema", subject=subject)
        return schema_id

    def register(self, subject: str, schema_text: str) -> int:
        """Return the id of an Avro schema in a subject, registering it if it is new there.

        Raises:
            IncompatibleSchemaError: the subject's compatibility rule refuses it.
            RegistryError: anything else; `retriable` shows whether to try again.
        """
        known = self._find_known(subject, schema_text)
        if known is not None:
            return known
        found, with_versions = self._look_up(subject, schema_text)
        if found is not None:
            return found
        if with_versions:
            reasons = self._incompatibilities(subject, schema_text)
            # Without reasons, register anyway: some registries give the reasons only in that answer.
            if reasons:
                raise self._incompatible_error(subject, "; ".join(reasons))
        return self._register(subject, schema_text)

    def check(self, subject: str, schema_text: str) -> None:
        """Check whether the registry would accept a schema; writes nothing.

        Raises:
            IncompatibleSchemaError: the subject's compatibility rule would refuse it.
            RegistryError: the registry could not answer, or refused.
        """
        if self._find_known(subject, schema_text) is not None:
            return
        found, with_versions = self._look_up(subject, schema_text)
        if found is None and with_versions:
            reasons = self._incompatibilities(subject, schema_text)
            if reasons is not None:
                raise self._incompatible_error(subject, "; ".join(reasons) or _NO_REASON)

    def get(self, schema_id: int) -> str:
        """Return the text of the schema with this id, as the registry stores it.

        Raises:
            RegistryError: not found, or the registry could not answer.
        """
        known = self._texts.get(schema_id)
        if known is not None:
            return known
        text = self._request(f"get schema {schema_id}", lambda client: client.get_schema(schema_id).schema_str)
        if not isinstance(text, str):
            raise self._malformed(f"get schema {schema_id}", text)
        self._texts[schema_id] = text
        return text

    def ping(self) -> None:
        """Check that the registry answers and accepts our credentials.

        Raises:
            RegistryError: it does not.
        """
        types = self._request("list schema types", lambda client: client.get_schema_types())
        if not isinstance(types, list):
            raise self._malformed("list schema types", types)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._client.close()

    def _find_known(self, subject: str, schema_text: str) -> int | None:
        known = self._schema_ids.get((subject, schema_text))
        if known is None and self._known is not None:
            known = self._known.get(subject, schema_text)
            if known is not None:
                self._schema_ids[subject, schema_text] = known
        return known

    def _remember(self, subject: str, schema_text: str, schema_id: int) -> int:
        self._schema_ids[subject, schema_text] = schema_id
        if self._known is not None:
            self._known.put(subject, schema_text, schema_id)
        return schema_id

    def _look_up(self, subject: str, schema_text: str) -> tuple[int | None, bool]:
        """Ask for a schema's id in a subject.

        Returns:
            The id, or None if the subject does not hold the schema; and whether the subject may have versions.
        """
        purpose = f"look up subject {subject}"
        schema = Schema(schema_text, "AVRO")
        try:
            answer = self._send(lambda client: client.lookup_schema(subject, schema).schema_id)
        except SchemaRegistryError as error:
            code: object = error.error_code
            if error.http_status_code == NOT_FOUND and is_registry_code(code):
                return None, code != _UNKNOWN_SUBJECT
            raise translate_error(error, self.address, purpose, self._hints) from None
        except HTTP_ERRORS as error:
            raise translate_error(error, self.address, purpose, self._hints) from None
        if not isinstance(answer, int):
            raise self._malformed(purpose, answer)
        return self._remember(subject, schema_text, answer), True

    def _register(self, subject: str, schema_text: str) -> int:
        purpose = f"register subject {subject}"
        schema = Schema(schema_text, "AVRO")
        try:
            answer = self._send(lambda client: client.register_schema(subject, schema))
        except SchemaRegistryError as error:
            if error.http_status_code != CONFLICT:
                raise translate_error(error, self.address, purpose, self._hints) from None
            # Another process may have registered the same schema in between.
            found, _ = self._look_up(subject, schema_text)
            if found is not None:
                return found
            raise self._incompatible_error(subject, str(error.error_message)) from None
        except HTTP_ERRORS as error:
            raise translate_error(error, self.address, purpose, self._hints) from None
        if not isinstance(answer, int):
            raise self._malformed(purpose, answer)
        return self._remember(subject, schema_text, answer)

    def _incompatibilities(self, subject: str, schema_text: str) -> list[str] | None:
        """The registry's reasons against a schema; None if it accepts the schema or can't check it."""
        if self.address.startswith("mock://"):
            return None
        body = {"schema": schema_text, "schemaType": "AVRO"}
        # Some registries check one version only. A transitive rule is then checked when the schema is registered.
        for versions in ("versions", "versions/latest"):
            path = f"compatibility/subjects/{quote(subject, safe='')}/{versions}?verbose=true"
            answer = self._request_optional(f"check subject {subject}", partial(_post, path=path, body=body))
            match answer:
                case {"is_compatible": True}:
                    return None
                case {"is_compatible": False, "messages": [*messages]}:
                    # One of the messages is the whole text of the older schema.
                    return [text for text in map(str, messages) if not text.startswith(("{oldSchema:", "oldSchema:"))]
                case {"is_compatible": False}:
                    return []
        return None

    def _read_rule(self, subject: str) -> str | None:
        for path in (f"config/{quote(subject, safe='')}?defaultToGlobal=true", "config"):
            match self._request_optional(f"ask for the rule of {subject}", partial(_get, path=path)):
                case {"compatibilityLevel": str(rule)}:
                    return rule
        return None

    def _incompatible_error(self, subject: str, reason: str) -> IncompatibleSchemaError:
        try:
            rule = self._read_rule(subject)
        except RegistryError:
            # The refusal must be reported even if its rule is unknown.
            rule = None
        by = f"its rule {rule}" if rule else "its compatibility rule"
        message = f"schema registry {self.address}: subject {subject} refuses the schema by {by}: {reason}"
        return IncompatibleSchemaError(message, subject=subject, rule=rule, reason=reason)

    def _malformed(self, purpose: str, answer: object) -> RegistryError:
        return malformed_answer(answer, self.address, purpose, self._hints)

    def _request(self, purpose: str, request: Callable[[SchemaRegistryClient], T]) -> T:
        try:
            return self._send(request)
        except (SchemaRegistryError, *HTTP_ERRORS) as error:
            # "from None": the client's message may quote the url with its credentials.
            raise translate_error(error, self.address, purpose, self._hints) from None

    def _request_optional(self, purpose: str, request: Callable[[SchemaRegistryClient], object]) -> object:
        """The registry's answer; None if it does not offer this request, or not to us."""
        try:
            return self._request(purpose, request)
        except RegistryError as error:
            if error.retriable:
                raise
            return None

    def _send(self, request: Callable[[SchemaRegistryClient], T]) -> T:
        client = self._client
        self.calls += 1
        try:
            return request(client)
        except SchemaRegistryError as error:
            if error.http_status_code != UNAUTHORIZED or not callable(self._auth):
                raise
        return request(self._reconnect(client))

    def _reconnect(self, refused: SchemaRegistryClient) -> SchemaRegistryClient:
        with self._lock:
            if self._client is refused:
                # The old client stays open, because another thread may be using it.
                self._client = self._make_client()
            return self._client

    def _make_client(self) -> SchemaRegistryClient:
        conf: dict[str, object] = {"url": self.address, "timeout": self._timeout_s, "max.retries": 0}
        if self._auth is not None:
            conf |= identity_properties(self._auth() if callable(self._auth) else self._auth, self.address)
        conf |= self._tls.properties()
        try:
            return SchemaRegistryClient.new_client(conf)
        except (ValueError, TypeError, OSError):
            # "from None": the client's message may quote the url with its credentials.
            message = f"schema registry {self.address}: the address or the credentials are unusable"
            raise RegistryError(message, retriable=False) from None


def _post(client: SchemaRegistryClient, path: str, body: dict[str, Any]) -> object:
    # The client's own check discards the reasons.
    return client._rest_client.post(path, body)


def _get(client: SchemaRegistryClient, path: str) -> object:
    # The client's own request does not fall back to the global rule.
    return client._rest_client.get(path)
