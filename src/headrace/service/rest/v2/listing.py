"""Pages of jobs: filters, order, and the cursor of the next page.

In the order of job-list (RFC 43: pending, running, ended) the broker reads only as many jobs as the page has. For any
other order all matching jobs are read and sorted here. A cursor has the place of a page's last job in the order, so new
and removed jobs do not shift the next page. A job whose state changes between two pages may be on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.formats.spec.job_state import INACTIVE, PENDING, RESULT_BITS, RUNNING
from headrace.service import jobs
from headrace.service.broker_link import BrokerLink
from headrace.service.fields import BadFields, Field, whole_number
from headrace.service.rest.v2 import fields, record
from headrace.service.rest.v2.fields import moment, text, words
from headrace.wire.query import QueryError
from headrace.wire.query.listing import STATE_NAMES, Query

MOST = 1000
_DEFAULT_LIMIT = 50
_SORTED = (
    *("id", "name", "userid", "queue", "bank", "project", "urgency", "priority", "ntasks", "ncores", "nnodes"),
    *("nodelist", "duration", "expiration", "t_submit", "t_depend", "t_sched", "t_run", "t_cleanup", "t_inactive"),
)
_STATES = (*STATE_NAMES, *RESULT_BITS)


def _states(value: str) -> list[str]:
    found = [word.lower() for word in words(value)]
    for word in found:
        if word not in _STATES:
            raise ValueError(f"must be of {', '.join(_STATES)}, not '{word}'")
    return found


def _sort(value: str) -> str:
    if value.removeprefix("-") not in _SORTED:
        raise ValueError(f"must be one of {', '.join(_SORTED)}, with - before it for the opposite order")
    return value


def _fields(value: str) -> list[str]:
    found = words(value)
    for word in found:
        if word not in record.FIELDS:
            raise ValueError(f"must be of {', '.join(record.FIELDS)}, not '{word}'")
    return list(dict.fromkeys(found))


class _Cursor(NamedTuple):
    """The end of a page: the order, and the last job's value in this order and its id.

    `before` is the number of jobs, up to the last one, that the broker will send again for the next page.
    """

    sort: str
    value: Any
    id: int
    before: int = 0


def _read_cursor(value: str) -> _Cursor:
    try:
        sort, place, id, before = fields.cursor(value)
        valid = type(sort) is str and type(id) is int and type(before) is int and 0 <= before < 1 << 53
        valid = valid and (place is None or type(place) in (str, int, float) or _is_place(place))
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(fields.WRONG_CURSOR)
    return _Cursor(sort, place, id, before)


def _is_place(value: Any) -> bool:
    """True if this is a place in the order of job-list, as `_place` returns it."""
    return (
        type(value) is list
        and len(value) == 2
        and all(type(one) in (int, float) and abs(one) < 1 << 53 for one in value)
    )


FIELDS = (
    Field("state", _states, {"type": "string"}, f"Of these states or results, with commas: {', '.join(_STATES)}"),
    Field("user", text, {"type": "string"}, "Of this user, by name or number (default, and all: of every user)"),
    Field("queue", words, {"type": "string"}, "In these queues, with commas"),
    Field("name", text, {"type": "string"}, "With this name"),
    Field("since", moment, {"type": "string"}, "Not ended before: seconds, a time of RFC 3339, or such as -2h"),
    Field("before", moment, {"type": "string"}, "Submitted before"),
    Field(
        "limit",
        whole_number(1, MOST),
        {"type": "integer", "minimum": 1, "maximum": MOST, "default": _DEFAULT_LIMIT},
        "The maximum number of jobs on a page",
    ),
    Field("cursor", _read_cursor, {"type": "string"}, "The next of an earlier response, for the page after it"),
    Field(
        "sort",
        _sort,
        {"type": "string"},
        f"The order, with - for descending (default: pending, running, last ended): {', '.join(_SORTED)}",
    ),
    Field("fields", _fields, {"type": "string"}, "The fields to return, with commas (default: not annotations, why)"),
)


async def page(link: BrokerLink, chosen: dict[str, Any], now: float) -> dict[str, Any]:
    """The page for the values of FIELDS: {jobs, next}. Raises BadFields."""
    names = ["id", *(name for name in chosen.get("fields", record.LISTED) if name != "id")]
    limit, sort, cursor = chosen.get("limit", _DEFAULT_LIMIT), chosen.get("sort", ""), chosen.get("cursor")
    if cursor is not None and cursor.sort != sort:
        raise BadFields([("cursor", "is for another order: use the same sort as in the earlier request")])
    query = _query(chosen)
    attrs = record.attributes(names)
    if sort:
        found = await _sorted(link, query, attrs, sort, cursor)
    else:
        found = await _listed(link, query, attrs, limit, cursor)
    shown, more = found[:limit], len(found) > limit
    last = _end(sort, shown, cursor) if more else None
    return {"jobs": [record.record(job, names, now) for job in shown], "next": last and fields.cursor_text(last)}


def _query(chosen: dict[str, Any]) -> Query:
    """The query of job-list for the filters of a request. Raises BadFields."""
    query = Query(count=0, since=chosen.get("since", 0.0))
    if "state" in chosen:
        query.filter(",".join(chosen["state"]))
    if "user" in chosen:
        try:
            query.user(chosen["user"])
        except QueryError as exc:
            raise BadFields([("user", f"is not known: {exc}")]) from None
    if "queue" in chosen:
        query.add("queue", chosen["queue"])
    if "name" in chosen:
        query.add("name", [chosen["name"]])
    if "before" in chosen:
        query.add("t_submit", [f"<{chosen['before']!r}"])
    return query


def _end(sort: str, shown: list[dict[str, Any]], cursor: _Cursor | None) -> _Cursor:
    last = shown[-1]
    if sort:
        return _Cursor(sort, last.get(sort.removeprefix("-")), last["id"])
    place = _place(last)
    group, bound = _group(last), _bound(place)
    # The broker sends these jobs again for the next page: ended jobs of the same moment, or all of an active group.
    before = sum(_group(job) == group and _bound(_place(job)) == bound for job in shown)
    if cursor is not None and _group_of(cursor.value) == group and _bound(cursor.value) == bound:
        before += cursor.before
    return _Cursor("", place, last["id"], before)


# -- the order of job-list: a place is [minus the index of the group, the job's value in the order of the group]

_GROUPS = (PENDING, RUNNING, INACTIVE)
_NEEDED = ("state", "priority", "t_run", "t_inactive")


def _group(job: dict[str, Any]) -> int:
    return next(number for number, states in enumerate(_GROUPS) if job["state"] & states)


def _place(job: dict[str, Any]) -> list[Any]:
    group = _group(job)
    value = (job.get("priority", -1), job.get("t_run") or 0.0, job.get("t_inactive") or 0.0)[group]
    return [-group, value]


def _group_of(place: list[Any]) -> int:
    return int(-place[0])


def _bound(place: list[Any]) -> float | None:
    """For a place among ended jobs, the latest `t_inactive` of the next page; else None."""
    return place[1] if _group_of(place) == 2 else None


async def _listed(
    link: BrokerLink, query: Query, attrs: list[str], limit: int, cursor: _Cursor | None
) -> list[dict[str, Any]]:
    """At least `limit` + 1 jobs after the cursor, if there are as many, in the order of job-list.

    Raises BadFields.
    """
    attrs = list(dict.fromkeys((*attrs, *_NEEDED)))
    query.count = limit + 1
    if cursor is None:
        return await jobs.listing(link, query, attrs)
    if not _is_place(cursor.value) or not 0 <= _group_of(cursor.value) < len(_GROUPS):
        raise BadFields([("cursor", fields.WRONG_CURSOR)])
    query.count += cursor.before
    query.add("states", [sum(_GROUPS[_group_of(cursor.value) :])])
    bound = _bound(cursor.value)
    if bound is not None:
        query.add("t_inactive", [f"<={float(bound)!r}"])
    found = await jobs.listing(link, query, attrs)
    for index, job in enumerate(found):
        if job["id"] == cursor.id and _place(job) == cursor.value:
            return found[index + 1 :]
    # The cursor's job was purged, or has changed its state.
    return [job for job in found if (_place(job), -job["id"]) < (cursor.value, -cursor.id)]


# -- any other order


async def _sorted(
    link: BrokerLink, query: Query, attrs: list[str], sort: str, cursor: _Cursor | None
) -> list[dict[str, Any]]:
    """All jobs after the cursor, by a field, then by id. Jobs without a value come last. Raises BadFields."""
    name, opposite = sort.removeprefix("-"), sort.startswith("-")
    found = await jobs.listing(link, query, list(dict.fromkeys((*attrs, *([] if name == "id" else [name])))))
    have = [job for job in found if job.get(name) is not None]
    lack = [job for job in found if job.get(name) is None]
    have.sort(key=lambda job: (job[name], job["id"]), reverse=opposite)
    lack.sort(key=lambda job: int(job["id"]), reverse=opposite)
    if cursor is None:
        return have + lack
    after: Callable[[Any, Any], bool] = (lambda a, b: a < b) if opposite else (lambda a, b: a > b)
    lack = [job for job in lack if cursor.value is not None or after(job["id"], cursor.id)]
    if cursor.value is None:
        return lack
    try:
        return [job for job in have if after((job[name], job["id"]), (cursor.value, cursor.id))] + lack
    except TypeError:
        raise BadFields([("cursor", fields.WRONG_CURSOR)]) from None
