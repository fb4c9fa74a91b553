"""Requests to job-list (RFC 43): filters by state, result and user, and any other constraint by `add`."""

from __future__ import annotations

import errno

from headrace.formats.spec.job_state import ACTIVE, INACTIVE, RESULT_BITS, STATE_BITS, STATE_MASKS
from headrace.formats.spec.message import USERID_UNKNOWN
from headrace.wire.query import QueryError
from headrace.wire.query.job_info import JobInfo, userid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    from headrace.wire.client.handle import Handle

STATE_NAMES = {**STATE_BITS, **STATE_MASKS}


def userid_or_all(text: str) -> int:
    """The id of a user given by name or number; USERID_UNKNOWN for "all".

    Raises QueryError for an unknown name.
    """
    if text == "all":
        return USERID_UNKNOWN
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return userid_of(text)
    except (KeyError, ValueError):
        # ValueError: the text cannot be a user name.
        raise QueryError(f"Invalid user {text} specified: there is no such user") from None


def bits_of(text: str) -> Tuple[int, int]:
    """The states and results, as bits, in a comma-separated list of names.

    Raises QueryError for any other name.
    """
    states = results = 0
    for name in text.lower().split(","):
        if name in STATE_NAMES:
            states |= STATE_NAMES[name]
        elif name in RESULT_BITS:
            results |= RESULT_BITS[name]
        else:
            raise QueryError(f"Invalid filter specified: {name}")
    return states, results


class Query:
    """A listing request.

    `clauses` are terms of a constraint (RFC 31, 43), `states` and `results` are bits (RFC 21), `count` is the largest
    number of jobs (0: all). Inactive jobs are listed if they ended after `since` (seconds since the epoch, 0: all).
    """

    __slots__ = ("clauses", "count", "results", "since", "states")

    def __init__(self, count: int = 1000, since: float = 0.0) -> None:
        self.clauses: List[Dict[str, Any]] = []
        self.states = 0
        self.results = 0
        self.count = count
        self.since = since

    def user(self, text: str) -> None:
        """Select a user's jobs, by name or number, or "all" users' jobs.

        Raises QueryError for an unknown name.
        """
        userid = userid_or_all(text)
        if userid != USERID_UNKNOWN:
            self.clauses.append({"userid": [userid]})

    def filter(self, text: str) -> None:
        """Add states and results named in a comma-separated list. Raises QueryError for anything else."""
        states, results = bits_of(text)
        self.states |= states
        self.results |= results

    def add(self, operator: str, values: List[Any]) -> None:
        self.clauses.append({operator: values})

    def constraint(self) -> Dict[str, Any]:
        """The query as an RFC 43 constraint."""
        clauses = list(self.clauses)
        if self.states and self.results:
            clauses.append({"or": [{"states": [self.states]}, {"results": [self.results]}]})
        elif self.states or not self.results:
            clauses.append({"states": [self.states or ACTIVE | INACTIVE]})
        else:
            clauses.append({"results": [self.results]})
        return {"and": clauses}

    def request(self, attrs: List[str]) -> Dict[str, Any]:
        return {"max_entries": self.count, "attrs": attrs, "since": self.since, "constraint": self.constraint()}


def list_jobs(handle: Handle, query: Query, attrs: List[str]) -> Iterator[Dict[str, Any]]:
    """The matching jobs in job-list's order: pending by priority, running, inactive (newest first)."""
    for answer in handle.stream("job-list.list", query.request(attrs)):
        yield from answer["jobs"]


def list_ids(handle: Handle, ids: List[int], attrs: List[str]) -> Iterator[Optional[JobInfo]]:
    """The jobs with these ids, in order; None for an id that the instance does not know."""
    calls = [handle.rpc("job-list.list-id", {"id": id, "attrs": attrs}) for id in ids]
    for call in calls:
        try:
            yield JobInfo(call.get()["job"])
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise
            yield None
