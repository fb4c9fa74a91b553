"""Who takes over what an ended job held: the scheduler's word, given ahead of time. Pure.

A scheduler in a process of its own hears of an end and answers with a start, which is one way and back between two
processes in every job's way. Where the answer is certain beforehand it names heirs. An exec service that takes starts
ahead has them in its hands already and starts the next one itself where another has ended: then nobody waits for this
process either. What it may have started is nobody else's to change, so whoever would change one of these jobs has all
of them recalled first (docs/dev/interfaces.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.jobs.record import SCHED, Job
from headrace.spec import jobspec as js

if TYPE_CHECKING:
    from headrace.modules.job_manager.core import Core

# Requests that are for the exec service, not for the scheduler.
FOR_EXEC = ("ahead", "recall")


class Heirs:
    """Waiting jobs by id, in the order in which they take over, one each, what a job of the same request gives back.

    `expiration` is when the instance ends, in seconds since the epoch; 0 for never. `ahead` says whether the exec
    service takes starts ahead; `given` are the jobs, by id, of which it alone knows whether it has started them.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ids: deque[int] = deque()
        self.expiration = 0.0
        self.ahead = False
        # How many exec services are gone.
        self.lives = 0
        self.given: dict[int, Job] = {}
        # Jobs whose end starts one of those that are given.
        self._leavers: set[int] = set()
        self._claims: dict[int, Job] = {}
        self._recalling = False
        self._put_off: list[Callable[[], Any]] = []

    def stats(self) -> dict[str, int]:
        """Who was named and given out, and how much waits for that to come back: where a queue stands still, this says
        who is waited for."""
        return {"named": len(self._ids), "given": len(self.given), "put_off": len(self._put_off)}

    # -- the scheduler's word

    def name(self, ids: list[int], expiration: float) -> None:
        """The scheduler's word, until it has another."""
        # Some may have been started while it spoke.
        self._ids, self.expiration = deque(id for id in ids if self._waiting(id) is not None), expiration
        self._give()

    def forget(self) -> None:
        """What the scheduler said does not hold any more."""
        self._ids.clear()
        self._give()

    def asked(self, job: Job) -> None:
        """Another job waits now: if it goes before some of the heirs, only the scheduler knows before which."""
        last = self._core.active.get(self._ids[-1]) if self._ids else None
        if last is not None and job.priority > last.priority:
            self.forget()

    # -- what an ended job leaves

    def may_take(self, job: Job, then: Callable[[], Any]) -> bool:
        """Whether it is known who takes over from an ended job; if not, `then` is called as soon as it is."""
        if job.id in self._claims or not self.given:
            return True
        if not self._recalling and not _same_request(job, next(iter(self.given.values()))):
            return True
        # It ended before the exec service had anybody to start in its place, or had to give them back.
        self._put_off.append(then)
        self._recall()
        return False

    def take(self, job: Job) -> Job | None:
        """The heir of an ended job. What had a fatal exception leaves nothing: its nodes may be lost."""
        claimed = self._claims.pop(job.id, None)
        if claimed is not None:
            return claimed
        while self._ids and job.fatal is None:
            heir = self._waiting(self._ids[0])
            if heir is not None and (heir.id in self.given or not _same_request(job, heir)):
                break
            self._ids.popleft()
            if heir is not None:
                return heir
        return None

    def _waiting(self, id: int) -> Job | None:
        heir = self._core.active.get(id)
        waits = heir is not None and heir.state == SCHED and heir.alloc_pending and not heir.alloc_canceled
        return heir if waits else None

    def resources(self, job: Job, heir: Job) -> dict[str, Any]:
        """R of the heir: the ended job's, for the heir's own time."""
        assert job.r is not None
        now, ends, duration = self._core.now, self.expiration, js.duration(heir.jobspec)
        if duration:
            ends = min(now + duration, ends or now + duration)
        return {**job.r, "execution": {**job.r["execution"], "starttime": now, "expiration": ends}}

    # -- starts ahead

    def _give(self) -> None:
        """Bring what the exec service has in line with the scheduler's word."""
        if not self.ahead or self._recalling:
            return
        if self.given and list(self.given) != list(islice(self._ids, len(self.given))):
            self._recall()
            return
        model = next(iter(self.given.values()), None)
        fresh: list[Job] = []
        for id in islice(self._ids, len(self.given), None):
            heir = self._waiting(id)
            if heir is None or heir.prologs or _is_simulated(heir):
                break
            model = model or heir
            if not _same_request(model, heir):
                break
            fresh.append(heir)
        if not fresh or model is None:
            return
        first = not self.given
        if first:
            self._leavers.clear()
        after = [
            id
            for id, job in self._core.holders.items()
            if id not in self._leavers and not job.released and _same_request(model, job)
        ]
        if first and not after:
            return
        self._leavers.update(after)
        self.given.update((heir.id, heir) for heir in fresh)
        self._core.requests.append(("ahead", fresh, after, first))

    def started(self, job: Job) -> None:
        """A job starts as the scheduler said: its end may start one of those that are given as well."""
        if not self.given:
            self._give()
        elif job.id in self._leavers or self._recalling:
            return
        elif _same_request(next(iter(self.given.values())), job):
            self._leavers.add(job.id)
            self._core.requests.append(("ahead", [], [job.id], False))

    def claim(self, job: Job, id: int) -> None:
        """The exec service has started job `id` in the place of one that ended."""
        heir = self.given.pop(id, None) or self._waiting(id)
        if heir is None:
            # It was asked for already, as if nobody had it: the exec service saw to it that it runs once.
            return
        # Not always the first: of two that were started at once either may be told first.
        if id in self._ids:
            self._ids.remove(id)
        self._leavers.discard(job.id)
        self._leavers.add(id)
        self._claims[job.id] = heir

    def lost(self, id: int, note: str) -> None:
        """The exec service started a job that was given to it, and goes before we heard of that."""
        self.given.pop(id, None)
        job = self._core.active.get(id)
        if job is not None and not job.start_sent:
            self._core.raise_exception(job, "exec", 0, note, self._core.owner)

    def settled(self, id: int | None, then: Callable[[], Any]) -> bool:
        """Whether a job (None: every job) is nobody else's to start; if not, `then` is called as soon as it is so."""
        # What concerns every job waits behind what did before, also when there is nothing left to wait for.
        if id not in self.given if id is not None else not (self.given or self._recalling):
            return True
        self._put_off.append(then)
        self._recall()
        return False

    def answers(self, id: int, then: Callable[[], Any]) -> bool:
        """As settled(), where `then` takes an answer of the scheduler: it is void if that is gone by then."""
        limited = self._core.limited

        def unless_gone() -> None:
            # Another one begins with its own.
            if self._core.limited is limited:
                then()

        return self.settled(id, unless_gone)

    def _recall(self) -> None:
        if not self._recalling:
            self._recalling = True
            self._core.requests.append(("recall",))

    def recalled(self) -> None:
        """The exec service has nothing any more; what it started before has been claimed."""
        if not self._recalling:
            return
        if not self._settle():
            self._give()

    def exec_gone(self) -> None:
        """The exec service is gone, and has given everything back before that."""
        core = self._core
        core.requests = [request for request in core.requests if request[0] not in FOR_EXEC]
        self.ahead = False
        self.lives += 1
        self._claims.clear()
        self._settle()

    def _settle(self) -> bool:
        """Do what was put off, if anything was: who changes one job often changes the next one too, so what is left is
        given out again with the next start."""
        self._recalling = False
        self.given.clear()
        self._leavers.clear()
        put_off, self._put_off = self._put_off, []
        for then in put_off:
            then()
        return bool(put_off)


def notes(job: Job, heir: Job) -> dict[str, Any]:
    """What the scheduler would say of the heir: as of the ended job, and nothing of why it waited."""
    gone = dict.fromkeys((heir.annotations or {}).get("sched", ()))
    return {"sched": {**gone, **(job.annotations or {}).get("sched", {})}}


def _same_request(a: Job, b: Job) -> bool:
    """Whether a scheduler cannot tell two jobs apart but by their priorities."""
    if a.queue != b.queue:
        return False
    one, other = js.system(a.jobspec), js.system(b.jobspec)
    return (
        a.jobspec["resources"] == b.jobspec["resources"]
        and one.get("duration") == other.get("duration")
        and one.get("constraints") == other.get("constraints")
    )


def _is_simulated(job: Job) -> bool:
    return "exec" in js.system(job.jobspec)
