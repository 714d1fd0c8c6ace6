"""A schema registry, through Confluent's client.

The only importer of ``confluent_kafka.schema_registry``; the library's errors are mapped in one
place, ``_registry_error``. It must not know tables or what the schemas mean.

What is asked (Confluent's REST interface, version 1): ``POST /subjects/{s}`` to look a schema up,
``POST /compatibility/subjects/{s}/versions?verbose=true`` before a new one is registered,
``POST /subjects/{s}/versions`` to register it, ``GET /config`` for a rule that refused one.

The client's own retries are switched off: who calls decides how long to try, and
``RegistryError.retriable`` says whether that makes sense. No message and no ``repr`` holds
credentials, wherever they were given.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from bridge.adapters.registry.access import Auth, Hints, Tls, identity_properties, split_credentials
from schemas.errors import IncompatibleSchemaError, RegistryAccessError, RegistryError, UnregisteredSchemaError

T = TypeVar("T")

_STRANGE_ANSWERS: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What the library raises when an answer is no JSON or JSON of another shape."""

_UNAUTHORIZED: Final = 401
_NO_CODE: Final = -1
"""The library's, for an answer that is no JSON."""
_EMPTY_ANSWER: Final = "b''"
"""How its words for such an answer end when there was none."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_RETRIABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MEANINGS: Final[dict[int, str]] = {
    404: "does not know it",
    422: "does not accept the schema or subject",
}
_REFUSALS: Final[dict[int, str]] = {
    401: "refuses the credentials",
    403: "forbids it",
}
_UNKNOWN_SUBJECT: Final = 40401
_NO_REASON: Final = (
    "the registry gives no reason; if output.shape or another form of the output was changed, the topic needs a new "
    "name, for schemas of different shapes don't fit each other"
)
_OTHER_HOST: Final = re.compile(r"mismatch|doesn't match", re.IGNORECASE)
_OTHERS: Final = re.compile(r"issuer|self[- ]signed|unable to verify", re.IGNORECASE)
_WITHOUT_CAUSE: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""TLS errors that only say that the other side went away."""


