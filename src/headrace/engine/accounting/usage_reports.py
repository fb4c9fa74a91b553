"""Methods that show usage: a bar chart of the present usage, and usage of jobs by bank, user, size and time."""

from __future__ import annotations

from datetime import datetime, timedelta

from headrace.engine.accounting.records import ended_jobs, point_in_time
from headrace.engine.accounting.requests import Payload, optional, text
from headrace.sched.accounting import report
from headrace.storage.database import Database

# Characters in a line of the chart.
_LINE = 80

_CHARTS = {
    "associations": "SELECT username || ' / ' || bank, job_usage FROM association_table ORDER BY job_usage DESC, rowid",
    "banks": "SELECT bank, job_usage FROM bank_table WHERE parent_bank <> '' ORDER BY job_usage DESC, rowid",
}


def show_usage(database: Database, payload: Payload) -> str:
    table, limit = text(payload, "table"), payload.get("limit")
    if table not in _CHARTS:
        raise ValueError(f"table: {table!r} is not one of {', '.join(_CHARTS)}")
    limit = 10 if limit is None else limit
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ValueError(f"limit: {limit!r} is not a number of rows")
    found = database.rows(f"{_CHARTS[table]} LIMIT :limit", {"limit": limit})
    if not found:
        return "no data to display"
    label = max(len(name) for name, _ in found)
    width = max(_LINE - label - 10 - max(len(f"{usage:.2f}") for _, usage in found), 10)
    largest = max(usage for _, usage in found)
    return "\n".join(
        f"{name:<{label}} | {'█' * (int(usage * width / largest) if largest else 0):<{width}} {usage: .2f}"
        for name, usage in found
    )


_DAY = timedelta(days=1)


def view_usage_report(database: Database, payload: Payload) -> str:
    """Add up the node-seconds of jobs that ended in a time, by default yesterday."""
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    start, end = (payload.get(key) for key in ("start", "end"))
    first = point_in_time(start) if start else (today - _DAY).timestamp()
    last = point_in_time(end) if end else today.timestamp()
    kind = optional(payload, "report_type") or "byassociation"
    bins = report.size_bins(optional(payload, "job_size_bins"))
    chosen = {"user": payload.get("username"), "bank": payload.get("bank"), "before_end_time": last}
    jobs = [job for job in ended_jobs(database, chosen) if job.bank]
    lines = report.node_seconds(jobs, first, last, kind, bins)
    return report.as_text(lines, kind, optional(payload, "time_unit") or "sec", bins)
