"""The execution service of rank 0: RFC 32 towards the job manager, RFC 50 in the job's exec eventlog.

It leads every job from `start` to the final `release`; node.py is the part that each broker has. The common
job costs one operation to the agent and two messages to the store: what happened since the last loop turn is appended
in one go, and always before the job manager hears that the job is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.agent.begun import read as read_traces
from headrace.broker.module.args import only
from headrace.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.modules.job_exec.job import Job
from headrace.modules.job_exec.node import Node, Op
from headrace.modules.job_exec.settings import KEYS, WITHOUT_EFFECT, Settings
from headrace.modules.job_exec.sim import SimError, Simulator, simulation
from headrace.modules.job_exec.tree import bits_of, ranks_of
from headrace.spec import jobid
from headrace.spec import jobspec as js
from headrace.spec.hostlist import Hostlist
from headrace.spec.idset import Idset, IdsetError
from headrace.spec.message import Message
from headrace.spec.requests.execution import JOB_EXEC

_EVENTS = "guest.exec.eventlog"
# Seconds that the first entries of a log wait for those of the shells.
_PATIENCE = 0.01
# Seconds that the end of this module waits for the agent's word on what it has started.
_AGENT_ANSWERS = 2.0
_NOTHING: Mapping[str, Any] = {}


class Leader:
    """All jobs of the instance; on rank 0 only."""

    def __init__(self, ctx: ModuleContext, node: Node, args: list[str]) -> None:
        self.ctx = ctx
        self.node = node
        self.jobs: dict[int, Job] = {}
        # What the agent was given to start, by id.
        self.ahead: dict[int, dict[str, Any]] = {}
        # Where the agent leaves traces of what it starts of these.
        self.traces = ""
        # There is no agent until another has taken the place of one that was killed.
        self.down = ctx.broker.agent is not None and not ctx.broker.agent.up
        # Who waits for the agent's word on what it has started, and who for the job manager's as well.
        self.recalls: list[Callable[[], Any]] = []
        self.recalled: list[Callable[[], Any]] = []
        # Start requests that cannot be answered yet: the agent may have started the job, or we are about to go.
        self.late: list[Message] = []
        # How many jobs were started ahead that the job manager did not ask for yet.
        self.unconnected = 0
        # Whether the job manager knows of us: what arrives before and after that was meant for another load of us.
        self.taking = False
        self.leaving = False
        self.unsaved: dict[tuple[int, str], list[Any]] = {}
        self.waiting = False
        self.args = args
        only(ctx, args, known=KEYS, without_effect=WITHOUT_EFFECT)
        self.settings = Settings(ctx.config, args)
        node.report = self._report
        self._ops: dict[str, Callable[[Op], None]] = {
            "event": self._event,
            "output": lambda op: self._append(op["id"], "guest.output", op["entries"]),
            "input": lambda op: self._append(op["id"], "guest.input", op["entries"]),
            "started": self._started,
            "finish": self._finished,
            "exception": self._exception,
            "lost": self._lost,
        }
        self.simulator = Simulator(ctx, self.jobs, self._respond, self._fail, self._end)
        methods = {
            "start": self._start,
            "kill": self._kill,
            "expiration": self._expiration,
            "override": self.simulator.override,
            "critical-ranks": self._critical_ranks,
            "ahead": self._ahead,
            "recall": self._recall,
        }
        ctx.service("job-exec", {**node.methods(), **methods}, open=("critical-ranks",), requests=JOB_EXEC)
        ctx.subscribe("job-exception", self._job_exception)
        ctx.subscribe("shell-", self._shell_event)
        ctx.on_config(self._configure)
        ctx.on_stats(self._stats)
        ctx.on_unload(self._unload)
        # With more brokers than this one a start has to wait for the disk, and a place may be lost with its node.
        ahead = ctx.alone and ctx.broker.agent is not None
        ctx.call("job-manager.exec-hello", {"service": "job-exec", "ahead": ahead}, self._hello)

    def _hello(self, reply: Message) -> None:
        if reply.errnum:
            text = reply.text or os.strerror(reply.errnum)
            self.ctx.log(logging.ERROR, f"job-manager.exec-hello: {text}: no job can be started")
        else:
            self.taking = True

    def _configure(self, config: dict[str, Any]) -> None:
        self.settings = Settings(config, self.args)

    def _stats(self) -> dict[str, Any]:
        running = sum(job.running for job in self.jobs.values())
        jobs = {"active": len(self.jobs), "running": running}
        ahead = {"given": len(self.ahead), "unconnected": self.unconnected, "recalls": len(self.recalls)}
        return {**self.settings.stats(), "jobs": jobs, "parts": len(self.node.parts), "ahead": ahead}

    # -- start

    def _start(self, msg: Message) -> None:
        body = msg.obj
        job_id = body["id"]
        job = self.jobs.get(job_id)
        if job is not None and job.msg is None:
            self._connect(job, msg)
            return
        if job is not None:
            raise RpcError(errno.EEXIST, f"job {job_id} is already started")
        if self.leaving:
            # Refused now, the job manager would take us for gone, and not ask for what the agent has started.
            self.late.append(msg)
            return
        if not self.taking:
            raise RpcError(errno.ENOSYS, "no job is taken at the moment")
        if job_id in self.ahead:
            # Handed out ahead, and the job manager does not count on that any more: who starts it is settled here.
            self.late.append(msg)
            self._bring_back(lambda: None)
            return
        ranks = ranks_of(body["R"])
        job = self.jobs[job_id] = Job(job_id, body["userid"], msg, ranks)
        if js.system(body["jobspec"]).get("requeue") is True:
            job.requeues_left = body.get("requeues_left", 1)
        if body.get("reattach"):
            self._respond(job, "exception", {"severity": 0, "type": "exec", "note": "lost when the broker restarted"})
            self._end(job, 1 << 8)
            return
        now = self.ctx.now()
        self._append(job_id, _EVENTS, [[now, "init", None], [now, "starting", None]], soon=False)
        if not ranks:
            self._fail(job, "R names no rank to start the job on")
            return
        try:
            job.sim = simulation(body["jobspec"])
        except SimError as exc:
            self._fail(job, str(exc))
            return
        if job.sim is not None:
            self.simulator.start(job)
            return
        self.node.launch(
            {
                "id": job_id,
                "userid": body["userid"],
                "jobspec": body["jobspec"],
                "R": body["R"],
                "ranks": ranks,
                "expiration": body["R"]["execution"].get("expiration") or 0.0,
            },
            bits_of(ranks),
        )

    def _fail(self, job: Job, note: str) -> None:
        self._respond(job, "exception", {"severity": 0, "type": "exec", "note": note})
        self._end(job, 1 << 8)

    def _respond(self, job: Job, kind: str, data: dict[str, Any]) -> None:
        if job.msg is None:
            job.unsaid.append((kind, data))
        else:
            self.ctx.respond(job.msg, {"id": job.id, "type": kind, "data": data})

    # -- starts ahead of the time: beyond RFC 32, docs/dev/interfaces.md

    def _ahead(self, msg: Message) -> Any:
        """`ahead {jobs, after, first, ends, traces}`: start `jobs`, one each, where another ends."""
        body = msg.obj
        if not self.taking:
            return EMPTY
        self.traces = body["traces"]
        jobs = [{**todo, "duration": js.duration(todo["jobspec"]), "expiration": body["ends"]} for todo in body["jobs"]]
        self.ahead.update((job["id"], job) for job in jobs)
        if not self.down:
            self.node.ahead(jobs, body["after"], body["first"], self.traces)
        return EMPTY

    def _recall(self, msg: Message) -> None:
        """`recall`: answered when nothing of it will be started any more that was not told."""
        self._bring_back(lambda: self.ctx.respond(msg))

    def _bring_back(self, then: Callable[[], Any]) -> None:
        if self.ahead or self.recalls:
            self.recalls.append(then)
            if not self.down:
                self.node.recall()
        else:
            self.recalled.append(then)
            self._answer_recalls()

    def _recalled(self, op: Op) -> None:
        for id in op["ids"]:
            self.ahead.pop(id, None)
        late, self.late = self.late, []
        for msg in late:
            self.ctx.again(msg)
        self.recalled.append(self.recalls.pop(0))
        self._answer_recalls()

    def _agent_back(self) -> None:
        """Another agent is there: it gets what the last one has not started."""
        self.down = False
        begun = [id for id in read_traces(self.traces) if id in self.ahead] if self.traces else []
        if begun:
            for id in begun:
                del self.ahead[id]
            self.ctx.call("job-manager.exec-begun", {"ids": begun})
        if self.ahead:
            self.node.ahead(list(self.ahead.values()), [], True, self.traces)
        for _ in self.recalls:
            self.node.recall()

    def _agent_ended(self) -> None:
        """Nothing is started any more. What was started and not told is in the traces: for the next broker."""
        self.taking = False
        self.ahead.clear()
        while self.recalls:
            self._recalled({"ids": []})

    def _answer_recalls(self) -> None:
        # Whoever asked hears of all that was started before.
        if not self.unconnected:
            recalled, self.recalled = self.recalled, []
            for then in recalled:
                then()

    def _adopt(self, id: int, ranks: list[int], time: float) -> None:
        """The agent started a job in the place of one that ended; the job manager asks for it when it hears of that."""
        todo = self.ahead.pop(id)
        self.jobs[id] = Job(id, todo["userid"], None, ranks)
        self.unconnected += 1
        self.node.adopt({**todo, "ranks": ranks})
        self._append(id, _EVENTS, [[time, "init", None], [time, "starting", None]], soon=False)

    def _connect(self, job: Job, msg: Message) -> None:
        job.msg = msg
        unsaid, job.unsaid = job.unsaid, []
        for kind, data in unsaid:
            self._respond(job, kind, data)
            if kind == "release":
                del self.jobs[job.id]
        self.unconnected -= 1
        self._answer_recalls()

    async def _all_back(self) -> None:
        # What the agent still answers must not be heard by the next load of this module.
        while self.ahead or self.recalls or self.unconnected:
            back = self.ctx.loop.create_future()
            self._bring_back(partial(back.set_result, None))
            await back

    async def _unload(self) -> None:
        """Start nothing any more, and leave nothing behind that nobody watches."""
        self.taking, self.leaving = False, True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_back(), _AGENT_ANSWERS)
        begun = [job.id for job in self.jobs.values() if job.msg is None]
        if begun:
            self.ctx.call("job-manager.exec-begun", {"ids": begun})
        for job in self.jobs.values():
            self.node.down({"op": "kill", "id": job.id, "signum": int(signal.SIGKILL), "all": True})
            if job.msg is not None:
                self.ctx.respond_error(job.msg, errno.ECONNRESET, "the module was unloaded")
        for msg in self.late:
            self.ctx.respond_error(msg, errno.ENOSYS, "the module was unloaded")

    # -- what the shells report

    def _report(self, op: Op) -> None:
        if op["op"] == "recalled":
            self._recalled(op)
            return
        if op["op"] == "gone":
            self.down = True
            return
        if op["op"] == "back":
            self._agent_back()
            return
        if op["op"] == "ended":
            self._agent_ended()
            return
        handler = self._ops.get(op["op"])
        if handler is not None and op["id"] in self.jobs:
            handler(op)

    def _event(self, op: Op) -> None:
        self._append(op["id"], _EVENTS, [[op["t"], op["name"], op.get("context")]])

    def _started(self, op: Op) -> None:
        job = self.jobs[op["id"]]
        if not job.running and not job.failed:
            job.running = True
            self._respond(job, "start", {})

    def _exception(self, op: Op) -> None:
        job = self.jobs[op["id"]]
        data = {"severity": op["severity"], "type": op["type"], "note": op.get("note", "")}
        if "wait_status" in op:
            data["wait_status"] = op["wait_status"]
        job.failed = job.failed or data["severity"] == 0
        # What the shell logged about it is read first.
        self._save()
        self._respond(job, "exception", data)

    def _lost(self, op: Op) -> None:
        job = self.jobs[op["id"]]
        ranks = Idset.parse(op["ranks"])
        nodes = Idset([nodeid for nodeid, rank in enumerate(job.ranks) if rank in ranks])
        fatal = job.critical is None or bool(nodes & job.critical)
        job.runs_again = job.runs_again or bool(fatal and job.requeues_left and not job.failed and not job.doomed)
        job.failed = job.failed or fatal
        many = "s" if len(ranks) > 1 else ""
        hosts = list(Hostlist.parse(self.ctx.attrs.get("hostlist", "")))
        names = Hostlist(hosts[rank] for rank in ranks) if hosts else ""
        note = f"lost contact with job shell on broker{many} {names} (rank{many} {ranks})"
        if job.runs_again:
            self._respond(job, "exception", {"severity": 1, "type": "node-failure", "note": f"{note}: queued again"})
            self._doom(job, self.settings.term_signal)
            return
        if fatal and job.requeues_left == 0:
            note = f"{note}: {js.REQUEUED_ENOUGH}"
        self._respond(job, "exception", {"severity": 0 if fatal else 2, "type": "node-failure", "note": note})

    def _finished(self, op: Op) -> None:
        job = self.jobs[op["id"]]
        bad = {rank: status for rank, status in op["bad"]}
        now = self.ctx.now()
        lead = job.ranks[0]
        events: list[Any] = [[now, "shell-exit", {"rank": lead, "wait_status": bad.pop(lead, 0)}]]
        events += [[now, "shell-exit", {"rank": rank, "wait_status": status}] for rank, status in sorted(bad.items())]
        self._append(job.id, _EVENTS, events)
        if "heir" in op:
            self._end(job, op["status"], {"heir": op["heir"]})
            self._adopt(op["heir"], job.ranks, op["t"])
        else:
            self._end(job, op["status"])

    def _end(self, job: Job, status: int, extra: Mapping[str, Any] = _NOTHING) -> None:
        """The last word on a job. The store has all its logs before the job manager is told."""
        now = self.ctx.now()
        if job.runs_again:
            # Nobody who follows its logs is at their end.
            extra = {**extra, "requeue": True}
        else:
            self._append(job.id, _EVENTS, [[now, "complete", {"status": status}], [now, "done", None]])
        self._save()
        if job.timer is not None:
            job.timer.cancel()
        if job.msg is not None:
            del self.jobs[job.id]
        self._respond(job, "finish", {"status": status, **extra} if job.runs_again else {"status": status})
        self._respond(job, "release", {"ranks": "all", "final": True, **extra})

    def _append(self, job: int, log: str, entries: list[Any], soon: bool = True) -> None:
        """Log `entries` at the end of this turn, or with what follows in a moment if not `soon`."""
        if soon:
            self.ctx.at_flush(self._save)
        elif not self.waiting:
            self.waiting = True
            self.ctx.call_later(_PATIENCE, self._save_waiting)
        pending = self.unsaved.get((job, log))
        if pending is None:
            self.unsaved[job, log] = list(entries)
        else:
            pending.extend(entries)

    def _save(self) -> None:
        if self.unsaved:
            unsaved, self.unsaved = self.unsaved, {}
            logs = [[job, log, entries] for (job, log), entries in unsaved.items()]
            self.ctx.call("job-store.append", {"logs": logs})

    def _save_waiting(self) -> None:
        self.waiting = False
        self._save()

    # -- signals and time

    def _job_exception(self, msg: Message) -> None:
        """The job manager posted an exception; a fatal one ends the job."""
        job = self.jobs.get(msg.obj["id"])
        if job is not None and msg.obj["severity"] == 0:
            job.runs_again = False
            self._doom(job, signal.SIGALRM if msg.obj.get("type") == "timeout" else self.settings.term_signal)

    def _doom(self, job: Job, signum: int) -> None:
        if job.doomed:
            # Until it is killed, who canceled it need not wait: a job that goes on after SIGALRM may end of this.
            if job.doomed == signal.SIGALRM != signum:
                job.doomed = signum
                self.node.down({"op": "kill", "id": job.id, "signum": int(signum)})
            return
        job.doomed = signum
        if job.sim is not None:
            self._end(job, signum)
            return
        self.node.down({"op": "kill", "id": job.id, "signum": int(signum)})
        job.timer = self.ctx.call_later(self.settings.kill_timeout, self._kill_harder, job)

    def _kill_harder(self, job: Job) -> None:
        """The first signal did not end it: SIGKILL, again and again, less and less often; then give its nodes up."""
        if job.id not in self.jobs:
            return
        if job.kills >= self.settings.max_kills:
            # Nobody may be started in its place any more.
            self._bring_back(lambda: self._give_up(job))
            return
        job.kills += 1
        self.node.down({"op": "kill", "id": job.id, "signum": self.settings.kill_signal, "all": True})
        wait = min(self.settings.kill_timeout * 2 ** (job.kills - 1), 300.0)
        job.timer = self.ctx.call_later(wait, self._kill_harder, job)

    def _give_up(self, job: Job) -> None:
        if job.id not in self.jobs:
            return
        text = jobid.encode(job.id)
        reason = f"unkillable user processes for job {text}"
        ranks = str(Idset(job.ranks))
        self.ctx.log(logging.ERROR, f"{reason}: draining rank {ranks}")
        self.ctx.call("resource.drain", {"targets": ranks, "reason": reason, "mode": "update"})
        self.node.parts.pop(job.id, None)
        self._end(job, signal.SIGKILL)

    def _kill(self, msg: Message) -> Any:
        """`job-exec.kill {id, signum}`: a signal to all tasks of a job.

        It follows the job's start wherever that goes, so it is not lost while nobody has heard of that.
        """
        job = self.jobs.get(msg.obj["id"])
        if job is None or (job.sim is not None and not job.running):
            raise RpcError(errno.EINVAL, "kill: job is not running")
        self._signal(job, msg.obj["signum"])
        return EMPTY

    def _signal(self, job: Job, signum: Any) -> None:
        if not isinstance(signum, int) or not 0 < signum < 65:
            raise RpcError(errno.EINVAL, f"invalid signal number {signum}")
        if job.sim is not None:
            self._end(job, signum)
        else:
            self.node.down({"op": "kill", "id": job.id, "signum": signum})

    def _shell_event(self, msg: Message) -> None:
        """`shell-<id>.kill {signum}`: how flux-core's job manager passes a signal on.

        The shells tell in the job's log what is wrong with an event, where its sender looks for the effect.
        """
        name, _, verb = msg.topic.removeprefix("shell-").partition(".")
        job = self.jobs.get(int(name)) if name.isdigit() else None
        if job is None or verb != "kill":
            return
        signum = msg.obj.get("signum") if isinstance(msg.obj, dict) else None
        if isinstance(signum, bool) or not isinstance(signum, int):
            signum = None
        if job.sim is None:
            self.node.down({"op": "kill", "id": job.id, "signum": signum})
        elif signum is not None and 0 < signum < 65:
            self._end(job, signum)

    def _expiration(self, msg: Message) -> Any:
        job_id, expiration = msg.obj["id"], msg.obj["expiration"]
        if job_id not in self.jobs:
            raise RpcError(errno.ENOENT, f"job {job_id} is not running")
        self.node.down({"op": "expiration", "id": job_id, "expiration": float(expiration)})
        return EMPTY

    def _critical_ranks(self, msg: Message) -> Any:
        """Which of the job's nodes, counted from 0, it cannot lose; by default it can lose none."""
        job = self.jobs.get(msg.obj["id"])
        if job is None:
            raise RpcError(errno.ENOENT, f"job {msg.obj['id']} is not running")
        if not msg.rolemask & 1 and msg.userid != job.userid:
            raise RpcError(errno.EPERM, "only the owner of a job may do that")
        try:
            job.critical = Idset.parse(msg.obj["ranks"])
        except IdsetError as exc:
            raise RpcError(errno.EINVAL, f"ranks: {exc}") from None
        return EMPTY
