"""Jobs in SCHED that a limit of the job policy keeps from the scheduler. Pure, a part of the core.

Limits hold at every moment, so they are checked when an allocation arrives and when a successor takes over resources.
A job that would exceed one is withheld: its resources go back, and it is requested again when there is room. So that
this does not become a loop of allocations and frees, only one job of each line is requested at a time. A line has the
jobs with equal accounts and an equal request; either all of them can start or none. The next one follows when the
first has started.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import msgspec

from headrace.engine.jobs.record import Job, merged
from headrace.engine.modules.job_manager.effects import Annotated, Effect
from headrace.engine.modules.job_manager.policy import JobPolicy
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import SCHED

# Requested jobs that are withdrawn when another job of their account meets a limit. More than these meet the limit on
# their own; each takes an allocation and a free.
_WITHDRAWN_AT_ONCE = 256
# Outdated entries of a line that may remain before it is rebuilt.
_SPARE_ENTRIES = 64

# The accounts of a job, and its request.
_Line = tuple[tuple[Hashable, ...], bytes]


class Requests(Protocol):
    """The requests of jobs to the scheduler (`allocations.Allocations`)."""

    def request(self, job: Job) -> None: ...
    def cancel(self, job: Job) -> None: ...


class Core(Protocol):
    """The parts of the core (`core.Core`) that are used here."""

    active: dict[int, Job]
    effects: list[Effect]
    policy: JobPolicy


class Withheld:
    """`due` are the lines whose first job may have room now; `settle` looks at them."""

    def __init__(self, core: Core, requests: Requests) -> None:
        self._core = core
        self._requests = requests
        # The limit that each withheld job met.
        self._limits: dict[int, str] = {}
        self._lines: dict[_Line, list[tuple[int, int]]] = {}
        self._lines_of: dict[Hashable, dict[_Line, None]] = {}
        # The lines of withheld jobs, and of jobs that were requested again; the latter by line.
        self._line_of: dict[int, _Line] = {}
        self._requested: dict[_Line, Job] = {}
        # The jobs that the scheduler has, by account, and the accounts at the time of the request.
        self._asked: dict[Hashable, dict[int, Job]] = {}
        self._asked_by: dict[int, Sequence[Hashable]] = {}
        self.due: dict[_Line, None] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._limits

    def limit(self, job: Job) -> str:
        """The limit that withholds a job, or ""."""
        return self._limits.get(job.id, "")

    # -- jobs that the scheduler has

    def asked(self, job: Job) -> None:
        """Note that the scheduler has the request of a job."""
        shares = self._asked_by[job.id] = self._core.policy.shares(job)
        for share in shares:
            self._asked.setdefault(share, {})[job.id] = job

    def answered(self, job: Job) -> None:
        """Note that the scheduler has responded to the request of a job."""
        for share in self._asked_by.pop(job.id, ()):
            asked = self._asked[share]
            del asked[job.id]
            if not asked:
                del self._asked[share]

    def forget_asked(self) -> None:
        """Note that the scheduler has no requests."""
        self._asked.clear()
        self._asked_by.clear()

    # -- jobs that met a limit

    def hold(self, job: Job, limit: str) -> None:
        """Withhold a job that met a limit, and withdraw the requests of other jobs that would meet one now."""
        core = self._core
        others: dict[int, Job] = {}
        for share in core.policy.shares(job):
            others.update(itertools.islice(self._asked.get(share, {}).items(), _WITHDRAWN_AT_ONCE))
        others.pop(job.id, None)
        self._add(job, limit)
        for other in others.values():
            # A job that is about to be withdrawn, or has left SCHED, is not withheld.
            if other.state == SCHED and other.alloc_pending and not other.alloc_canceled:
                found = core.policy.may_start(other)
                if found:
                    self._add(other, found)

    def _add(self, job: Job, limit: str) -> None:
        line = self._line_of.get(job.id)
        if line is None:
            line = self._line_of[job.id] = (tuple(self._core.policy.shares(job)), _request_of(job))
        elif self._requested.get(line) is job:
            del self._requested[line]
        self._limits[job.id] = limit
        self._push(line, job)
        for share in line[0]:
            self._lines_of.setdefault(share, {})[line] = None
        self._annotate(job, limit)
        if job.alloc_pending:
            self._requests.cancel(job)

    def _push(self, line: _Line, job: Job) -> None:
        entries = self._lines.setdefault(line, [])
        heapq.heappush(entries, (-job.priority, job.id))
        if len(entries) > 2 * len(self._limits) + _SPARE_ENTRIES:
            # Most of the entries have the former priorities of jobs.
            active = self._core.active
            current = {(-active[id].priority, id) for _, id in entries if id in self._limits and id in active}
            entries[:] = sorted(current)

    def _annotate(self, job: Job, limit: str) -> None:
        """Annotate a job as a scheduler would, so that listings show the reason."""
        job.annotations = merged(job.annotations or {}, {"sched": {"reason_pending": reason(limit)}})
        self._core.effects.append(Annotated(job))

    def reprioritized(self, job: Job) -> None:
        """Follow a changed priority of a job in SCHED."""
        if job.id in self._limits:
            self._push(self._line_of[job.id], job)

    def entered(self, job: Job) -> None:
        """Follow a job that left SCHED, and look at the lines that it made room for."""
        if job.state == SCHED:
            return
        self._limits.pop(job.id, None)
        line = self._line_of.pop(job.id, None)
        if line is not None:
            self.due[line] = None

    def freed(self, job: Job) -> None:
        """Look at the lines of the accounts that a job counted against."""
        if self._limits:
            for share in self._core.policy.shares(job):
                self.due.update(self._lines_of.get(share, {}))

    def changed(self) -> None:
        """Look at all lines, since limits may have changed."""
        self.due.update(dict.fromkeys(self._lines))

    def clear(self) -> None:
        """Request all withheld jobs, since another policy decides."""
        ids = list(self._limits)
        for table in (self._limits, self._lines, self._lines_of, self._line_of, self._requested, self.due):
            table.clear()
        self.forget_asked()
        for job in self._core.active.values():
            if job.alloc_pending:
                self.asked(job)
        for held in [self._core.active[id] for id in ids if id in self._core.active]:
            self._requests.request(held)

    def settle(self) -> None:
        """Request the first job of each line that is due, if there is room for it."""
        due, self.due = self.due, {}
        for line in due:
            self._next(line)

    def _next(self, line: _Line) -> None:
        requested = self._requested.get(line)
        if requested is not None and requested.alloc_pending and self._line_of.get(requested.id) == line:
            return
        job = self._first(line)
        if job is None:
            self._drop(line)
            return
        limit = self._core.policy.may_start(job)
        if limit:
            if limit != self._limits[job.id]:
                self._limits[job.id] = limit
                self._annotate(job, limit)
            return
        heapq.heappop(self._lines[line])
        del self._limits[job.id]
        self._requested[line] = job
        self._requests.request(job)

    def _first(self, line: _Line) -> Job | None:
        """The most urgent job of a line. Removes outdated entries."""
        entries = self._lines.get(line, [])
        while entries:
            priority, id = entries[0]
            job = self._core.active.get(id)
            if id in self._limits and job is not None and job.priority == -priority:
                return job
            heapq.heappop(entries)
        return None

    def _drop(self, line: _Line) -> None:
        self._lines.pop(line, None)
        self._requested.pop(line, None)
        for share in line[0]:
            lines = self._lines_of.get(share)
            if lines is not None:
                lines.pop(line, None)
                if not lines:
                    del self._lines_of[share]


def reason(limit: str) -> str:
    """Why a withheld job waits, for listings."""
    return f"limit: {limit}"


def _request_of(job: Job) -> bytes:
    """What a scheduler compares of a job, except for its priority. Equal jobs can start in the same moments."""
    jobspec = job.jobspec
    system: dict[str, Any] = js.system(jobspec)
    request = (job.queue, jobspec["resources"], system.get("duration"), system.get("constraints"))
    return msgspec.json.encode(request)
