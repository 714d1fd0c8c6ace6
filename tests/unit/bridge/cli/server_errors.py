"""What a user sees if servers, Java, disks or ports have a problem, with the messages of real servers."""

from __future__ import annotations

from typing import Final

from tests.unit.bridge.cli.error_entries import Entry, entry
from tests.unit.bridge.cli.job_errors import JOB_CASES

_REFUSED: Final = "test_refused"
_NO_CDC: Final = "test_table_that_can_never_have_cdc_is_explained"
_STRANGE: Final = "test_strange_servers_are_told"
_MIXED_UP: Final = "test_servers_that_are_mixed_up_are_told"
_GONE: Final = "is not reachable (tried 9 times in 60.0 s)"

SERVER_CASES: Final[dict[str, list[Entry]]] = {
    "ScyllaDB": [
        entry(
            "nothing listens",
            f"ScyllaDB at a:9042 {_GONE}: ...: a:9042: connection refused; see scylla.contact_points",
            test=_REFUSED,
        ),
        entry(
            "a host name without an address",
            f"ScyllaDB at a:9042 {_GONE}: no address is known for that name; see scylla.contact_points",
            test=_STRANGE,
        ),
        entry(
            "an HTTP server, or a silent server",
            f"ScyllaDB at a:80 {_GONE}: ... timed out creating connection (...); is that its port for CQL "
            "(scylla.contact_points)?",
            test=_STRANGE,
        ),
        entry(
            "a server that closes the connection",
            f"ScyllaDB at a:80 {_GONE}: ... was closed by server; see scylla.contact_points",
            test=_STRANGE,
        ),
        entry(
            "two nodes; nothing listens on either",
            f"ScyllaDB at a:9042, a:9042 {_GONE}: ...: connection refused; ...: connection refused; see "
            "scylla.contact_points",
            test=_STRANGE,
        ),
        entry(
            "`tls.enabled`, and the server has no TLS",
            "ScyllaDB at a:9042: it does not speak TLS there; see scylla.tls.enabled",
            test=_STRANGE,
        ),
        entry(
            "another authority's certificate",
            "ScyllaDB at a:9042: its certificate is from an authority that scylla.tls.ca_file does not name",
            test=_REFUSED,
        ),
        entry(
            "an expired certificate", "ScyllaDB at a:9042: its certificate has expired; see scylla.tls", test=_REFUSED
        ),
        entry(
            "a certificate for another host",
            "ScyllaDB at a:9042: its certificate is for another host; see scylla.tls",
            test=_REFUSED,
        ),
        entry(
            "an unknown client certificate",
            "ScyllaDB at a:9042: it does not accept the certificate in scylla.tls.client_certificate_file",
            test=_REFUSED,
        ),
        entry(
            "Kafka's port, or the registry's",
            f"ScyllaDB at a:9092 {_GONE}: ...: a:9092: timed out creating connection (10.0 seconds); is that its port "
            "for CQL (scylla.contact_points)?",
            test=_MIXED_UP,
        ),
        entry(
            "another server's port for the first contact point, the right port for the second",
            f"ScyllaDB at a:9092, b:9042 {_GONE}: ...: none of the nodes that it names (...) takes connections on port "
            "9092, that of the first contact point; see scylla.contact_points",
        ),
        entry(
            "an unknown `local_datacenter`",
            "ScyllaDB at a:9042: there is no data center 'mars', only 'datacenter1'; see scylla.local_datacenter",
            test=_REFUSED,
        ),
        entry(
            "a wrong password",
            "ScyllaDB at a:9042 refused the username or password (scylla.username, scylla.password): ...",
            test=_REFUSED,
        ),
        entry(
            "a missing grant",
            "ScyllaDB at a:9042 does not allow ...: User cdc_reader has no SELECT permission on <table ...> ...",
            test="test_grants_suffice_and_each_is_needed",
        ),
    ],
    "Tables": [
        entry("an unknown keyspace", "table no.t: there is no keyspace 'no' at ...", test=_REFUSED),
        entry("an unknown table", "table shop.no: there is no such table at ...", test=_REFUSED),
        entry(
            "CDC is not enabled",
            "table shop.plain: CDC is not enabled; enable it with ALTER TABLE shop.plain WITH cdc = {'enabled': true}",
            test=_REFUSED,
        ),
        entry(
            "the log was dropped",
            "table shop.t: CDC is enabled but the log table ... does not exist; ...",
            test=_REFUSED,
        ),
        entry(
            "a name in other upper or lower case",
            "table shop.orders: there is no keyspace 'shop' at a:9042; did you mean \"Shop\"?",
            test="test_missing_names_that_differ_in_case_are_suggested",
        ),
        entry(
            "a materialized view",
            "table shop.v: is a materialized view, which has no CDC; name its table, shop.orders",
            test=_NO_CDC,
        ),
        entry(
            "a table with counters", "table shop.hits: has counters, and ScyllaDB has no CDC for these", test=_NO_CDC
        ),
        entry(
            "a log table",
            "table shop.orders_scylla_cdc_log: is a log itself; name the table that it belongs to, shop.orders",
            test=_NO_CDC,
        ),
        entry(
            "several tables without CDC and unreachable servers",
            "(a line for each)",
            test="test_everything_wrong",
        ),
        entry(
            "a table is dropped while the job runs",
            "table shop.t: it or its log shop.t_scylla_cdc_log does not exist; was the table dropped? The reading goes "
            "on when it is back, or take it out of the configuration",
            "goes on",
            "test_a_table_changes_while_the_job_runs",
        ),
    ],
    "Kafka": [
        entry(
            "nothing listens",
            f"Kafka at a:9092 {_GONE}: ...: Connection refused (...); see kafka.bootstrap_servers",
            test=_REFUSED,
        ),
        entry(
            "a host name without an address",
            f"Kafka at a:9092 {_GONE}: ... Failed to resolve 'a:9092': ...; see kafka.bootstrap_servers",
        ),
        entry(
            "an HTTP server, a silent server, or one that closes the connection",
            f"Kafka at a:80 {_GONE}: something takes connections "
            "there, but does not answer as Kafka does; is it the port of another server "
            "(kafka.bootstrap_servers), or does it want a login (kafka.sasl)?",
            test=_STRANGE,
        ),
        entry(
            "`tls.enabled`, and the server has no TLS",
            "Kafka at a:9092: it does not speak TLS there; see kafka.tls.enabled",
            test=_STRANGE,
        ),
        entry(
            "`tls.enabled` at a listener without TLS",
            "Kafka at a:9092: it does not speak TLS there; see kafka.tls.enabled",
            test=_MIXED_UP,
        ),
        entry(
            "`sasl` at a listener without logins",
            "Kafka at a:9092 takes no login there; leave kafka.sasl out, or name the port of a listener that takes one",
            test=_MIXED_UP,
        ),
        entry(
            "a `sasl.mechanism` that is not enabled",
            "Kafka at a:9092 does not take PLAIN there, only SCRAM-SHA-256,SCRAM-SHA-512; see kafka.sasl.mechanism",
            test="test_mechanism_that_is_not_enabled_is_named",
        ),
        entry(
            "another authority's certificate at the `token_endpoint_url`",
            "Kafka at a:9092 gets no token: TLS failed; see kafka.sasl.token_endpoint_ca_file (...)",
            test="test_failure_to_get_a_token_names_its_settings",
        ),
        entry(
            "no `sasl` at a listener that requires a login; the port of ScyllaDB or of the registry",
            f"Kafka at a:9092 {_GONE}: something takes connections there, but does not answer as Kafka does; is it the "
            "port of another server (kafka.bootstrap_servers), or does it want a login (kafka.sasl)?",
            test=_MIXED_UP,
        ),
        entry(
            "TLS, and `tls.enabled` is false",
            "Kafka at a:9092: it speaks TLS; set kafka.tls.enabled",
            test=_REFUSED,
        ),
        entry(
            "another authority's certificate",
            "Kafka at a:9092: its certificate is from an authority that kafka.tls.ca_file does not name",
            test=_REFUSED,
        ),
        entry("an expired certificate", "Kafka at a:9092: its certificate has expired; see kafka.tls", test=_REFUSED),
        entry(
            "a certificate for another host",
            "Kafka at a:9092: its certificate is for another host; see kafka.tls",
            test=_REFUSED,
        ),
        entry(
            "no client certificate, and the server requires one",
            "Kafka at a:9092: it does not accept a client without a certificate; set kafka.tls.client_certificate_file",
            test=_REFUSED,
        ),
        entry(
            "a wrong password",
            "Kafka at a:9092 refuses the login; see kafka.sasl.username and kafka.sasl.password (...)",
            test=_REFUSED,
        ),
        entry(
            "an expired token",
            "kafka.sasl.token: the token has expired 60 s ago; whatever writes it has to renew it",
            test=_REFUSED,
        ),
        entry(
            "a missing right",
            "...; the bridge's user needs the right Write on topic shop.orders",
            "2 or 1",
            "test_kafka_right_is_needed",
        ),
        entry(
            "`kafka.properties: {nonsense.setting: 1}`",
            "Kafka at a:9092: making a client (see kafka.properties) failed: "
            '_INVALID_ARG (No such configuration property: "nonsense.setting")',
            test=_STRANGE,
        ),
        entry(
            "`kafka.properties: {message.max.bytes: 5}`",
            "Kafka at a:9092: making a client (see kafka.properties) "
            'failed: _INVALID_ARG (Configuration property "message.max.bytes" value 5 is outside allowed range ...',
            test=_STRANGE,
        ),
    ],
    "Schema registry": [
        entry(
            "nothing listens",
            f"Schema registry at http://a:8081/ {_GONE}: list schema types: no connection (ConnectError); "
            "see registry.url",
            test=_REFUSED,
        ),
        entry(
            "a path that the registry does not have",
            "schema registry http://a:8081/no: list schema types: does not know it (HTTP 404); is "
            "registry.url the base address of a schema registry?",
            test=_REFUSED,
        ),
        entry(
            "a web page, other JSON, or half of a JSON document",
            "schema registry http://a:80/: list schema types: "
            "unintelligible answer (...); is registry.url the base address of a schema registry?",
            test=_STRANGE,
        ),
        entry(
            "status 404 or a redirect from another server",
            "schema registry http://a:80/: list schema types: ... (HTTP ...)...; is registry.url "
            "the base address of a schema registry?",
            test=_STRANGE,
        ),
        entry(
            "status 403 from another server",
            "schema registry http://a:80/: list schema types: forbids it (HTTP 403): ...",
            test=_STRANGE,
        ),
        entry(
            "status 500",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: failed (HTTP 500): ...; see registry.url",
            test=_STRANGE,
        ),
        entry(
            "Kafka's port",
            f"Schema registry at http://a:9092/ {_GONE}: list schema types: no answer in HTTP (RemoteProtocolError); "
            "is registry.url the base address of a schema registry?",
            test=_MIXED_UP,
        ),
        entry(
            "ScyllaDB's port",
            f"Schema registry at http://a:9042/ {_GONE}: list schema types: no answer in time; see registry.url",
            test=_MIXED_UP,
        ),
        entry(
            "a silent server",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: no answer in time; see registry.url",
            test=_STRANGE,
        ),
        entry(
            "a server that closes the connection",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: no answer in HTTP (RemoteProtocolError); is "
            "registry.url the base address of a schema registry?",
            test=_STRANGE,
        ),
        entry(
            "a host name without an address",
            f"Schema registry at http://a:8081/ {_GONE}: list schema types: no connection (ConnectError); "
            "see registry.url",
            test=_STRANGE,
        ),
        entry(
            "`https`, and the server has no TLS",
            "schema registry https://a:8081/: list schema types: no TLS connection: wrong version number; see "
            "registry.url",
            test=_STRANGE,
        ),
        entry(
            "`ca_file` is missing",
            "schema registry: the CA file /etc/ca.pem can't be used: No such file or directory",
            test=_STRANGE,
        ),
        entry(
            "a wrong password",
            "schema registry http://a:8081/: list schema types: refuses the credentials (HTTP 401, ...): ...; see "
            "registry.username and registry.password",
            test=_REFUSED,
        ),
        entry(
            "another authority's certificate",
            "schema registry https://a:8081/: list schema types: its certificate is not accepted: unable to "
            "get local issuer certificate; see registry.ca_file",
            test=_REFUSED,
        ),
        entry(
            "a schema that the subject's rule rejects",
            "table shop.orders: ... subject shop.orders-value refuses the schema by its rule BACKWARD: ...",
            test="test_incompatible",
        ),
    ],
    "Secrets and certificates, where they are read": [
        entry(
            "the variable is not set",
            "registry.password: the environment variable NOPE is not set; it should hold a secret",
            test="test_absent",
        ),
        entry(
            "the variable is empty",
            "kafka.sasl.password: the environment variable PW is empty; it should hold a secret",
            test="test_absent",
        ),
        entry(
            "the file is missing, or a folder",
            "scylla.password: the secret's file /run/pw can't be read: No such file or directory",
            test="test_absent",
        ),
        entry("the file is empty", "scylla.password: the secret's file /run/pw is empty", test="test_absent"),
        entry("the file is binary", "scylla.password: the secret's file /run/pw is not UTF-8 text", test=_STRANGE),
        entry(
            "`ca_file` is missing",
            "kafka.tls.ca_file: /etc/ca.pem can't be used: No such file or directory",
            test=_STRANGE,
        ),
        entry(
            "`ca_file` is no PEM file",
            "kafka.tls.ca_file: /etc/ca.pem can't be used: no certificate or crl found",
            test=_STRANGE,
        ),
    ],
    **JOB_CASES,
}
