from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bridge.adapters.registry.access import BearerToken, Credentials, Hints, Identity
from bridge.adapters.registry.client import Registry
from schemas.errors import IncompatibleSchemaError, RegistryAccessError, RegistryError, UnregisteredSchemaError
from tests.unit.bridge.adapters.registry.fake_registry import Answer, FakeRegistry, FixedAnswers, error, serving

SCHEMA = '{"type":"record","name":"R","fields":[]}'
NEXT = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, FixedAnswers]]:
    """Serve fixed answers; yields the url, and the record of the requests."""
    given = FixedAnswers(list(answers))
    with serving(given) as address:
        yield f"http://{address}", given


@contextmanager
def holding(*schemas: str, **options: object) -> Iterator[tuple[Registry, FakeRegistry]]:
    """A client of a registry whose subject `t-value` holds schemas, and that registry."""
    fake = FakeRegistry(**options)  # type: ignore[arg-type]  # each test names what it needs
    if schemas:
        fake.subjects["t-value"] = list(enumerate(schemas, 1))
    with serving(fake) as address:
        yield Registry(f"http://{address}"), fake


def test_round_trip() -> None:
    """A registered schema is read back by its id; other subjects and texts are registered separately."""
    registry = Registry("mock://registry")
    schema_id = registry.register("t-value", SCHEMA)
    assert registry.register("t-value", SCHEMA) == schema_id
    assert registry.register("t-value", SCHEMA.replace("R", "S")) != schema_id
    assert registry.get(schema_id) == registry.get(schema_id) == SCHEMA


def test_answers_are_remembered() -> None:
    """What was registered, found or fetched once is not requested again, so an outage does not matter."""
    with holding() as (registry, fake):
        assert registry.register("t-value", SCHEMA) == 1
        assert [request.partition("?")[0] for request in fake.asked] == [
            "POST /subjects/t-value",
            "POST /subjects/t-value/versions",
        ]
        fake.down = True
        assert [registry.register("t-value", SCHEMA), registry.require("t-value", SCHEMA)] == [1, 1]
        registry.check("t-value", SCHEMA)
        assert len(fake.asked) == 2
        with pytest.raises(RegistryError, match="HTTP 503") as caught:
            registry.register("t-value", NEXT)
        assert caught.value.retriable
    with answering((200, {"schema": SCHEMA})) as (url, given):
        registry = Registry(url)
        assert [registry.get(7) for _ in range(3)] == [SCHEMA] * 3
        assert len(given.asked) == 1


def test_existing_schema_is_not_registered() -> None:
    """It is only looked up, and `require` never registers."""
    with holding(SCHEMA) as (registry, fake):
        assert registry.register("t-value", SCHEMA) == 1
        assert registry.find("t-value", NEXT) is None
        with pytest.raises(UnregisteredSchemaError, match="subject t-value does not hold") as caught:
            registry.require("t-value", NEXT)
        assert not caught.value.retriable
        assert {request.partition("?")[0] for request in fake.asked} == {"POST /subjects/t-value"}
        fake.subjects["t-value"].append((2, NEXT))
        assert registry.require("t-value", NEXT) == 2


REASON = "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'x' has no default value'}"
WHOLE = "{oldSchema: '" + SCHEMA + "'}"


@pytest.mark.parametrize("ask", ["register", "check"])
@pytest.mark.parametrize(
    ("levels", "lacks", "rule"),
    [
        ({"": "BACKWARD"}, (), "BACKWARD"),
        ({"": "NONE", "t-value": "FULL_TRANSITIVE"}, (), "FULL_TRANSITIVE"),
        ({"": "FORWARD"}, ("/config/",), "FORWARD"),
        ({"": "FORWARD"}, ("/config",), None),
    ],
)
def test_incompatible(ask: str, levels: dict[str, str], lacks: tuple[str, ...], rule: str | None) -> None:
    """A refusal names the address, the subject, its rule and the registry's reasons; nothing is registered."""
    with holding(SCHEMA, refused=[REASON, WHOLE], levels=levels, lacks=lacks) as (registry, fake):
        with pytest.raises(IncompatibleSchemaError) as caught:
            getattr(registry, ask)("t-value", NEXT)
        assert not any("/subjects/t-value/versions" in request[:40] for request in fake.asked)
    found = caught.value
    assert (found.subject, found.rule, found.reason, found.retriable) == ("t-value", rule, REASON, False)
    words = "its compatibility rule" if rule is None else f"its rule {rule}"
    assert str(found) == (
        f"schema registry {registry.address}: subject t-value refuses the schema by {words}: {REASON}"
    )


@pytest.mark.parametrize("without", ["/compatibility/subjects/t-value/versions?", "/compatibility/", "reasons"])
def test_reasons_of_a_refused_registration(without: str) -> None:
    """A registry without a check, or whose check gives no reasons, gives them when it refuses."""
    lacks = () if without == "reasons" else (without.rstrip("?"),)
    options = {"refusal_message": "y at /fields/1", "verbose": False, "lacks": lacks}
    with holding(SCHEMA, refused=[], **options) as (registry, fake):
        with pytest.raises(IncompatibleSchemaError, match=r"its rule BACKWARD: y at /fields/1$"):
            registry.register("t-value", NEXT)
        fake.refused = None
        assert registry.register("t-value", NEXT) == 2


