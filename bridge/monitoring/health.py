"""What the probes answer: whether the job is alive, and whether each table keeps up. Pure."""

from __future__ import annotations

from typing import Final

from bridge.monitoring.snapshot import JobView, TableView
from bridge.planning.data_loss import ahead_us

_MARGIN_S: Final = 1.0
"""What the pause between two micro-batches may add to the youngest age that is read, and clocks may differ by."""


def why_dead(job: JobView) -> str | None:
    """None while the job lives: its supervisor looks at the queries, which it can't while Spark does not answer."""
    silent_s = job.now_s - job.tick_s
    if silent_s <= job.dead_after_s:
        return None
    return f"the supervisor has not looked at the queries for {silent_s:.0f} s"


def why_not_ready(job: JobView, table: TableView) -> str | None:
    """None while a table's cursors advance, or there is nothing to read."""
    if table.state == "stopped":
        return f"stopped: {table.reason}"
    if table.state in ("waiting", "finished"):
        return None
    lag_s = table.lag_s(job.servers_s)
    if lag_s is None:
        return _with_reason(table, "its lanes are not opened yet")
    problem = _clock_problem(job, table)
    if problem is not None:
        return problem
    if table.advanced_s is None:
        return _with_reason(table, "its cursors have not advanced since the start")
    stood_s = job.now_s - table.advanced_s
    # With very many streams it is looked at that seldom.
    patience_s = job.stalled_after_s + (job.look_every_s(table) or 0.0)
    if stood_s <= patience_s or lag_s <= job.confidence_s + job.leeway_s + _MARGIN_S:
        return None
    return _with_reason(table, f"its cursors have stood for {stood_s:.0f} s, {lag_s:.0f} s behind")


def _clock_problem(job: JobView, table: TableView) -> str | None:
    if job.topology.clock_ahead_s is None:
        return None
    ahead_s = max(
        (ahead_us(one.cursor, job.servers_s * 1e6) / 1e6 for one in table.active if one.cursor is not None), default=0.0
    )
    if ahead_s > _MARGIN_S:
        return (
            f"its cursor lies {ahead_s:.1f} s ahead of the ScyllaDB servers' time: what is written until then with "
            "earlier times will not be published. A clock was ahead"
        )
    behind_s = -job.topology.clock_ahead_s
    if behind_s > job.stalled_after_s:
        return f"this machine's clock is {behind_s:.0f} s behind the ScyllaDB servers', and so are its changes"
    return None


def _with_reason(table: TableView, words: str) -> str:
    return f"{words} ({table.state}{f': {table.reason}' if table.reason else ''})"


def stalled(job: JobView, table: TableView) -> bool:
    """Whether a running table stands still although there is something to read."""
    if table.state != "running" or why_not_ready(job, table) is None:
        return False
    # Right after a start there has been no time to advance.
    stood_s = job.now_s - max(table.since_s, table.advanced_s or 0.0)
    return stood_s > job.stalled_after_s + (job.look_every_s(table) or 0.0)


def live_answer(job: JobView) -> tuple[bool, str]:
    """Whether the job lives, and the text that says so."""
    problem = why_dead(job)
    return problem is None, f"{job.name}: {problem or 'alive'}\n"


def ready_answer(job: JobView) -> tuple[bool, str]:
    """Whether every table is ready, and a line for each of them."""
    problems = {table.name: why_not_ready(job, table) for table in job.tables}
    lines = [
        f"{name}: {'ready' if problem is None else f'not ready: {problem}'}\n" for name, problem in problems.items()
    ]
    return not any(problems.values()), "".join(lines)
