"""The running job's port: metrics, probes and the status page, as a scraper, a kubelet and a browser see them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.integration.support.histories import LAST_MINUTE, history
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = pytest.mark.integration

CHANGES = 1_000
SCHEMA = TableSchema(
    "seen",
    "orders",
    (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("bigint"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    ),
)


@pytest.fixture
def written(session: WritingSession) -> int:
    """How many changes the log holds: of the last minute, over two generations."""
    return len(history(session, SCHEMA, seed=1, changes=CHANGES, keys=200, generations_s_ago=LAST_MINUTE))


class Port:
    """What answers at the job's port."""

    def __init__(self, job: BridgeJob) -> None:
        wait_for("the port", lambda: self._told(job) is not None, 30)
        self.url = f"http://{self._told(job)}"

    @staticmethod
    def _told(job: BridgeJob) -> str | None:
        assert job.process is not None
        assert job.process.poll() is None, job.log_tail()
        found = re.search(r"status page at http://([^/]+)/", job.log.read_text(encoding="utf-8"))
        return found and found[1]

    def get(self, path: str, accept: str = "*/*") -> tuple[int, str]:
        """Return status and body; status 0 if nothing listens."""
        try:
            with urlopen(Request(self.url + path, headers={"Accept": accept}), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def figures(self) -> dict[str, float]:
        """Each metric's samples, added up over their labels."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                name = sample.name.removeprefix("scylla_cdc_bridge_")
                found[name] = found.get(name, 0.0) + sample.value
        return found


def test_a_running_job_tells_what_it_does(local_stack: LocalStack, written: int, tmp_path: Path) -> None:
    """Figures move and add up, readiness comes, the page names the table, and SIGTERM still ends it cleanly."""
    settings = {
        "logging": {"format": "json"},
        "reading": {"integrity": "always"},
        "spark": {"lanes": 2},
    }
    with BridgeJob(local_stack, tmp_path, "seen", ["seen.orders"], settings) as job:
        job.start()
        port = Port(job)
        assert port.get("/healthz") == (200, "seen: alive\n")
        assert port.get("/readyz")[0] == 503, job.log_tail()
        wait_for("all changes counted", lambda: port.figures().get("changes_published_total", 0) >= written, 150)
        wait_for("the latest micro-batch counted", lambda: "window_seconds" in port.figures(), 10)
        assert port.get("/readyz") == (200, "seen.orders: ready\n")
        figures = port.figures()
        assert figures["changes_published_total"] == written
        assert figures["lanes"] == 2
        assert figures["generations"] == 2
        assert figures["table_ready"] == 1
        assert figures["log_ttl_seconds"] * 2 - figures["lag_seconds"] == pytest.approx(
            figures["ttl_left_seconds"], abs=1
        )
        for name in (
            "groups_published_total",
            "transactions_total",
            "published_bytes_total",
            "cql_request_duration_seconds_count",
            "log_rows_read_total",
            "registry_request_duration_seconds_count",
            "batch_duration_seconds_count",
            "cql_requests_in_flight",
            "stream_groups",
        ):
            assert figures[name] > 0, name
        assert figures["keys_checked_total"] == written
        assert figures["keys_misplaced_total"] == 0
        assert figures["query_failures_total"] == figures["transactions_aborted_total"] == 0
        openmetrics = port.get("/metrics", "application/openmetrics-text; version=1.0.0")[1]
        assert openmetrics.endswith("# EOF\n")
        page = port.get("/")[1]
        assert "The table keeps up" in page
        assert page.count("seen.orders") >= 3
        before = figures["transactions_total"]
        wait_for("an idle table's cursor moving", lambda: port.figures()["transactions_total"] > before, 10)
        assert job.stop() == 0, job.log_tail()
        assert port.get("/healthz")[0] == 0
        ours = [line for line in job.log.read_text().splitlines() if '"logger": "spark.' in line]
        assert ours, job.log_tail()
