"""The list of jobs: filters and order are in the address, and a page has 50 rows.

Equal jobs of one submission are folded into one row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from headrace.service import jobs, service
from headrace.service.fields import Field, checked_text, choice, of_query, optional, whole_number
from headrace.service.pages import view
from headrace.service.pages.html import changes, page
from headrace.wire.query import QueryError
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query

PER_PAGE = 50
# How many jobs are read for a page that is sorted or filtered by a part of a name.
MOST_READ = 5000
# The choices of the filter by state: the names of `flux jobs --filter`, and their labels.
STATES = {
    **{"pending": "waiting (pending)", "running": "running", "inactive": "ended (inactive)", "completed": "completed"},
    **{"failed": "failed", "canceled": "canceled", "timeout": "timeout"},
}
_FILTERS = ("state", "user", "name", "queue")


class Column(NamedTuple):
    """A column of the list. `sort` is its name in addresses, "" if the list cannot be sorted by it."""

    label: str
    sort: str = ""
    is_number: bool = False


COLUMNS = (
    *(Column("Job"), Column("Status", "status"), Column("Name", "name"), Column("User", "user")),
    *(Column("Queue", "queue"), Column("Tasks", "tasks", True), Column("Nodes", "nodes", True)),
    *(Column("Submitted", "submitted"), Column("Run time", "time", True), Column("Where, or why"), Column("Choose")),
)
_ORDERS: Mapping[str, Callable[[dict[str, Any], view.Row], Any]] = {
    "status": lambda raw, row: (row.status, row.state),
    "name": lambda raw, row: row.name.lower(),
    "user": lambda raw, row: row.user,
    "queue": lambda raw, row: row.queue,
    "tasks": lambda raw, row: raw.get("ntasks") or 0,
    "nodes": lambda raw, row: raw.get("nnodes") or 0,
    "submitted": lambda raw, row: raw["t_submit"],
    "time": lambda raw, row: JobInfo(raw).get("runtime"),
}
SORTS = (*_ORDERS, *(f"-{name}" for name in _ORDERS))
_FIELDS = (
    Field("state", optional(choice(tuple(STATES)))),
    *(Field(name, checked_text) for name in ("user", "name", "queue")),
    Field("sort", optional(choice(SORTS))),
    # The id of a job whose folded row is open.
    Field("open", checked_text),
    Field("page", whole_number(1, 99_999)),
    # How many jobs were cancelled by the form that redirected here.
    Field("cancelled", whole_number(0, MOST_READ)),
)

# The fewest equal jobs of a submission that are folded into one row, and the most jobs that an opened row shows.
FEWEST_FOLDED, MOST_OPENED = 3, 200
# Jobs count as one submission if they were submitted within so many seconds and have the same values of _EQUAL.
_TOGETHER = 60.0
_EQUAL = ("name", "userid", "queue", "ntasks", "nnodes", "duration", "urgency", "state", "result")

router = APIRouter()


@router.get("/jobs")
async def list_jobs(request: Request) -> Response:
    asked = of_query(request, _FIELDS)
    chosen = {name: asked.get(name, "").strip() for name in _FILTERS}
    sort, open_id, number = asked.get("sort", ""), asked.get("open", ""), asked.get("page", 1)
    problem = ""
    entries: list[Entry] = []
    try:
        entries = await _entries(request, chosen, sort, number * PER_PAGE)
    except QueryError as exc:
        problem = str(exc)
    given = {name: value for name, value in (*chosen.items(), ("sort", sort), ("open", open_id)) if value}
    rest = {name: value for name, value in given.items() if name != "open"}

    def sorted_by(column: Column) -> str:
        return urlencode({**given, "sort": f"-{column.sort}" if sort == column.sort else column.sort})

    return page(
        request,
        "jobs.html",
        400 if problem else 200,
        problem=problem,
        chosen=chosen,
        sort=sort,
        said=_said(asked.get("cancelled")),
        here=urlencode({**given, "page": number}),
        closed=urlencode({**rest, "page": number}),
        states=STATES,
        columns=COLUMNS,
        sorted_by=sorted_by,
        entries=opened(entries[(number - 1) * PER_PAGE : number * PER_PAGE], open_id),
        # A list for which many jobs are read is reloaded less often.
        seconds=15 if chosen["name"] or sort else 3,
        newer=urlencode({**rest, "page": number - 1}) if number > 1 else "",
        older=urlencode({**rest, "page": number + 1}) if len(entries) > number * PER_PAGE else "",
        most_shown=MOST_OPENED,
    )


async def _entries(request: Request, chosen: dict[str, str], sort: str, most: int) -> list[Entry]:
    """More than `most` rows of the list, or all rows if there are fewer. Raises QueryError."""
    query = Query(count=MOST_READ if chosen["name"] or sort else most + 1)
    _restrict(query, chosen)
    while True:
        now = time.time()
        raws = await jobs.listing(service.of(request).link, query, view.ATTRIBUTES)
        sought = chosen["name"].lower()
        found = [(raw, view.row(raw, now)) for raw in raws if sought in str(raw.get("name", "")).lower()]
        if sort:
            order = _ORDERS[sort.removeprefix("-")]
            found.sort(key=lambda one: order(*one), reverse=sort.startswith("-"))
        entries = fold(found)
        if len(entries) > most or len(raws) < query.count or query.count >= max(MOST_READ, most + 1):
            return entries
        # Folding has left too few rows, so more jobs are read.
        query.count = max(min(4 * query.count, MOST_READ), most + 1)


@router.post("/jobs/cancel")
async def cancel(request: Request) -> Response:
    """Ask whether to cancel the chosen jobs. With the field `confirmed`, cancel them and return to the list.

    The filters of the list are in the address.
    """
    asked = of_query(request, _FIELDS)
    form = await request.form()
    confirmed = "confirmed" in await changes(request)
    ids = [id for text in form.getlist("job") for id in str(text).split(",")][:MOST_READ]
    here = {name: value for name, value in asked.items() if value and name != "cancelled"}
    if ids and not confirmed:
        return page(request, "cancel.html", ids=ids, here=urlencode(here), shown=ids[:PER_PAGE])
    done = 0
    for text in ids:
        try:
            await jobs.cancel(service.of(request).link, jobs.read_id(text))
        except (jobs.JobHasEnded, jobs.NoSuchJob, PermissionError):
            # PermissionError: another user's job is treated like a job that does not exist.
            continue
        done += 1
    return RedirectResponse(f"/jobs?{urlencode({**here, 'cancelled': done})}", 303)


def _said(cancelled: int | None) -> str:
    """A sentence with the number of cancelled jobs, "" for None."""
    if cancelled is None:
        return ""
    return f"Cancellation requested for {cancelled} job{'' if cancelled == 1 else 's'}."


def _restrict(query: Query, chosen: dict[str, str]) -> None:
    if chosen["state"]:
        query.filter(chosen["state"])
    if chosen["user"]:
        query.user(chosen["user"])
    if chosen["queue"]:
        query.add("queue", [chosen["queue"]])


class Entry(NamedTuple):
    """A row of the list: one job, or several equal jobs, of which the first is shown."""

    rows: list[view.Row]
    is_open: bool = False

    @property
    def ids(self) -> list[str]:
        return [row.plain_id for row in self.rows]


def fold(listed: Iterable[tuple[dict[str, Any], view.Row]]) -> list[Entry]:
    """Fold jobs into entries, in the order of each entry's first job.

    Each item of `listed` is a job: the response of job-list, and the job's row.
    """
    groups: list[list[view.Row]] = []
    # The newest group for each combination of values of _EQUAL: the submission time of its first job, and its rows.
    known: dict[tuple[Any, ...], tuple[float, list[view.Row]]] = {}
    for raw, row in listed:
        key = tuple(raw.get(name) for name in _EQUAL)
        begin, group = known.get(key, (raw["t_submit"], None))
        if group is None or abs(raw["t_submit"] - begin) > _TOGETHER:
            group = []
            known[key] = (raw["t_submit"], group)
            groups.append(group)
        group.append(row)
    return [
        entry
        for group in groups
        for entry in ([Entry(group)] if len(group) >= FEWEST_FOLDED else [Entry([row]) for row in group])
    ]


def opened(entries: Iterable[Entry], id: str) -> list[Entry]:
    """The entries. If the job `id` (Row.plain_id) is in a folded entry, the entry's jobs follow it."""
    found = []
    for entry in entries:
        if len(entry.rows) > 1 and id in entry.ids:
            found += [entry._replace(is_open=True), *(Entry([row]) for row in entry.rows[:MOST_OPENED])]
        else:
            found.append(entry)
    return found
