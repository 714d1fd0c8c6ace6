"""The observed metric by which the lanes' reports reach the job.

Spark adds an observed metric to its report about each micro-batch. So the lanes' reports arrive with the end of the
micro-batch, from executors on any machine, and the job needs no server for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import collect_list

from spark.source.rows import REPORT

_METRIC: Final = "lanes"
_REPORTS: Final = "reports"


def observe_reports(lanes: DataFrame) -> DataFrame:
    """Return the lanes' rows, with their reports as the observed metric."""
    return lanes.observe(_METRIC, collect_list(REPORT).alias(_REPORTS))


def observed_reports(progress: Mapping[str, Any]) -> Sequence[str]:
    """Return the lanes' reports, as JSON texts, from Spark's report about a micro-batch; empty when it has none."""
    reports: Sequence[str] = progress.get("observedMetrics", {}).get(_METRIC, {}).get(_REPORTS, ())
    return reports
