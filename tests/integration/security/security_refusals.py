"""Connections that servers refuse: what is set wrongly, and how the one line of the refusal begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.stack.ports import LOOPBACK
from tests.integration.security.security_world import World
from tests.integration.support.secure_servers import TlsFront

REFUSED: dict[str, tuple[Callable[[World, dict[str, Any]], Any], str]] = {
    "kafka, wrong CA": (
        lambda world, c: c["kafka"]["tls"].update(ca_file=str(world.certificates.stranger.file)),
        "Kafka at {kafka}: its certificate is from an authority that kafka.tls.ca_file does not name",
    ),
    "kafka, expired": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("EXPIRED"), sasl={}),
        "Kafka at {kafka}: its certificate has expired; see kafka.tls",
    ),
    "kafka, wrong host": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("ELSEWHERE"), sasl={}),
        "Kafka at {kafka}: its certificate is for another host; see kafka.tls",
    ),
    "kafka, wrong password": (
        lambda world, c: c["kafka"]["sasl"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "Kafka at {kafka} refuses the login; see kafka.sasl.username and kafka.sasl.password",
    ),
    "kafka, wrong client secret": (
        lambda world, c: c.update(kafka=_with_secret(world.login("OIDC"), world.secret("wrong", "not-this-one"))),
        "Kafka at {kafka} refuses the login; see kafka.sasl.token_endpoint_url, client_id and client_secret",
    ),
    "kafka, expired token": (
        lambda world, c: c["kafka"].update(
            sasl={"mechanism": "OAUTHBEARER", "token": {"file": world.secret("old", world.issuer.token(life_s=-60))}}
        ),
        "kafka.sasl.token: the token has expired",
    ),
    "kafka, no client certificate": (
        lambda world, c: c["kafka"].update(bootstrap_servers=world.kafka.address("MUTUAL"), sasl={}),
        "Kafka at {kafka}: it does not accept a client without a certificate; set kafka.tls.client_certificate_file",
    ),
    "kafka, no TLS": (
        lambda world, c: c["kafka"].update(tls={}),
        "Kafka at {kafka}: it speaks TLS; set kafka.tls.enabled",
    ),
    "scylla, wrong CA": (
        lambda world, c: c["scylla"]["tls"].update(ca_file=str(world.certificates.stranger.file)),
        "ScyllaDB at {scylla}: its certificate is from an authority that scylla.tls.ca_file does not name",
    ),
    "scylla, expired": (
        lambda world, c: _behind(world, c, "expired"),
        "ScyllaDB at {scylla}: its certificate has expired; see scylla.tls",
    ),
    "scylla, wrong host": (
        lambda world, c: _behind(world, c, "elsewhere"),
        "ScyllaDB at {scylla}: its certificate is for another host; see scylla.tls",
    ),
    "scylla, wrong password": (
        lambda world, c: c["scylla"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "ScyllaDB at {scylla} refused the username or password (scylla.username, scylla.password)",
    ),
    "scylla, a stranger's certificate": (
        lambda world, c: c["scylla"].update(tls=_strangers(world)),
        "ScyllaDB at {scylla}: it does not accept the certificate in scylla.tls.client_certificate_file",
    ),
    "scylla, key file missing": (
        lambda _world, c: c["scylla"]["tls"].update(client_key_file="/nowhere/key.pem"),
        "scylla.tls.client_certificate_file: ",
    ),
    "registry, wrong CA": (
        lambda world, c: c["registry"].update(ca_file=str(world.certificates.stranger.file)),
        "schema registry {registry}: ",
    ),
    "registry, wrong password": (
        lambda world, c: c["registry"].update(password={"file": world.secret("wrong", "not-this-one")}),
        "schema registry {registry}: ",
    ),
}


def _with_secret(kafka: dict[str, Any], path: str) -> dict[str, Any]:
    return {**kafka, "sasl": {**kafka["sasl"], "client_secret": {"file": path}}}


def _strangers(world: World) -> dict[str, Any]:
    shown = world.certificates.strangers_client
    return world.tls(client_certificate_file=str(shown.certificate), client_key_file=str(shown.key))


def _behind(world: World, mapping: dict[str, Any], certificate: str) -> TlsFront:
    front = TlsFront((LOOPBACK, world.cql.port), getattr(world.certificates, certificate))
    mapping["scylla"]["contact_points"] = front.address
    return front
