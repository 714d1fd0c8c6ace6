"""Errors of a running job, of its topics and of its machine, quoted as seen."""

from __future__ import annotations

from typing import Final

from tests.unit.bridge.cli.error_entries import Entry, entry

JOB_CASES: Final[dict[str, list[Entry]]] = {
    "Records and topics, while the job runs": [
        entry(
            "a record above `max.message.bytes`",
            "shop.orders: stream 0x..., 1700000000000000 us, batch_seq_no 0: a record "
            "of 1200034 bytes for topic shop.orders is over the limit of 1048588 bytes. Raise the topic's "
            "max.message.bytes, ..., or set publishing.dead_letter_topic",
            "stops the table: 1",
            "test_records_over_the_limit_become_dead_letters",
        ),
        entry(
            "the same with `publishing.dead_letter_topic`",
            "shop.orders: changes became dead letters in topic ...; the first: ...",
            "goes on",
            "test_records_over_the_limit_become_dead_letters",
        ),
        entry(
            "the limit of a topic was lowered, and the bridge has no right to read it",
            "Kafka at a:9092 refused a batch of records for topic shop.orders (MSG_SIZE_TOO_LARGE; ...",
            "stops the table: 1",
            "test_limit_that_nobody_told_us_stops_with_what_to_do",
        ),
        entry(
            "a token that is about to expire",
            "... Kafka at a:9092 refused a second login within a second of the first, which it does if a token is "
            "about to expire; the next connection succeeds (...)",
            "goes on",
            "test_repeated_login_is_retried",
        ),
        entry(
            "a Kafka quota",
            "orders.shop.orders.0: Kafka's broker 1 throttles it for 3.4 s because of a quota; nothing is lost, it "
            "takes longer",
            "goes on",
            "test_quota_makes_the_job_wait_and_is_told",
        ),
        entry(
            "a cell that cannot be encoded",
            "shop.orders: stream 0x..., 1700000000000000 us, batch_seq_no 0: column 'note' of type text: ...",
            "stops the table: 1",
            "test_without_a_dead_letter_topic_the_table_stops",
        ),
        entry(
            "the same with `publishing.dead_letter_topic`",
            "shop.orders: changes became dead letters in topic ...; the first: ...",
            "goes on",
            "test_dead_letter",
        ),
        entry(
            "a right is revoked",
            "...; the bridge's user needs the right Write on ... topic shop.orders, or: ScyllaDB at a:9042 does not "
            "allow ...: User cdc_reader has no SELECT permission on <table ...> ...",
            "stops the table: 1",
        ),
        entry(
            "the change topic is deleted",
            "shop.orders: the change topic shop.orders did not exist, although the progress topic ... shows that the "
            "table was published before. The bridge has created it and goes on publishing: what a deleted topic held "
            "is not published again. To publish all that the log still holds, stop the job, delete the change topic, "
            "the progress topic ... and the checkpoint ..., and start it again",
            "goes on",
            "test_topic_that_was_missing_is_logged",
        ),
        entry(
            "the change topic is deleted and created again by another user or a broker",
            "shop.orders: the change topic shop.orders is not the one of 2026-01-01T12:00:00.000000Z (its id was ..., "
            "and is ...). Unless this is another Kafka cluster, the topic was deleted and created again with 1 of 12 "
            "partitions (kafka.partitions). The table goes on publishing to it: what the deleted topic held is not "
            "published again. To publish all ...",
            "goes on",
            "test_topic_that_is_replaced_under_a_running_table_is_logged_once",
        ),
        entry(
            "the change topic of a table without writes is deleted, and not created again",
            "shop.orders: the change topic shop.orders is missing: it was deleted, or the job has lost the right "
            "Describe on it. The table's next change, or its next start, creates a deleted topic again; what it held "
            "is not published again. To publish all ...",
            "goes on",
            "test_topic_that_is_missing_is_logged_once",
        ),
        entry(
            "a second job of the same name",
            "shop.orders lane 0 of 2, ...: another job of the same name (...) has taken it over from this one (...). "
            "Stop one of the two; the other one goes on by itself",
            "goes on",
            "test_three_short_runs",
        ),
    ],
    "Topics at a start": [
        entry(
            "a progress topic that is not compacted",
            "progress topic orders.progress.shop.orders: its cleanup.policy is delete, so Kafka deletes the cursors of "
            "a table that does not advance for longer than the retention; set it to compact",
            "goes on",
            "test_topics_that_lose_records",
        ),
        entry(
            "a change topic that is compacted",
            "change topic shop.orders: its cleanup.policy is compact, so Kafka keeps only the "
            "last change of each key, ...",
            "goes on",
            "test_topics_that_lose_records",
        ),
        entry(
            "a foreign record in the progress topic",
            "a progress record is not JSON: ...; or is not of version 2; or contradicts itself: ...",
            "stops the table: 1",
            "test_foreign_progress_is_reported",
        ),
        entry(
            "the progress topic was deleted",
            "shop.orders: the progress topic ... holds no cursor, but the checkpoint ... shows "
            "that changes were published. Was the topic deleted? If so, stop the job, delete the checkpoint, too, and "
            "delete the change topic, or set reading.accept_data_loss for the next start if ...",
            "stops the table: 1",
            "test_progress_that_is_gone_stops_the_table",
        ),
        entry(
            "the progress topic and the checkpoint were deleted, or `name` was changed",
            "shop.orders: the progress topic ... holds no cursor and the checkpoint ... no micro-batch, but the change "
            "topic ... has records, and the schema registry has the schema of the table's keys for it: ...",
            "stops the table: 1",
            "test_progress_and_checkpoint_that_are_gone_stop_the_table",
        ),
        entry(
            "`consume` of a topic that does not exist",
            "topic shop.orders does not exist at ...; has the job run yet?",
            "2",
            "test_refused",
        ),
        entry(
            "`start` in the future",
            "table shop.orders: its start, 2999-01-01T00:00:00+00:00, is in the future; without progress the table "
            "is refused",
            "goes on",
            "test_start_in_the_future",
        ),
    ],
    "Streams and places": [
        entry("output to `head`", "(nothing)", "0", "test_closed_pipe"),
        entry(
            "output to a full disk",
            "standard output can't be written: No space left on device",
            "1",
            "test_full_disk_behind_standard_output",
        ),
        entry("standard output or error closed", "(nothing)", "as otherwise", "test_no_streams"),
        entry("standard input closed, no terminal, or `TERM=dumb`", "(as otherwise)", "as otherwise"),
        entry(
            "`LC_ALL=C` without UTF-8, and names that are not ASCII",
            "b.yaml:5: tables[0].name: 'shop.Auf\"tr\\xe4ge' is not keyspace.table (...)",
            "2",
            "test_terminal_without_letters",
        ),
        entry(
            "a deleted working folder",
            "x.yaml: can't be read: No such file or directory",
            "2",
            "test_folder_that_is_gone",
        ),
        entry(
            "a file of 3 MB in one line",
            "big.yaml:1: must be a mapping with sections such as scylla, kafka and tables, not a single value",
            "2",
        ),
    ],
    "Signals": [
        entry("Ctrl-C while a command waits for a server", "(nothing)", "130", "test_interrupted_while_waiting"),
        entry(
            "Ctrl-C or SIGTERM while `run` starts",
            "(nothing)",
            "130, or 143",
            "test_signals_end_a_job_that_still_imports_in_silence",
        ),
        entry(
            "Ctrl-C or SIGTERM while the job waits for its servers",
            "SIGTERM: stopped before anything was started",
            "0",
            "test_start_that_waits_for_its_servers_can_be_stopped",
        ),
    ],
    "Ports and folders of the job": [
        entry(
            "`monitoring.listen` is taken",
            "monitoring.listen 127.0.0.1:9404: Address already in use; choose another address, or leave it out",
            test="test_address_that_is_taken",
        ),
        entry(
            "`spark.checkpoint` in a file system that Spark does not support",
            "shop.orders stops: checkpoint s4://... can't be read; see spark.checkpoint (...: No FileSystem for scheme "
            '"s4")',
            "stops the table: 1",
            "test_folder_that_can_not_be_used_is_named",
        ),
        entry(
            "`spark.checkpoint` is not readable at a table's start",
            "shop.orders: checkpoint /... can't be read; see spark.checkpoint (...) (failure 1; starting again in 1 s)",
            "goes on",
            "test_folder_that_can_not_be_used_is_named",
        ),
        entry(
            "a checkpoint with missing, torn or foreign files, after two failures",
            "shop.orders: Spark cannot use the checkpoint .... The job recreates it and goes on from the progress "
            "topic",
            "goes on",
            "test_damaged_checkpoint_is_no_obstacle",
        ),
        entry(
            "`spark.checkpoint` on a disk that becomes full or read-only while the job runs",
            "shop.orders: StreamingQueryException: ... No space left on device, or Read-only file system ... (failure "
            "1; starting again in 1 s)",
            "goes on",
        ),
        entry(
            "no writable folder for temporary files",
            "no temporary files can be made (...); set TMPDIR to a folder for them",
            test="test_no_temporary_files",
        ),
    ],
    "Java": [
        entry(
            "no Java",
            "Spark's JVM does not start. No Java found: install a Java 17 runtime, and put it on the PATH or set "
            "JAVA_HOME.",
            test="test_missing_java_is_told",
        ),
        entry(
            "`JAVA_HOME` without a Java",
            "Spark's JVM does not start. JAVA_HOME is /nowhere, but there is no bin/java in it. "
            "Correct it, or unset it to use the PATH.",
            test="test_missing_java_is_told",
        ),
        entry(
            "JDK 8",
            "Spark's JVM does not start. /usr/lib/jvm/8/bin/java is Java 8, but 17 or newer is needed. Set JAVA_HOME "
            "to a newer one.",
            test="test_missing_java_is_told",
        ),
        entry(
            "a `java` that is not executable",
            "Spark's JVM can't be started: /jre/bin/java: Permission denied; see JAVA_HOME",
            test="test_file_that_is_no_program",
        ),
        entry(
            "a `java` that prints nothing",
            "Spark's JVM (process 4711) has not come up in ... s: give it more CPU, and see its own messages above",
            test="test_jvm_that_does_not_come_up",
        ),
        entry(
            "Spark's JVM ends while the job runs",
            "Spark's JVM has ended (...); what was committed stays, start the job again",
            "1",
            "test_jvm_that_ends_fails_the_job_unless_it_was_to_stop",
        ),
    ],
}
