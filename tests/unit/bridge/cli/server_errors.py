"""What a user sees if servers, Java, disks or ports have a problem, with the messages of real servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem and its messages.

    Attributes:
        tried: the problem, as docs/errors.md describes it.
        told: lines on standard error; `...` marks text that is left out.
        status: the exit status, or what happens instead.
        test: name of the test that checks it; None if it was checked by hand.
    """

    tried: str
    told: tuple[str, ...]
    status: str = "2"
    test: str | None = None


def _one(tried: str, told: str, status: str = "2", test: str | None = None) -> Entry:
    return Entry(tried, (told,), status, test)


_REFUSED: Final = "test_refused"
_NO_CDC: Final = "test_what_can_have_no_cdc_is_told_as_what_it_is"
_STRANGE: Final = "test_strange_servers_are_told"
_MIXED_UP: Final = "test_servers_that_are_mixed_up_are_told"
_GONE: Final = "is not reachable (tried 9 times in 60.0 s)"

SERVER_CASES: Final[dict[str, list[Entry]]] = {
    "ScyllaDB": [
        _one(
            "nothing listens",
            f"ScyllaDB at a:9042 {_GONE}: ...: a:9042: connection refused; see scylla.contact_points",
            test=_REFUSED,
        ),
        _one(
            "a host name without an address",
            f"ScyllaDB at a:9042 {_GONE}: no address is known for that name; see scylla.contact_points",
            test=_STRANGE,
        ),
        _one(
            "an HTTP server, or a silent server",
            f"ScyllaDB at a:80 {_GONE}: ... timed out creating connection (...); is that its port for CQL "
            "(scylla.contact_points)?",
            test=_STRANGE,
        ),
        _one(
            "a server that closes the connection",
            f"ScyllaDB at a:80 {_GONE}: ... was closed by server; see scylla.contact_points",
            test=_STRANGE,
        ),
        _one(
            "two nodes; nothing listens on either",
            f"ScyllaDB at a:9042, a:9042 {_GONE}: ...: connection refused; ...: connection refused; see "
            "scylla.contact_points",
            test=_STRANGE,
        ),
        _one(
            "`tls.enabled`, and the server has no TLS",
            "ScyllaDB at a:9042: it does not speak TLS there; see scylla.tls.enabled",
            test=_STRANGE,
        ),
        _one(
            "another authority's certificate",
            "ScyllaDB at a:9042: its certificate is from an authority that scylla.tls.ca_file does not name",
            test=_REFUSED,
        ),
        _one(
            "an expired certificate", "ScyllaDB at a:9042: its certificate has expired; see scylla.tls", test=_REFUSED
        ),
        _one(
            "a certificate for another host",
            "ScyllaDB at a:9042: its certificate is for another host; see scylla.tls",
            test=_REFUSED,
        ),
        _one(
            "an unknown client certificate",
            "ScyllaDB at a:9042: it does not accept the certificate in scylla.tls.client_certificate_file",
            test=_REFUSED,
        ),
        _one(
            "Kafka's port, or the registry's",
            f"ScyllaDB at a:9092 {_GONE}: ...: a:9092: timed out creating connection (10.0 seconds); is that its port "
            "for CQL (scylla.contact_points)?",
            test=_MIXED_UP,
        ),
        _one(
            "another server's port for the first contact point, the right port for the second",
            f"ScyllaDB at a:9092, b:9042 {_GONE}: ...: none of the nodes that it names (...) takes connections on port "
            "9092, that of the first contact point; see scylla.contact_points",
        ),
        _one(
            "an unknown `local_datacenter`",
            "ScyllaDB at a:9042: there is no data center 'mars', only 'datacenter1'; see scylla.local_datacenter",
            test=_REFUSED,
        ),
        _one(
            "a wrong password",
            "ScyllaDB at a:9042 refused the username or password (scylla.username, scylla.password): ...",
            test=_REFUSED,
        ),
        _one(
            "a missing grant",
            "ScyllaDB at a:9042 does not allow ...: User cdc_reader has no SELECT permission on <table ...> ...",
            test="test_grants_suffice_and_each_is_needed",
        ),
    ],
    "Tables": [
        _one("an unknown keyspace", "table no.t: there is no keyspace 'no' at ...", test=_REFUSED),
        _one("an unknown table", "table shop.no: there is no such table at ...", test=_REFUSED),
        _one(
            "CDC is not enabled",
            "table shop.plain: CDC is not enabled; enable it with ALTER TABLE shop.plain WITH cdc = {'enabled': true}",
            test=_REFUSED,
        ),
        _one(
            "the log was dropped",
            "table shop.t: CDC is enabled but the log table ... does not exist; ...",
            test=_REFUSED,
        ),
        _one(
            "a name in other upper or lower case",
            "table shop.orders: there is no keyspace 'shop' at a:9042; did you mean \"Shop\"?",
            test="test_what_is_missing_may_be_there_in_other_letters",
        ),
        _one(
            "a materialized view",
            "table shop.v: is a materialized view, which has no CDC; name its table, shop.orders",
            test=_NO_CDC,
        ),
        _one("a table with counters", "table shop.hits: has counters, and ScyllaDB has no CDC for these", test=_NO_CDC),
        _one(
            "a log table",
            "table shop.orders_scylla_cdc_log: is a log itself; name the table that it belongs to, shop.orders",
            test=_NO_CDC,
        ),
        _one(
            "several tables without CDC and unreachable servers",
            "(a line for each)",
            test="test_everything_wrong",
        ),
        _one(
            "a table is dropped while the job runs",
            "table shop.t: it or its log shop.t_scylla_cdc_log does not exist; was the table dropped? The reading goes "
            "on when it is back, or take it out of the configuration",
            "goes on",
            "test_a_table_changes_while_the_job_runs",
        ),
    ],
    "Kafka": [
        _one(
            "nothing listens",
            f"Kafka at a:9092 {_GONE}: ...: Connection refused (...); see kafka.bootstrap_servers",
            test=_REFUSED,
        ),
        _one(
            "a host name without an address",
            f"Kafka at a:9092 {_GONE}: ... Failed to resolve 'a:9092': ...; see kafka.bootstrap_servers",
        ),
        _one(
            "an HTTP server, a silent server, or one that closes the connection",
            f"Kafka at a:80 {_GONE}: something takes connections "
            "there, but does not answer as Kafka does; is it the port of another server "
            "(kafka.bootstrap_servers), or does it want a login (kafka.sasl)?",
            test=_STRANGE,
        ),
        _one(
            "`tls.enabled`, and the server has no TLS",
            "Kafka at a:9092: it does not speak TLS there; see kafka.tls.enabled",
            test=_STRANGE,
        ),
        _one(
            "`tls.enabled` at a listener without TLS",
            "Kafka at a:9092: it does not speak TLS there; see kafka.tls.enabled",
            test=_MIXED_UP,
        ),
        _one(
            "`sasl` at a listener without logins",
            "Kafka at a:9092 takes no login there; leave kafka.sasl out, or name the port of a listener that takes one",
            test=_MIXED_UP,
        ),
        _one(
            "a `sasl.mechanism` that is not enabled",
            "Kafka at a:9092 does not take PLAIN there, only SCRAM-SHA-256,SCRAM-SHA-512; see kafka.sasl.mechanism",
            test="test_mechanism_that_is_not_offered",
        ),
        _one(
            "another authority's certificate at the `token_endpoint_url`",
            "Kafka at a:9092 gets no token: TLS failed; see kafka.sasl.token_endpoint_ca_file (...)",
            test="test_token_that_is_not_given",
        ),
        _one(
            "no `sasl` at a listener that requires a login; the port of ScyllaDB or of the registry",
            f"Kafka at a:9092 {_GONE}: something takes connections there, but does not answer as Kafka does; is it the "
            "port of another server (kafka.bootstrap_servers), or does it want a login (kafka.sasl)?",
            test=_MIXED_UP,
        ),
        _one(
            "TLS, and `tls.enabled` is false",
            "Kafka at a:9092: it speaks TLS; set kafka.tls.enabled",
            test=_REFUSED,
        ),
        _one(
            "another authority's certificate",
            "Kafka at a:9092: its certificate is from an authority that kafka.tls.ca_file does not name",
            test=_REFUSED,
        ),
        _one("an expired certificate", "Kafka at a:9092: its certificate has expired; see kafka.tls", test=_REFUSED),
        _one(
            "a certificate for another host",
            "Kafka at a:9092: its certificate is for another host; see kafka.tls",
            test=_REFUSED,
        ),
        _one(
            "no client certificate, and the server requires one",
            "Kafka at a:9092: it does not accept a client without a certificate; set kafka.tls.client_certificate_file",
            test=_REFUSED,
        ),
        _one(
            "a wrong password",
            "Kafka at a:9092 refuses the login; see kafka.sasl.username and kafka.sasl.password (...)",
            test=_REFUSED,
        ),
        _one(
            "an expired token",
            "kafka.sasl.token: the token has expired 60 s ago; whatever writes it has to renew it",
            test=_REFUSED,
        ),
        _one(
            "a missing right",
            "...; the bridge's user needs the right Write on topic shop.orders",
            "2 or 1",
            "test_kafka_right_is_needed",
        ),
        _one(
            "`kafka.properties: {nonsense.setting: 1}`",
            "Kafka at a:9092: making a client (see kafka.properties) failed: "
            '_INVALID_ARG (No such configuration property: "nonsense.setting")',
            test=_STRANGE,
        ),
        _one(
            "`kafka.properties: {message.max.bytes: 5}`",
            "Kafka at a:9092: making a client (see kafka.properties) "
            'failed: _INVALID_ARG (Configuration property "message.max.bytes" value 5 is outside allowed range ...',
            test=_STRANGE,
        ),
    ],
    "Schema registry": [
        _one(
            "nothing listens",
            f"Schema registry at http://a:8081/ {_GONE}: list schema types: no connection (ConnectError); "
            "see registry.url",
            test=_REFUSED,
        ),
        _one(
            "a path that the registry does not have",
            "schema registry http://a:8081/no: list schema types: does not know it (HTTP 404); is "
            "registry.url the base address of a schema registry?",
            test=_REFUSED,
        ),
        _one(
            "a web page, other JSON, or half of a JSON document",
            "schema registry http://a:80/: list schema types: "
            "unintelligible answer (...); is registry.url the base address of a schema registry?",
            test=_STRANGE,
        ),
        _one(
            "status 404 or a redirect from another server",
            "schema registry http://a:80/: list schema types: ... (HTTP ...)...; is registry.url "
            "the base address of a schema registry?",
            test=_STRANGE,
        ),
        _one(
            "status 403 from another server",
            "schema registry http://a:80/: list schema types: forbids it (HTTP 403): ...",
            test=_STRANGE,
        ),
        _one(
            "status 500",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: failed (HTTP 500): ...; see registry.url",
            test=_STRANGE,
        ),
        _one(
            "Kafka's port",
            f"Schema registry at http://a:9092/ {_GONE}: list schema types: no answer in HTTP (RemoteProtocolError); "
            "is registry.url the base address of a schema registry?",
            test=_MIXED_UP,
        ),
        _one(
            "ScyllaDB's port",
            f"Schema registry at http://a:9042/ {_GONE}: list schema types: no answer in time; see registry.url",
            test=_MIXED_UP,
        ),
        _one(
            "a silent server",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: no answer in time; see registry.url",
            test=_STRANGE,
        ),
        _one(
            "a server that closes the connection",
            f"Schema registry at http://a:80/ {_GONE}: list schema types: no answer in HTTP (RemoteProtocolError); is "
            "registry.url the base address of a schema registry?",
            test=_STRANGE,
        ),
        _one(
            "a host name without an address",
            f"Schema registry at http://a:8081/ {_GONE}: list schema types: no connection (ConnectError); "
            "see registry.url",
            test=_STRANGE,
        ),
        _one(
            "`https`, and the server has no TLS",
            "schema registry https://a:8081/: list schema types: no TLS connection: wrong version number; see "
            "registry.url",
            test=_STRANGE,
        ),
        _one(
            "`ca_file` is missing",
            "schema registry: the CA file /etc/ca.pem can't be used: No such file or directory",
            test=_STRANGE,
        ),
        _one(
            "a wrong password",
            "schema registry http://a:8081/: list schema types: refuses the credentials (HTTP 401, ...): ...; see "
            "registry.username and registry.password",
            test=_REFUSED,
        ),
        _one(
            "another authority's certificate",
            "schema registry https://a:8081/: list schema types: its certificate is not accepted: unable to "
            "get local issuer certificate; see registry.ca_file",
            test=_REFUSED,
        ),
        _one(
            "a schema that the subject's rule rejects",
            "table shop.orders: ... subject shop.orders-value refuses the schema by its rule BACKWARD: ...",
            test="test_incompatible",
        ),
    ],
    "Secrets and certificates, where they are read": [
        _one(
            "the variable is not set",
            "registry.password: the environment variable NOPE is not set; it should hold a secret",
            test="test_absent",
        ),
        _one(
            "the variable is empty",
            "kafka.sasl.password: the environment variable PW is empty; it should hold a secret",
            test="test_absent",
        ),
        _one(
            "the file is missing, or a folder",
            "scylla.password: the secret's file /run/pw can't be read: No such file or directory",
            test="test_absent",
        ),
        _one("the file is empty", "scylla.password: the secret's file /run/pw is empty", test="test_absent"),
        _one("the file is binary", "scylla.password: the secret's file /run/pw is not UTF-8 text", test=_STRANGE),
        _one(
            "`ca_file` is missing",
            "kafka.tls.ca_file: /etc/ca.pem can't be used: No such file or directory",
            test=_STRANGE,
        ),
        _one(
            "`ca_file` is no PEM file",
            "kafka.tls.ca_file: /etc/ca.pem can't be used: no certificate or crl found",
            test=_STRANGE,
        ),
    ],
    "Records and topics, while the job runs": [
        _one(
            "a record above `max.message.bytes`",
            "shop.orders: stream 0x..., 1700000000000000 us, batch_seq_no 0: a record "
            "of 1200034 bytes for topic shop.orders is over the limit of 1048588 bytes. Raise the topic's "
            "max.message.bytes, ..., or set publishing.dead_letter_topic",
            "stops the table: 1",
            "test_records_over_the_limit_become_dead_letters",
        ),
        _one(
            "the same with `publishing.dead_letter_topic`",
            "shop.orders: changes became dead letters in topic ...; the first: ...",
            "goes on",
            "test_records_over_the_limit_become_dead_letters",
        ),
        _one(
            "the limit of a topic was lowered, and the bridge has no right to read it",
            "Kafka at a:9092 refused a batch of records for topic shop.orders (MSG_SIZE_TOO_LARGE; ...",
            "stops the table: 1",
            "test_limit_that_nobody_told_us_stops_with_what_to_do",
        ),
        _one(
            "a token that is about to expire",
            "... Kafka at a:9092 refused a second login within a second of the first, which it does if a token is "
            "about to expire; the next connection succeeds (...)",
            "goes on",
            "test_a_login_that_is_refused_again_passes",
        ),
        _one(
            "a Kafka quota",
            "orders.shop.orders.0: Kafka's broker 1 throttles it for 3.4 s because of a quota; nothing is lost, it "
            "takes longer",
            "goes on",
            "test_quota_makes_the_job_wait_and_is_told",
        ),
        _one(
            "a cell that cannot be encoded",
            "shop.orders: stream 0x..., 1700000000000000 us, batch_seq_no 0: column 'note' of type text: ...",
            "stops the table: 1",
            "test_without_a_dead_letter_topic_the_table_stops",
        ),
        _one(
            "the same with `publishing.dead_letter_topic`",
            "shop.orders: changes became dead letters in topic ...; the first: ...",
            "goes on",
            "test_dead_letter",
        ),
        _one(
            "a right is revoked",
            "...; the bridge's user needs the right Write on ... topic shop.orders, or: ScyllaDB at a:9042 does not "
            "allow ...: User cdc_reader has no SELECT permission on <table ...> ...",
            "stops the table: 1",
        ),
        _one(
            "the change topic is deleted",
            "shop.orders: the change topic shop.orders did not exist, although the progress topic ... shows that the "
            "table was published before. The bridge has created it and goes on publishing: what a deleted topic held "
            "is not published again. To publish all that the log still holds, stop the job, delete the change topic, "
            "the progress topic ... and the checkpoint ..., and start it again",
            "goes on",
            "test_topic_that_was_missing_is_logged",
        ),
        _one(
            "the change topic is deleted and created again by another user or a broker",
            "shop.orders: the change topic shop.orders is not the one of 2026-01-01T12:00:00.000000Z (its id was ..., "
            "and is ...). Unless this is another Kafka cluster, the topic was deleted and created anew with 1 of 12 "
            "partitions (kafka.partitions). The table goes on publishing to it: what the deleted topic held is not "
            "published again. To publish all ...",
            "goes on",
            "test_topic_that_is_replaced_under_a_running_table_is_logged_once",
        ),
        _one(
            "the change topic of a table without writes is deleted, and not created again",
            "shop.orders: the change topic shop.orders is missing: it was deleted, or the job has lost the right "
            "Describe on it. The table's next change, or its next start, creates a deleted topic anew; what it held is "
            "not published again. To publish all ...",
            "goes on",
            "test_topic_that_is_missing_is_logged_once",
        ),
        _one(
            "a second job of the same name",
            "shop.orders lane 0 of 2, ...: another job of the same name (...) has taken it over from this one (...). "
            "Stop one of the two; the other one goes on by itself",
            "goes on",
            "test_three_short_runs",
        ),
    ],
    "Topics at a start": [
        _one(
            "a progress topic that is not compacted",
            "progress topic orders.progress.shop.orders: its cleanup.policy is "
            "delete: Kafka deletes the cursors of a table which stands still for longer than its retention; set it to "
            "compact",
            "goes on",
            "test_ill_kept_topics",
        ),
        _one(
            "a change topic that is compacted",
            "change topic shop.orders: its cleanup.policy is compact, so that Kafka keeps "
            "each key's last change alone; ...",
            "goes on",
            "test_ill_kept_topics",
        ),
        _one(
            "a foreign record in the progress topic",
            "a progress record is not JSON: ...; or is not of version 2; or contradicts itself: ...",
            "stops the table: 1",
            "test_foreign_progress_is_told",
        ),
        _one(
            "the progress topic was deleted",
            "shop.orders: the progress topic ... holds no cursor, but the checkpoint ... shows "
            "that changes were published. Was the topic deleted? If so, stop the job and delete the checkpoint, too, "
            "and the change topic unless duplicates of what it holds are acceptable: ...",
            "stops the table: 1",
            "test_progress_that_is_gone_stops_the_table",
        ),
        _one(
            "`consume` of a topic that does not exist",
            "topic shop.orders does not exist at ...; has the job run yet?",
            "2",
            "test_refused",
        ),
        _one(
            "`start` in the future",
            "table shop.orders: its start, 2999-01-01T00:00:00+00:00, is still to come: without progress it is refused",
            "goes on",
            "test_start_to_come",
        ),
    ],
    "Streams and places": [
        _one("output to `head`", "(nothing)", "0", "test_closed_pipe"),
        _one(
            "output to a full disk",
            "standard output can't be written: No space left on device",
            "1",
            "test_full_disk_behind_standard_output",
        ),
        _one("standard output or error closed", "(nothing)", "as otherwise", "test_no_streams"),
        _one("standard input closed, no terminal, or `TERM=dumb`", "(as otherwise)", "as otherwise"),
        _one(
            "`LC_ALL=C` without UTF-8, and names that are not ASCII",
            "b.yaml:5: tables[0].name: 'shop.Auf\"tr\\xe4ge' is not keyspace.table (...)",
            "2",
            "test_terminal_without_letters",
        ),
        _one(
            "a deleted working folder",
            "x.yaml: can't be read: No such file or directory",
            "2",
            "test_folder_that_is_gone",
        ),
        _one(
            "a file of 3 MB in one line",
            "big.yaml:1: must be a mapping with sections such as scylla, kafka and tables, not a single value",
            "2",
        ),
    ],
    "Signals": [
        _one("Ctrl-C while a command waits for a server", "(nothing)", "130", "test_interrupted_while_waiting"),
        _one(
            "Ctrl-C or SIGTERM while `run` starts",
            "(nothing)",
            "130, or 143",
            "test_signals_end_a_job_that_still_imports_in_silence",
        ),
        _one(
            "Ctrl-C or SIGTERM while the job waits for its servers",
            "SIGTERM: stopped before anything was started",
            "0",
            "test_start_that_waits_for_its_servers_can_be_stopped",
        ),
    ],
    "Ports and folders of the job": [
        _one(
            "`monitoring.listen` is taken",
            "monitoring.listen 127.0.0.1:9404: Address already in use; choose another address, or leave it out",
            test="test_address_that_is_taken",
        ),
        _one(
            "`spark.checkpoint` in a file system that Spark does not support",
            "shop.orders stops: checkpoint s4://... can't be read; see spark.checkpoint (...: No FileSystem for scheme "
            '"s4")',
            "stops the table: 1",
            "test_folder_that_can_not_be_used_is_named",
        ),
        _one(
            "`spark.checkpoint` is not readable at a table's start",
            "shop.orders: checkpoint /... can't be read; see spark.checkpoint (...) (failure 1; starting again in 1 s)",
            "goes on",
            "test_folder_that_can_not_be_used_is_named",
        ),
        _one(
            "a checkpoint with missing, torn or foreign files, after two failures",
            "shop.orders: Spark cannot use the checkpoint .... The job begins it anew and goes on from the progress "
            "topic",
            "goes on",
            "test_damaged_checkpoint_is_no_obstacle",
        ),
        _one(
            "`spark.checkpoint` on a disk that becomes full or read-only while the job runs",
            "shop.orders: StreamingQueryException: ... No space left on device, or Read-only file system ... (failure "
            "1; starting again in 1 s)",
            "goes on",
        ),
        _one(
            "no writable folder for temporary files",
            "no temporary files can be made (...); set TMPDIR to a folder for them",
            test="test_no_temporary_files",
        ),
    ],
    "Java": [
        _one(
            "no Java",
            "Spark's JVM does not start. No Java found: install a Java 17 runtime, and put it on the PATH or set "
            "JAVA_HOME.",
            test="test_missing_java_is_told",
        ),
        _one(
            "`JAVA_HOME` without a Java",
            "Spark's JVM does not start. JAVA_HOME is /nowhere, but there is no bin/java in it. "
            "Correct it, or unset it to use the PATH.",
            test="test_missing_java_is_told",
        ),
        _one(
            "JDK 8",
            "Spark's JVM does not start. /usr/lib/jvm/8/bin/java is Java 8, but 17 or newer is needed. Set JAVA_HOME "
            "to a newer one.",
            test="test_missing_java_is_told",
        ),
        _one(
            "a `java` that is not executable",
            "Spark's JVM can't be started: /jre/bin/java: Permission denied; see JAVA_HOME",
            test="test_file_that_is_no_program",
        ),
        _one(
            "a `java` that prints nothing",
            "Spark's JVM (process 4711) has not come up in ... s: give it more CPU, and see its own messages above",
            test="test_jvm_that_does_not_come_up",
        ),
        _one(
            "Spark's JVM ends while the job runs",
            "Spark's JVM has ended (...); what was committed stays, start the job again",
            "1",
            "test_jvm_that_ends_fails_the_job_unless_it_was_to_stop",
        ),
    ],
}