class SchemaIds(Protocol):
    """Where a registry's answers are kept beyond the life of a `Registry`."""

    def get(self, subject: str, schema_text: str) -> int | None:
        """The id of a schema in a subject, if it is known."""

    def put(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Keep an id."""


class Registry:
    """Registers, finds and fetches schemas; what is known once is never asked again.

    `calls` counts what the registry was really asked.

    Threads may share one: at worst two of them register the same schema at once, which the
    registry answers with the same id.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: Auth | None = None,
        tls: Tls | None = None,
        timeout_s: float = 10.0,
        known: SchemaIds | None = None,
        hints: Hints | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: address, or several separated by commas which are tried in turn.
                ``mock://...`` is an in-memory registry, for tests.
            auth: who we are; user and password may be in the url instead.
            tls: whom to trust and what certificate to show, for https.
            timeout_s: for connecting and for each read, in seconds, per address.
            known: ids that were learned before, and where to keep new ones.
            hints: what to look at after a refusal.

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
        self._client = self._connect()

    def __repr__(self) -> str:
        """Show the address only."""
        return f"Registry({self.address!r})"

    def find(self, subject: str, schema_text: str) -> int | None:
        """Return the id of an Avro schema in a subject, or None when it is not registered there.

        Raises:
            RegistryError: the registry could not answer, or refused.
        """
        known = self._remembered(subject, schema_text)
        return known if known is not None else self._look_up(subject, schema_text)[0]

    def require(self, subject: str, schema_text: str) -> int:
        """Return the id of an Avro schema that somebody else registers.

        Raises:
            UnregisteredSchemaError: it is not in the subject.
            RegistryError: anything else; `retriable` says whether to try again.
        """
        schema_id = self.find(subject, schema_text)
        if schema_id is None:
            at = f"schema registry {self.address}: subject {subject}"
            raise UnregisteredSchemaError(f"{at} does not hold the schema that is needed", subject=subject)
        return schema_id

    def register(self, subject: str, schema_text: str) -> int:
        """Return the id of an Avro schema in a subject, registering it if it is new there.

        Raises:
            IncompatibleSchemaError: the subject's compatibility rule refuses it.
            RegistryError: anything else; `retriable` says whether to try again.
        """
        known = self._remembered(subject, schema_text)
        if known is not None:
            return known
        found, with_versions = self._look_up(subject, schema_text)
        if found is not None:
            return found
        if with_versions:
            reasons = self._objections(subject, schema_text)
            # Without reasons the registration is tried all the same: some registries give them only there.
            if reasons:
                raise self._incompatible(subject, "; ".join(reasons))
        return self._register(subject, schema_text)

    def check(self, subject: str, schema_text: str) -> None:
        """Find out whether `register` would be refused; writes nothing.

        Raises:
            IncompatibleSchemaError: the subject's compatibility rule would refuse it.
            RegistryError: the registry could not answer, or refused.
        """
        if self._remembered(subject, schema_text) is not None:
            return
        found, with_versions = self._look_up(subject, schema_text)
        if found is None and with_versions:
            reasons = self._objections(subject, schema_text)
            if reasons is not None:
                raise self._incompatible(subject, "; ".join(reasons) or _NO_REASON)

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

    def _remembered(self, subject: str, schema_text: str) -> int | None:
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
        """The schema's id, and whether the subject may hold any schema."""
        what = f"look up subject {subject}"
        schema = Schema(schema_text, "AVRO")
        try:
            answer = self._try(lambda client: client.lookup_schema(subject, schema).schema_id)
        except SchemaRegistryError as error:
            code: object = error.error_code
            if error.http_status_code == _NOT_FOUND and _is_its_own(code):
                return None, code != _UNKNOWN_SUBJECT
            raise _registry_error(error, self.address, what, self._hints) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, *_STRANGE_ANSWERS) as error:
            raise _registry_error(error, self.address, what, self._hints) from None
        if not isinstance(answer, int):
            raise self._strange(what, answer)
        return self._remember(subject, schema_text, answer), True

    def _register(self, subject: str, schema_text: str) -> int:
        what = f"register subject {subject}"
        schema = Schema(schema_text, "AVRO")
        try:
            answer = self._try(lambda client: client.register_schema(subject, schema))
        except SchemaRegistryError as error:
            if error.http_status_code != _CONFLICT:
                raise _registry_error(error, self.address, what, self._hints) from None
            # Another process may have registered the same schema at the same moment.
            found, _ = self._look_up(subject, schema_text)
            if found is not None:
                return found
            raise self._incompatible(subject, str(error.error_message)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, *_STRANGE_ANSWERS) as error:
            raise _registry_error(error, self.address, what, self._hints) from None
        if not isinstance(answer, int):
            raise self._strange(what, answer)
        return self._remember(subject, schema_text, answer)

    def _objections(self, subject: str, schema_text: str) -> list[str] | None:
        """The registry's reasons against a schema; None when it has none, or can't be asked beforehand."""
        if self.address.startswith("mock://"):
            return None
        body = {"schema": schema_text, "schemaType": "AVRO"}
        # Some registries can be asked about one version only. Transitive rules are then found out at registering.
        for versions in ("versions", "versions/latest"):
            path = f"compatibility/subjects/{quote(subject, safe='')}/{versions}?verbose=true"
            answer = self._if_answered(f"check subject {subject}", partial(_post, path=path, body=body))
            match answer:
                case {"is_compatible": True}:
                    return None
                case {"is_compatible": False, "messages": [*messages]}:
                    # The whole text of the former schema is no reason.
                    return [text for text in map(str, messages) if not text.startswith(("{oldSchema:", "oldSchema:"))]
                case {"is_compatible": False}:
                    return []
        return None

    def _rule(self, subject: str) -> str | None:
        for path in (f"config/{quote(subject, safe='')}?defaultToGlobal=true", "config"):
            match self._if_answered(f"ask for the rule of {subject}", partial(_get, path=path)):
                case {"compatibilityLevel": str(rule)}:
                    return rule
        return None

    def _incompatible(self, subject: str, reason: str) -> IncompatibleSchemaError:
        try:
            rule = self._rule(subject)
        except RegistryError:
            # What refused the schema must be told, whether or not its rule can be.
            rule = None
        by = f"its rule {rule}" if rule else "its compatibility rule"
        message = f"schema registry {self.address}: subject {subject} refuses the schema by {by}: {reason}"
        return IncompatibleSchemaError(message, subject=subject, rule=rule, reason=reason)

    def _strange(self, what: str, answer: object) -> RegistryError:
        # The library hands on what is missing in an answer as None.
        message = (
            f"schema registry {self.address}: {what}: unintelligible answer ({type(answer).__name__}); "
            f"{_is_it_one(self._hints)}"
        )
        return RegistryError(message, retriable=False)

    def _ask(self, what: str, request: Callable[[SchemaRegistryClient], T]) -> T:
        try:
            return self._try(request)
        except (SchemaRegistryError, httpx2.HTTPError, httpx2.InvalidURL, *_STRANGE_ANSWERS) as error:
            # "from None": the library's message may quote the url, with what was in it.
            raise _registry_error(error, self.address, what, self._hints) from None

    def _if_answered(self, what: str, request: Callable[[SchemaRegistryClient], object]) -> object:
        """What the registry answers; None when it does not offer that, or not to us."""
        try:
            return self._ask(what, request)
        except RegistryError as error:
            if error.retriable:
                raise
            return None

    def _try(self, request: Callable[[SchemaRegistryClient], T]) -> T:
        client = self._client
        self.calls += 1
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
            conf |= identity_properties(self._auth() if callable(self._auth) else self._auth, self.address)
        conf |= self._tls.properties()
        try:
            return SchemaRegistryClient.new_client(conf)
        except (ValueError, TypeError, OSError):
            # "from None": the library's message may quote the url, with what was in it.
            message = f"schema registry {self.address}: the address or the credentials are unusable"
            raise RegistryError(message, retriable=False) from None


