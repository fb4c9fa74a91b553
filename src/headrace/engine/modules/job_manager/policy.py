"""The job policy: a Protocol that the core asks at each step of a job, and the default policy. Pure.

Another policy can replace the default while jobs run (`plugins.py`). Everything that a policy causes is an ordinary
event of a job, so a replay of the journal needs no policy. A policy keeps nothing across a restart: it counts the
active jobs when it is loaded.

The limits and defaults of queues (`engine/jobs/policy.py`) are a different subject: they apply with every job policy.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.engine.jobs.record import Job
from headrace.formats.spec.urgency import URGENCY_EXPEDITE, priority_of

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State

# The dependency of another job that is to be removed: the job's id and the description.
Release = tuple[int, str]


class JobRejected(Exception):
    """A pending job that can never run. The text is the note of its fatal exception."""


class Rank(NamedTuple):
    """The priority of a pending job, and what the core posts before it.

    `attributes` of the jobspec became known after `added`; they take a job in SCHED back to PRIORITY. `memo` is about
    the priority. Both are None if they are as before.
    """

    priority: int
    attributes: dict[str, Any] | None = None
    memo: dict[str, Any] | None = None


class JobPolicy(Protocol):
    """What the core asks, in the order of a job's life: validate, added, holds, priority, entered, may_start.

    `name` is the type of the exceptions that the policy causes. `has_limits` is False if `may_start` never refuses.
    `updatable` are the attributes whose update the policy allows, in addition to those that need no policy.
    """

    name: str
    has_limits: bool
    updatable: frozenset[str]

    def validate(self, job: Job) -> str:
        """Why a new job is refused, or "". Its id, user and jobspec are known."""

    def added(self, job: Job) -> dict[str, Any]:
        """Count an accepted job. Returns attributes for its jobspec: {"attributes.system.KEY": value}."""

    def count(self, job: Job) -> None:
        """Count a job that was active before: when the policy was loaded, or in the archive of a restore."""

    def holds(self, job: Job) -> Sequence[str]:
        """The dependencies that keep a job in DEPEND until they are released. Raises JobRejected."""

    def priority(self, job: Job) -> Rank | None:
        """The priority of a pending job; None keeps a job in PRIORITY. Raises JobRejected."""

    def entered(self, job: Job, state: State) -> Sequence[Release]:
        """Follow a job to a state, once it has been in SCHED, and to its end.

        INACTIVE is reported early, as soon as the resources are free.
        """

    def may_start(self, job: Job) -> str:
        """The name of the limit that a job would exceed if it started now, or ""."""

    def ready(self) -> Sequence[int]:
        """Jobs to ask about again, since there is room now below a limit that they met in `priority` or `may_start`."""

    def waits_for(self, job: Job) -> str:
        """The limits for which a job in PRIORITY waits, or ""."""

    def account(self, job: Job) -> Hashable:
        """A key that is equal for the jobs of one user in one bank, which share most limits."""

    def update(self, job: Job, key: str, value: Any) -> str:
        """Why an attribute of a pending job must not be changed, or ""."""

    def updated(self, job: Job) -> Sequence[Release]:
        """Follow a changed jobspec."""

    def query(self) -> dict[str, Any]:
        """The state of the policy, for `flux jobtap query`."""


_RANKS = [Rank(priority_of(urgency)) for urgency in range(URGENCY_EXPEDITE + 1)]


class DefaultPolicy:
    """The priority of a job follows from its urgency (RFC 30), and there are no limits."""

    name = ".priority-default"
    has_limits = False
    updatable: frozenset[str] = frozenset()

    def validate(self, _job: Job) -> str:
        return ""

    def added(self, _job: Job) -> dict[str, Any]:
        return {}

    def count(self, _job: Job) -> None:
        pass

    def holds(self, _job: Job) -> Sequence[str]:
        return ()

    def priority(self, job: Job) -> Rank | None:
        return _RANKS[job.urgency]

    def entered(self, _job: Job, _state: State) -> Sequence[Release]:
        return ()

    def may_start(self, _job: Job) -> str:
        return ""

    def ready(self) -> Sequence[int]:
        return ()

    def waits_for(self, _job: Job) -> str:
        return ""

    def account(self, _job: Job) -> Hashable:
        return None

    def update(self, _job: Job, _key: str, _value: Any) -> str:
        return ""

    def updated(self, _job: Job) -> Sequence[Release]:
        return ()

    def query(self) -> dict[str, Any]:
        return {}


# The core's policy until another one is loaded.
DEFAULT = DefaultPolicy()