def test_check_without_reasons_registers_nothing() -> None:
    """Although a registration might give the reasons."""
    with holding(SCHEMA, refused=[], verbose=False) as (registry, fake):
        with pytest.raises(IncompatibleSchemaError, match="BACKWARD: the registry gives no reason"):
            registry.check("t-value", NEXT)
        assert len(fake.subjects["t-value"]) == 1


def test_check_against_the_latest_version() -> None:
    """If a registry can compare only with the latest version."""

    class Older(FakeRegistry):
        def answer(self, method: str, path: str, headers: object, body: object) -> Answer:
            if path.startswith("/compatibility/") and "/latest?" not in path:
                return 405, b""
            return super().answer(method, path, headers, body)

    fake = Older(refused=[REASON], subjects={"t-value": [(1, SCHEMA)]})
    with serving(fake) as address, pytest.raises(IncompatibleSchemaError, match="READER_FIELD"):
        Registry(f"http://{address}").check("t-value", NEXT)


def test_compatible_schema_passes_the_check() -> None:
    """The check writes nothing; a new subject is not checked."""
    with holding(SCHEMA) as (registry, fake):
        registry.check("t-value", NEXT)
        registry.check("other-value", NEXT)
        assert list(fake.subjects) == ["t-value"]
        assert not any("compatibility/subjects/other" in request for request in fake.asked)
        assert registry.register("t-value", NEXT) == 2


def test_concurrent_registration() -> None:
    """Two processes that register the same schema at once get the same id."""
    answers = [error(404, code=40401), error(409), (200, {"id": 7})]
    with answering(*answers) as (url, _):
        assert Registry(url).register("t-value", SCHEMA) == 7


def test_subject_is_quoted_in_the_path() -> None:
    """Characters with a meaning in a url arrive unchanged."""
    with holding(refused=["no"]) as (registry, fake):
        subject = "a/b c?d-key"
        registry.register(subject, SCHEMA)
        with pytest.raises(IncompatibleSchemaError, match="its rule BACKWARD: no"):
            registry.register(subject, NEXT)
        assert list(fake.subjects) == [subject]


class _Kept(dict[tuple[str, str], int]):
    def get(self, subject: str, schema_text: str) -> int | None:  # type: ignore[override]
        return super().get((subject, schema_text))

    def put(self, subject: str, schema_text: str, schema_id: int) -> None:
        self[subject, schema_text] = schema_id


def test_store_of_known_ids() -> None:
    """Ids in the store are not requested, and new ones are put there."""
    kept = _Kept({("t-value", SCHEMA): 5})
    with holding() as (registry, fake):
        registry = Registry(registry.address, known=kept)
        assert [registry.register("t-value", SCHEMA) for _ in range(2)] == [5, 5]
        assert fake.asked == []
        assert registry.register("t-key", SCHEMA) == 1
    assert kept["t-key", SCHEMA] == 1


@pytest.mark.parametrize(
    ("status", "retriable"),
    [
        (400, False),
        (401, False),
        (403, False),
        (404, False),
        (408, True),
        (422, False),
        (429, True),
        (500, True),
        (502, True),
        (503, True),
        (504, True),
    ],
)
def test_status(status: int, retriable: bool) -> None:
    """Each HTTP status says whether trying again makes sense, with the registry's reason."""
    with answering(error(status)) as (url, given):
        with pytest.raises(RegistryError, match=rf"get schema 7: .*HTTP {status}.*because") as caught:
            Registry(url).get(7)
        assert len(given.asked) == 1
    assert caught.value.retriable == retriable
    assert isinstance(caught.value, RegistryAccessError) == (status in (401, 403))


def test_not_found_by_another_server() -> None:
    """A "not found" without a registry's code comes from a wrong address, not from a registry without the schema."""
    with answering((404, b"<html>")) as (url, _), pytest.raises(RegistryError, match="look up subject t-key: does not"):
        Registry(url).find("t-key", SCHEMA)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "(HTTP 404)"),
        ({"error_code": None, "message": "no"}, "(HTTP 404): no"),
        ({"error_code": 404}, "(HTTP 404, code 404)"),
        ({"error_code": 40499}, "(HTTP 404, code 40499)"),
        (b"", "(HTTP 404)"),
    ],
)
def test_message_has_only_what_the_server_sent(body: object, said: str) -> None:
    """Code and message; the setting is named if the server may be no registry."""
    with answering((404, body)) as (url, _), pytest.raises(RegistryError) as caught:
        Registry(url, hints=Hints(address="registry.url")).ping()
    asked = "" if "40499" in said else "; is registry.url the base address of a schema registry?"
    assert str(caught.value).endswith(f": does not know it {said}{asked}")


