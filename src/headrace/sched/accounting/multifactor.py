"""The multi-factor policy: who may submit what, which jobs wait for a limit, and the priority of each job.

It answers as flux-accounting's plugin does, for the same rows of the same tables. Beyond that, limits hold at every
moment: a job without headroom in SCHED stays in PRIORITY, and a job without headroom when its allocation arrives does
not start. `ready` names both once there is headroom. With `at_submit`, limits are looked at only at DEPEND.

Without any association all jobs are accepted and wait in PRIORITY. The instance owner may run without an association.

The policy is pure: it has no clock and sends nothing. The caller reports each change of a job's state at once, before
it asks about another job, and carries out the releases that a call returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_not
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.formats.spec.job_state import CLEANUP, DEPEND, INACTIVE, NEW, RUN, SCHED
from headrace.sched.accounting import refusals
from headrace.sched.accounting.associations import Job
from headrace.sched.accounting.directory import ASSOCIATIONS, BANKS, FACTORS, PROJECTS, QUEUES, Directory
from headrace.sched.accounting.limits import (
    ENTRY_LIMITS,
    HOLD_LIMITS,
    START_LIMITS,
    STRICT_LIMITS,
    Limit,
    effective,
    has_headroom,
)
from headrace.sched.accounting.priority import job_priority
from headrace.sched.accounting.query import query
from headrace.sched.accounting.releases import free
from headrace.sched.accounting.values import (
    AssociationRow,
    BankRow,
    FactorRow,
    JobRefusedError,
    ProjectRow,
    QueueRow,
    Release,
    Request,
    read_rows,
    read_settings,
)
from headrace.sched.accounting.waiting import ENTRY, HOLD, START, Group

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State

_HOLD_NAMES = frozenset(limit.name for limit in HOLD_LIMITS)


class MultiFactor:
    """The policy of an instance.

    `owner` is the user id of the instance owner. `strict` enforces the limits of queues that flux-accounting stores and
    does not enforce. `at_submit` looks at limits at DEPEND only, as flux-accounting does.
    """

    def __init__(self, owner: int, *, strict: bool = False, at_submit: bool = False) -> None:
        self._rules = refusals.Rules(owner, strict)
        self._directory = Directory()
        self._jobs: dict[int, Job] = {}
        self._ready: list[int] = []
        # The factors of the latest priority, and its value.
        self._latest: tuple[tuple[Any, ...], int] = ((None,) * 5, 0)
        start = START_LIMITS + STRICT_LIMITS if strict else START_LIMITS
        self._limits = {HOLD: HOLD_LIMITS, ENTRY: () if at_submit else ENTRY_LIMITS, START: () if at_submit else start}
        # By moment, the rows of the latest job, and the limits in them that limit something.
        self._latest_limits: dict[int, tuple[tuple[Any, ...], tuple[Limit, ...]]] = {
            moment: ((None, None), ()) for moment in self._limits
        }

    # Submission.

    def refusal(self, request: Request) -> str:
        """Why a job is refused at submission; empty if it is accepted."""
        return refusals.refusal(self._directory, self._rules, request)

    def defaults(self, request: Request) -> dict[str, str]:
        """The bank and project of a job whose jobspec names none, as a jobspec update.

        For a job that was accepted before its association was known, there are none until `priority` is a number.
        """
        job = self._jobs.get(request.id)
        association = job.association if job else self._directory.find(request.userid, request.bank)
        if association is None or not association.is_known:
            return {}
        updates = {}
        if not request.bank:
            updates["attributes.system.bank"] = association.row.bank
        if not request.project and association.row.def_project:
            updates["attributes.system.project"] = association.row.def_project
        return updates

    def added(self, request: Request) -> None:
        """Count a job that was accepted."""
        directory = self._directory
        association = directory.find_or_unknown(request.userid, request.bank)
        job = self._jobs[request.id] = Job(request, association, directory.queue(request.queue))
        job.is_judged = association.is_known

    def count_active(self, request: Request, state: State, held: Iterable[str]) -> None:
        """Count a job that exists when the policy is loaded, with its dependencies.

        Jobs are counted oldest first. A job that has resources is in state RUN or CLEANUP.
        """
        self.added(request)
        job = self._jobs[request.id]
        if state in (SCHED, RUN):
            job.count(state)
        elif state == CLEANUP:
            job.count(RUN)
        elif state == DEPEND:
            job.holds = tuple(name for name in held if name in _HOLD_NAMES)
            if job.holds:
                job.wait(HOLD)

    def update_refusal(self, request: Request, key: str, value: Any) -> str:
        """Why the value of a key of the jobspec may not be changed; empty if it may."""
        return refusals.update_refusal(self._directory, self._rules, request, key, value)

    def updated(self, old: Request, new: Request) -> list[Release]:
        """Count a job by its changed request."""
        job = self._jobs.get(old.id)
        if job is None:
            return []
        before, queue, holds = job.association, job.queue, job.holds
        # A bank that was not named is the default bank at submission; it is written to the jobspec later.
        found = self._directory.find(new.userid, new.bank) if new.bank not in ("", before.row.bank) else None
        after = found or before
        if after is before and replace(new, bank=old.bank, project=old.project) == old:
            job.request = new
            return []
        if job.group is not None and job.group.key.moment != HOLD:
            self._ready.append(new.id)
        job.leave()
        job.rebind(new, after, self._directory.queue(new.queue))
        if holds:
            job.wait(HOLD)
        groups = list(before.groups.values())
        if after is not before:
            groups += after.groups.values()
        if self._rules.strict:
            groups += queue.starts.values()
        return self._free(groups)

    # The way of a job.

    def holds(self, request: Request) -> list[str]:
        """The dependencies that a job gets at DEPEND, beyond those that it has.

        Raises JobRefusedError if max_running_jobs of the association is -1. The databases never have this value.
        flux-accounting's plugin takes it for an association whose row was lost.
        """
        job = self._job(request)
        if job.association.row.max_running_jobs == -1:
            raise JobRefusedError("job.state.depend: bank info is missing")
        limits = self._effective(HOLD, job)
        names = [limit.name for limit in limits if limit.name not in job.holds and not has_headroom(limit, job)]
        if names:
            job.leave()
            job.holds += tuple(names)
            job.wait(HOLD)
        return names

    def priority(self, request: Request, urgency: int) -> int | None:
        """The priority of a job; None if it stays in PRIORITY.

        It does so until there are associations, and, for a job that is not in SCHED yet, until there is headroom there.
        Raises JobRefusedError for a job that was accepted before there were associations and may not run.
        """
        job = self._job(request)
        association = job.association
        if not job.is_judged:
            if not self._directory.associations:
                return None
            self._judge(job)
        value = self._value(association.row, job.queue.row, urgency)
        group, has_dropped = job.group, value == 0 < job.priority
        if value != job.priority:
            job.priority = value
            if group is not None and group.key.moment != HOLD:
                group.move(request.id, job, -value)
        if job.place == NEW:
            if not self._has_headroom(job, ENTRY):
                if group is None:
                    job.wait(ENTRY)
                return None
            if group is not None and group.key.moment == ENTRY:
                job.leave()
        elif has_dropped and job.place == SCHED and group is None:
            # The job that had been named as ready gives its turn to another.
            self._free([one for one in association.groups.values() if one.key.moment == START])
        return value

    def _value(self, row: AssociationRow, queue: QueueRow | None, urgency: int) -> int:
        """The priority of a job of an association in a queue. Rows are never changed, so the latest value is kept."""
        directory = self._directory
        factors = (row, queue, urgency, directory.banks, directory.weights)
        latest, value = self._latest
        if any(map(is_not, factors, latest)):
            bank = directory.banks.get(row.bank, 0.0)
            value = job_priority(directory.weights, row.fairshare, queue.priority if queue else 0, bank, urgency)
            self._latest = (factors, value)
        return value

    def fairshare(self, request: Request) -> float:
        """The fair share of a job's association, from 0 to 1."""
        return self._job(request).association.row.fairshare

    def may_start(self, request: Request) -> str:
        """Empty if a job that got an allocation may start, else the limit that holds it.

        Then the job waits, and `ready` names it when there is headroom.
        """
        job = self._job(request)
        if job.place != RUN:
            for limit in self._effective(START, job):
                if not has_headroom(limit, job):
                    if job.group is None:
                        job.wait(START)
                    return limit.name
            if job.group is not None and job.group.key.moment == START:
                job.leave()
        return ""

    def entered(self, request: Request, state: State) -> list[Release]:
        """Count a job in its new state; returns the dependencies of other jobs that are to be removed, oldest first."""
        if state == CLEANUP:
            # A job keeps its place until it is inactive.
            return []
        job = self._jobs.get(request.id)
        if job is None:
            if state == INACTIVE:
                return []
            job = self._job(request)
        had = job.place
        place: State = state if state in (SCHED, RUN) else NEW
        if state == INACTIVE:
            del self._jobs[request.id]
            job.association.active_jobs -= 1
        elif place == had:
            return []
        job.leave()
        job.count(place)
        if place != NEW:
            job.holds = ()
        if state != INACTIVE and had == NEW:
            return []
        groups = list(job.association.groups.values())
        if self._rules.strict and had == RUN:
            groups += job.queue.starts.values()
        return self._free(groups)

    def ready(self) -> list[int]:
        """The jobs that have headroom since the last call: `priority` is to be asked again for those in PRIORITY.

        Those in SCHED may ask for resources again. A job is named once for each time that it was turned away.
        """
        ready, self._ready = self._ready, []
        return [jobid for jobid in ready if jobid in self._jobs]

    def waits_for(self, jobid: int) -> list[str]:
        """The names of the limits for which a job waits now."""
        job = self._jobs.get(jobid)
        if job is None or job.group is None:
            return []
        moment = job.group.key.moment
        if moment == HOLD:
            return list(job.holds)
        return [limit.name for limit in self._limits[moment] if not has_headroom(limit, job)]

    # Data.

    def rec_update(self, rows: Any) -> None:
        """Add or change associations. Raises ValueError that names row and field, as the other services do."""
        read = read_rows(ASSOCIATIONS, AssociationRow, rows)
        self._directory.update_associations(read)
        self._adopt(read)

    def rec_q_update(self, rows: Any) -> None:
        """Replace the queues."""
        self._directory.replace_queues(read_rows(QUEUES, QueueRow, rows))

    def rec_proj_update(self, rows: Any) -> None:
        """Replace the projects."""
        self._directory.replace_projects(read_rows(PROJECTS, ProjectRow, rows))

    def rec_bank_update(self, rows: Any) -> None:
        """Replace the priorities of banks."""
        self._directory.replace_banks(read_rows(BANKS, BankRow, rows))

    def rec_fac_update(self, rows: Any) -> None:
        """Change the weights of factors."""
        self._directory.update_weights(read_rows(FACTORS, FactorRow, rows))

    def rec_config_update(self, data: Any) -> None:
        """Replace the settings."""
        self._directory.settings = read_settings(data)

    def load(self, config: Any) -> None:
        """Take the tables of a document of `flux account export-json`."""
        self._adopt(self._directory.load(config))

    def reprioritize(self) -> list[Release]:
        """Look at all waiting jobs again, after limits were raised. The caller asks for all priorities again."""
        return self._free([group for one in self._directory.all_associations() for group in one.groups.values()])

    def query(self) -> dict[str, Any]:
        """The answer of `flux jobtap query mf_priority.so`."""
        return query(self._directory, self._jobs.values())

    def _job(self, request: Request) -> Job:
        job = self._jobs.get(request.id)
        if job is None:
            self.added(request)
            job = self._jobs[request.id]
        return job

    def _judge(self, job: Job) -> None:
        """Decide about a job that was accepted before its association was known."""
        request = job.request
        if not job.association.is_known:
            if not refusals.may_run_unknown(self._directory, self._rules, request.userid):
                raise JobRefusedError(refusals.no_entry(request))
        elif text := refusals.queue_refusal(self._directory, job.association, request):
            raise JobRefusedError(text)
        else:
            job.is_judged = True

    def _adopt(self, rows: list[AssociationRow]) -> None:
        """Count the jobs of users that the tables did not have in their associations."""
        unknown = self._directory.unknown_users
        if not any(row.userid in unknown and unknown[row.userid].active_jobs for row in rows):
            return
        for job in self._jobs.values():
            if job.association.is_known:
                continue
            request = job.request
            association = self._directory.find(request.userid, request.bank)
            if association is not None:
                moment = None if job.group is None else job.group.key.moment
                job.leave()
                job.rebind(request, association, job.queue)
                if moment is not None:
                    job.wait(moment)

    def _has_headroom(self, job: Job, moment: int) -> bool:
        return all(has_headroom(limit, job) for limit in self._effective(moment, job))

    def _effective(self, moment: int, job: Job) -> tuple[Limit, ...]:
        """The limits of a moment that limit something. Rows are never changed, so the latest ones are kept."""
        rows = (job.association.row, job.queue.row)
        known, limits = self._latest_limits[moment]
        if rows[0] is not known[0] or rows[1] is not known[1]:
            limits = effective(self._limits[moment], *rows)
            self._latest_limits[moment] = (rows, limits)
        return limits

    def _free(self, groups: list[Group]) -> list[Release]:
        if not groups:
            return []
        releases, ready = free(dict.fromkeys(groups), self._jobs, self._limits)
        self._ready += ready
        return releases
