"""Answers of the probes: whether the job is alive, and whether each table keeps up. Pure."""

from __future__ import annotations

from typing import Final

from bridge.monitoring.snapshot import JobSnapshot, TableSnapshot
from bridge.planning.data_loss import ahead_of_servers_us

_MARGIN_S: Final = 1.0
"""Allowance for the pause between two micro-batches, and for clocks that differ."""


def why_dead(job: JobSnapshot) -> str | None:
    """Return why the job is dead, or None.

    The supervisor of a live job checks its queries regularly, which it cannot do while Spark does not answer.
    """
    pause_s = job.now_s - job.tick_s
    if pause_s <= job.dead_after_s:
        return None
    return f"the supervisor has not checked the queries for {pause_s:.0f} s"


def why_not_ready(job: JobSnapshot, table: TableSnapshot) -> str | None:
    """Return why a table is not ready, or None if its cursors advance or there is nothing to read."""
    if table.state == "stopped":
        return f"stopped: {table.reason}"
    if table.state in ("waiting", "finished"):
        return None
    lag_s = table.lag_s(job.servers_s)
    if lag_s is None:
        return _with_state(table, "its lanes are not assigned yet")
    problem = _clock_problem(job, table)
    if problem is not None:
        return problem
    if table.advanced_s is None:
        return _with_state(table, "its cursors have not advanced since the start")
    standing_s = job.now_s - table.advanced_s
    # The limit of requests can make micro-batches of a table with very many streams that rare.
    patience_s = job.stalled_after_s + (job.batch_interval_s(table) or 0.0)
    if standing_s <= patience_s or lag_s <= job.confidence_s + job.leeway_s + _MARGIN_S:
        return None
    return _with_state(table, f"its cursors have not advanced for {standing_s:.0f} s and are {lag_s:.0f} s behind")


def _clock_problem(job: JobSnapshot, table: TableSnapshot) -> str | None:
    if job.topology.clock_ahead_s is None:
        return None
    cursors = [lane.cursor for lane in table.assigned_lanes if lane.cursor is not None]
    ahead_s = max((ahead_of_servers_us(cursor, job.servers_s * 1e6) / 1e6 for cursor in cursors), default=0.0)
    if ahead_s > _MARGIN_S:
        return (
            f"its cursor is {ahead_s:.1f} s ahead of the ScyllaDB servers' time, because a clock was ahead: changes "
            "that are written until then with earlier times will not be published"
        )
    behind_s = -job.topology.clock_ahead_s
    if behind_s > job.stalled_after_s:
        return f"this machine's clock is {behind_s:.0f} s behind the ScyllaDB servers', which delays all changes"
    return None


def _with_state(table: TableSnapshot, problem: str) -> str:
    return f"{problem} ({table.state}{f': {table.reason}' if table.reason else ''})"


def is_stalled(job: JobSnapshot, table: TableSnapshot) -> bool:
    """Return whether a running table does not advance although there are changes to read."""
    if table.state != "running" or why_not_ready(job, table) is None:
        return False
    # Right after a start, the table has not had time to advance.
    standing_s = job.now_s - max(table.since_s, table.advanced_s or 0.0)
    return standing_s > job.stalled_after_s + (job.batch_interval_s(table) or 0.0)


def live_answer(job: JobSnapshot) -> tuple[bool, str]:
    """Return whether the job is alive, and the probe's text."""
    problem = why_dead(job)
    return problem is None, f"{job.name}: {problem or 'alive'}\n"


def ready_answer(job: JobSnapshot) -> tuple[bool, str]:
    """Return whether every table is ready, and the probe's text with a line for each table."""
    problems = {table.name: why_not_ready(job, table) for table in job.tables}
    lines = [
        f"{name}: {'ready' if problem is None else f'not ready: {problem}'}\n" for name, problem in problems.items()
    ]
    return not any(problems.values()), "".join(lines)
