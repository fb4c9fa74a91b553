"""Methods that show usage: a bar chart of the present usage, and usage of jobs by bank, user, size and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from headrace.engine.accounting.records import point_in_time, select_records
from headrace.engine.accounting.requests import Payload, optional, text
from headrace.storage.database import Database

# Characters in a line of the chart.
_LINE = 80

_CHARTS = {
    "associations": "SELECT username || ' / ' || bank, job_usage FROM association_table ORDER BY job_usage DESC",
    "banks": "SELECT bank, job_usage FROM bank_table WHERE parent_bank <> '' ORDER BY job_usage DESC",
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
_BINS = (0, 2, 8, 32, 128, 512, 2048, 8192)
_UNITS = {"hour": 3600, "min": 60, "sec": 1}


def view_usage_report(database: Database, payload: Payload) -> str:
    """Add up the node-seconds of jobs that ended in a time, by default yesterday."""
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    start, end = (payload.get(key) for key in ("start", "end"))
    first = point_in_time(start) if start else (today - _DAY).timestamp()
    last = point_in_time(end) if end else today.timestamp()
    kind = optional(payload, "report_type") or "byassociation"
    unit = optional(payload, "time_unit") or "sec"
    if kind not in ("bybank", "byuser", "byassociation") or unit not in _UNITS:
        raise ValueError(f"report_type {kind!r} or time_unit {unit!r} is unknown")
    sizes = _sizes(optional(payload, "job_size_bins"))
    usage: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    chosen = {"user": payload.get("username"), "bank": payload.get("bank"), "before_end_time": last}
    for record in select_records(database, chosen):
        if not record["bank"] or record["t_inactive"] < first:
            continue
        key = {"bybank": record["bank"], "byuser": record["username"]}.get(
            kind
        ) or f"{record['bank']}:{record['username']}"
        used = record["nnodes"] * (record["t_inactive"] - record["t_run"])
        size = max((size for size in sizes if size <= record["nnodes"]), default=None)
        usage[key][-1] += used
        if size is not None:
            usage[key][size] += used
            usage["TOTAL"][size] += used
    total = usage.pop("TOTAL", {})
    ordered = sorted(usage.items(), key=lambda item: item[1][-1], reverse=True)
    lines = [_line(key, found, sizes, _UNITS[unit]) for key, found in [*ordered, ("TOTAL", total)]]
    return "\n".join([_head(f"{kind[2:]}(node{unit})", sizes), *lines, ""])


def _sizes(given: str) -> Sequence[int]:
    """The smallest numbers of nodes of the columns. Raises ValueError."""
    if not given:
        return (0,)
    if not given[0].isdigit():
        return _BINS
    try:
        return sorted({int(each) for each in given.split(",")})
    except ValueError:
        raise ValueError(f"job_size_bins: {given!r} is not a list of numbers of nodes") from None


def _head(title: str, sizes: Sequence[int]) -> str:
    if len(sizes) < 2:
        return f"{title:<26}        total"
    return f"{title:<24}" + "".join(f" {size:>13}+" for size in sizes)


def _line(key: str, usage: Mapping[int, float], sizes: Sequence[int], divisor: int) -> str:
    return f"{key:<24}" + "".join(f" {usage.get(size, 0.0) / divisor:>14.2f}" for size in sizes)
