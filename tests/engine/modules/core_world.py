"""The job manager's state machine with a scheduler and an exec service that the test plays."""

from __future__ import annotations

from typing import Any, TypeVar

from headrace.engine.jobs.record import Job, inactive_result
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Effect, Request
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.records import Record
from headrace.engine.modules.job_manager.replay import replay
from headrace.formats.spec import jobid
from headrace.formats.spec.requests.sched import AllocResponse

R: dict[str, Any] = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["n0"], "expiration": 0.0},
}


def jobspec(**system: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **system}},
    }


def after(scheme: str, job: int) -> dict[str, Any]:
    return {"dependencies": [{"scheme": scheme, "value": jobid.encode(job)}]}


_Request = TypeVar("_Request", bound=Request)


class World:
    """A core with a scheduler and an exec service that the test plays, and all that it ever recorded."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.names = names or []
        self.core = Core(Queues(self.names), 0)
        self.core.allocations.scheduler_is_ready(0)
        self.core.exec_is_ready()
        self.records: list[Record] = []
        self.requests: list[Request] = []
        self.effects: list[Effect] = []
        self.gone: dict[int, Job] = {}

    def flush(self) -> None:
        self.core.steps.settle()
        records, effects = self.core.take()
        self.records += records
        self.effects += effects
        self.requests += self.core.requests
        self.core.requests = []
        self.gone.update((job.id, job) for job in self.core.finished)
        self.core.finished.clear()

    def submit(self, id: int, urgency: int = 16, flags: int = 0, userid: int = 0, **system: Any) -> str:
        self.core.now += 1.0
        refusal = self.core.submit(id, userid, urgency, flags, jobspec(**system))
        self.flush()
        return refusal

    def alloc(self, id: int, kind: AllocResponse = AllocResponse.SUCCESS, note: str = "", **execution: Any) -> None:
        r = {**R, "execution": {**R["execution"], **execution}}
        annotations = {"sched": {"resource_summary": "rank0/core0"}} if kind == AllocResponse.SUCCESS else None
        self.core.allocations.reply(id, kind, r if kind == AllocResponse.SUCCESS else None, annotations, note)
        self.flush()

    def exec(self, id: int, kind: str, **data: Any) -> None:
        reply: Any = {"id": id, "type": kind, "data": data}
        self.core.exec_reply(reply)
        self.flush()

    def run(self, id: int, status: int = 0) -> None:
        self.alloc(id)
        self.exec(id, "start")
        self.exec(id, "finish", status=status)
        self.exec(id, "release", ranks="all", final=True)

    def cancel(self, id: int) -> None:
        self.core.raise_exception(self.core.active[id], "cancel", 0, "", 0)
        self.flush()

    def events(self, id: int) -> list[str]:
        job = self.core.active.get(id) or self.gone[id]
        return [name for _, name, _ in job.events]

    def context(self, id: int, name: str) -> Any:
        job = self.core.active.get(id) or self.gone[id]
        return next(context for _, event, context in job.events if event == name)

    def asked(self, kind: type[_Request]) -> list[_Request]:
        return [request for request in self.requests if isinstance(request, kind)]

    def result(self, id: int) -> int:
        return inactive_result(self.core.inactive[id])

    def replayed(self) -> Core:
        core = Core(Queues(self.names), 0)
        for record in self.records:
            replay(core, record)
        return core
