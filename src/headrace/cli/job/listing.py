"""`flux job list`, `list-ids`, `list-inactive` and `stats`: the answers of job-list as JSON."""

from __future__ import annotations

import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, Options
from headrace.cli.job.main import parse_id
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query.listing import STATE_NAMES, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_SINCE = ("S", "since", "T", "Only jobs that ended after T, in seconds since 1970")
_COUNT = ("c", "count", "N", "Print N jobs at most (default: all)")
_LIST = Command(
    "flux-job list",
    "[OPTIONS]",
    "Print jobs, one JSON object each",
    (
        ("a", "all", "", "Include jobs that have ended"),
        ("A", "all-users", "", "Print jobs of all users, not only yours"),
        _COUNT,
        ("s", "states", "STATES", "Only jobs in these states"),
        _SINCE,
        ("u", "user", "USER", "Only jobs of this user"),
    ),
)
_LIST_IDS = Command(
    "flux-job list-ids",
    "[OPTIONS] ID [ID ...]",
    "Print these jobs, a JSON object each",
    (("W", "wait-state", "STATE", "Wait until the jobs are in this state"),),
)
_LIST_INACTIVE = Command(
    "flux-job list-inactive", "[OPTIONS]", "Print jobs that have ended, a JSON object each", (_COUNT, _SINCE)
)
_STATS = Command("flux-job stats", "[OPTIONS]", "Print how many jobs are in each state, as JSON")


def _print_jobs(query: Query) -> int:
    request = query.request(["all"])
    if not query.since:
        del request["since"]
    for answer in Handle().stream("job-list.list", request):
        sys.stdout.write("".join(json.dumps(job, ensure_ascii=False) + "\n" for job in answer["jobs"]))
    return 0


def _query(options: Options) -> Query:
    """A query with the options that `list` and `list-inactive` share. Raises CommandError."""
    _for_programs()
    query = Query(count=options.get_int("count", 0))
    try:
        query.since = float(options.get("since", "0"))
    except ValueError:
        query.since = -1.0
    if query.since < 0 or query.count < 0:
        raise CommandError("Invalid argument: --count and --since are numbers from 0")
    return query


def _for_programs() -> None:
    """Raise CommandError at a terminal: the listings are JSON for programs, users want `flux jobs`."""
    if sys.stdout.isatty():
        raise CommandError("This is not the command you are looking for. Try flux-jobs(1).")


def list(argv: List[str]) -> int:
    options = _LIST.parse(argv)
    options.need(0, 0)
    query = _query(options)
    if not options.has("all-users"):
        query.user(options.get("user", str(own_userid())))
    if options.has("states"):
        for name in options.get("states").lower().split(","):
            if name not in STATE_NAMES:
                raise CommandError(f"error parsing states: {name} unknown")
            query.states |= STATE_NAMES[name]
    else:
        query.filter("active,inactive" if options.has("all") else "active")
    return _print_jobs(query)


def list_inactive(argv: List[str]) -> int:
    options = _LIST_INACTIVE.parse(argv)
    options.need(0, 0)
    query = _query(options)
    query.filter("inactive")
    return _print_jobs(query)


def list_ids(argv: List[str]) -> int:
    _for_programs()
    handle = Handle()
    options = _LIST_IDS.parse(argv)
    request: Dict[str, Any] = {"attrs": ["all"]}
    if options.has("wait-state"):
        state = options.get("wait-state").lower()
        if state not in STATE_NAMES:
            raise CommandError(f"invalid job state: {state}")
        request["state"] = STATE_NAMES[state]
    calls = [handle.rpc("job-list.list-id", {"id": parse_id(text), **request}) for text in options.need(1)]
    for call in calls:
        print(json.dumps(call.get()["job"], ensure_ascii=False))
    return 0


def stats(argv: List[str]) -> int:
    _STATS.parse(argv).need(0, 0)
    print(json.dumps(Handle().rpc("job-list.job-stats").get(), separators=(",", ":"), ensure_ascii=False))
    return 0