def test_failure_is_not_cached() -> None:
    """After a failure the next call sends a request again."""
    with answering(error(503), (200, {"id": 7})) as (url, _):
        registry = Registry(url)
        with pytest.raises(RegistryError):
            registry.register("t-key", SCHEMA)
        assert registry.register("t-key", SCHEMA) == 7


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        *(("register", answer) for answer in (b"<html>", {}, [], "x", 5, None)),
        *(("get", answer) for answer in (b"<html>", {}, [], "x", 5, None)),
        *(("ping", answer) for answer in (b"<html>", {}, "x", 5, None)),
    ],
)
def test_malformed_answer_is_final(call: str, answer: object) -> None:
    """Some other server is at the address."""
    with answering((200, answer)) as (url, _):
        registry = Registry(url)
        calls = {
            "register": lambda: registry.register("t-key", SCHEMA),
            "get": lambda: registry.get(7),
            "ping": registry.ping,
        }
        with pytest.raises(RegistryError, match="unintelligible answer") as caught:
            calls[call]()
        assert not caught.value.retriable


def test_refused_connection_is_retriable() -> None:
    """A refused connection may be tried again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(RegistryError, match="no connection") as caught:
            Registry(f"http://127.0.0.1:{taken.getsockname()[1]}").ping()
    assert caught.value.retriable


def test_silent_server_times_out() -> None:
    """It is retriable."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = Registry(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(RegistryError, match="no answer in time") as caught:
            registry.ping()
    assert caught.value.retriable


def test_next_address_is_tried() -> None:
    """With several addresses, if one fails."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with answering((200, ["AVRO"])) as (url, given):
            Registry(f"{dead}, {url}").ping()
            assert [path for path, _ in given.asked] == ["/schemas/types"]


BASIC = "Basic dXNlcjpwOnc="  # user, p:w
TOKEN = BearerToken("tok.en-1", "lsrc-1", "pool-1")


@pytest.mark.parametrize(
    ("userinfo", "auth", "header"),
    [
        ("", Credentials("user", "p:w"), BASIC),
        ("", lambda: Credentials("user", "p:w"), BASIC),
        ("user:p%3Aw@", None, BASIC),
        ("", TOKEN, "Bearer tok.en-1"),
        ("", lambda: TOKEN, "Bearer tok.en-1"),
    ],
)
def test_credentials_do_not_show(
    userinfo: str, auth: Identity | None, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They reach the registry from a value, a callable or the url, and appear nowhere, logs included."""
    caplog.set_level(logging.DEBUG)
    with answering(error(403)) as (url, given):
        registry = Registry(url.replace("://", f"://{userinfo}"), auth=auth)
        with pytest.raises(RegistryAccessError) as caught:
            registry.ping()
        assert [authorization for _, authorization in given.asked] == [header]
    for shown in (repr(registry), str(caught.value), repr(caught.value)):
        assert url in shown
    for shown in (repr(registry), str(caught.value), repr(caught.value), repr(auth), caplog.text):
        assert not any(secret in shown for secret in ("p:w", "p%3Aw", "tok.en", BASIC.split()[1]))
    assert caught.value.__suppress_context__


def test_bearer_token_headers() -> None:
    """A token is sent with Confluent Cloud's ids, if there are any."""
    with holding(authorization="Bearer tok.en-1") as (registry, fake):
        Registry(registry.address, auth=TOKEN).ping()
        Registry(registry.address, auth=BearerToken("tok.en-1")).ping()
    assert [headers.get("target-sr-cluster") for headers in fake.headers] == ["lsrc-1", ""]
    assert [headers.get("Confluent-Identity-Pool-Id") for headers in fake.headers] == ["pool-1", None]


@pytest.mark.parametrize("kind", [lambda secret: Credentials("a", secret), BearerToken])
def test_credentials_are_renewed_after_a_401(kind: type[BearerToken]) -> None:
    """Once per call, also for a lookup."""
    fresh = iter(["old", "new"])
    with answering(error(401), (200, {"id": 7})) as (url, given):
        registry = Registry(url, auth=lambda: kind(next(fresh)))
        assert registry.register("t-key", SCHEMA) == 7
        assert len({authorization for _, authorization in given.asked}) == 2
    with answering(error(401)) as (url, given):
        registry = Registry(url, auth=lambda: kind("wrong"))
        with pytest.raises(RegistryAccessError, match="refuses the credentials"):
            registry.register("t-key", SCHEMA)
        assert len(given.asked) == 2


@pytest.mark.parametrize(
    ("url", "auth"),
    [
        ("http://u:secret@h", Credentials("u", "secret")),
        ("http://h", Credentials("u:x", "secret")),
        ("http://h", BearerToken("secret\nX-Other: 1")),
        ("http://h", BearerToken("secrét")),
        ("http://h", BearerToken("")),
        ("nonsense://secret@h", None),
    ],
)
def test_unusable_address_or_identity_is_refused(url: str, auth: Identity | None) -> None:
    """At once, without showing it."""
    with pytest.raises(RegistryError) as caught:
        Registry(url, auth=auth)
    assert "secr" not in str(caught.value)
    assert not caught.value.retriable


def test_close_twice() -> None:
    """It does no harm."""
    registry = Registry("mock://registry")
    registry.close()
    registry.close()