def _post(client: SchemaRegistryClient, path: str, body: dict[str, Any]) -> object:
    # The client's own check asks for the reasons, and throws them away.
    return client._rest_client.post(path, body)


def _get(client: SchemaRegistryClient, path: str) -> object:
    # The client's own question does not fall back to the global rule.
    return client._rest_client.get(path)


def _registry_error(error: Exception, address: str, what: str, hints: Hints) -> RegistryError:
    """Return our error for one of the library's: the table of what may be tried again."""
    at = f"schema registry {address}: {what}"
    if isinstance(error, SchemaRegistryError):
        status = error.http_status_code
        said = _said(error)
        if status in _REFUSALS:
            hint = _see(hints.credentials) if status == _UNAUTHORIZED else ""
            return RegistryAccessError(f"{at}: {_REFUSALS[status]} {said}{hint}")
        code: object = error.error_code
        # Of a path that it does not have, a registry gives HTTP's own code.
        has_it = _is_its_own(code) and code != _NOT_FOUND
        foreign = "" if has_it or status in _RETRIABLE_STATUS else f"; {_is_it_one(hints)}"
        meaning = _MEANINGS.get(status, "failed")
        return RegistryError(f"{at}: {meaning} {said}{foreign}", retriable=status in _RETRIABLE_STATUS)
    if isinstance(error, httpx2.TimeoutException):
        return RegistryError(f"{at}: no answer in time", retriable=True)
    if isinstance(error, httpx2.TransportError):
        problem = _tls_problem(error, hints)
        if problem is not None:
            return RegistryAccessError(f"{at}: {problem}")
        if isinstance(error, httpx2.ProtocolError):
            return RegistryError(
                f"{at}: no answer in HTTP ({type(error).__name__}); {_is_it_one(hints)}", retriable=True
            )
        return RegistryError(f"{at}: no connection ({type(error).__name__})", retriable=True)
    return RegistryError(f"{at}: unintelligible answer ({type(error).__name__}); {_is_it_one(hints)}", retriable=False)


def _is_its_own(code: object) -> bool:
    """Whether an error's code is a registry's; what comes from some other server has none."""
    return isinstance(code, int) and code > 0


def _said(error: SchemaRegistryError) -> str:
    """What was answered; servers that are no registry leave out the code, the message or both."""
    code: object = error.error_code
    message: object = error.error_message
    coded = "" if code in (None, _NO_CODE) else f", code {code}"
    is_said = message and not str(message).endswith(_EMPTY_ANSWER)
    return f"(HTTP {error.http_status_code}{coded})" + (f": {message}" if is_said else "")


def _is_it_one(hints: Hints) -> str:
    return f"is {hints.address or 'that'} the base address of a schema registry?"


def _see(hint: str) -> str:
    return f"; see {hint}" if hint else ""


def _tls_problem(error: BaseException, hints: Hints) -> str | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            words = cause.verify_message
            # One that has expired is mended by nothing here.
            hint = hints.address if _OTHER_HOST.search(words) else hints.authorities if _OTHERS.search(words) else ""
            return f"its certificate is not accepted: {words.removesuffix('.')}{_see(hint)}"
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _WITHOUT_CAUSE):
            words = (cause.reason or "unknown reason").replace("_", " ").lower()
            # Servers speak of the client's certificate in alerts.
            hint = hints.certificate if "alert" in words or "certificate" in words else hints.address
            return f"no TLS connection: {words}{_see(hint)}"
        cause = cause.__cause__ or cause.__context__
    return None
