"""The execution service of rank 0: RFC 32 towards the job manager, RFC 50 in the job's exec eventlog.

It leads every job from `start` to the final `release`; node.py is the service on each broker. A typical job costs one
operation to the agent and two messages to the job store: all events of a loop turn are appended in one message, which
is always sent before the job manager gets the job's end.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_hidden
from headrace.engine.modules.job_exec.job import Job, SimError, simulates_for_guests, simulation
from headrace.engine.modules.job_exec.node import EXIT_1_STATUS, TreeExec
from headrace.engine.modules.job_exec.settings import Settings
from headrace.engine.modules.job_exec.simulator import Simulator
from headrace.engine.modules.job_exec.tree import bits_of, ranks_of
from headrace.formats.config import guests
from headrace.formats.spec import jobid
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.formats.spec.job_exception import EXEC, FATAL, NODE_FAILURE, TIMEOUT
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.execution import JOB_EXEC

if TYPE_CHECKING:
    from headrace.engine.jobs.exec_responses import ExceptionData, ExecResponse, FinishData, ReleaseData
    from headrace.engine.process.operations import Finish, RaisedException, Report

_EVENTS = "guest.exec.eventlog"
# Seconds for which the first entries of an exec eventlog are delayed, to be sent together with the shells' entries.
_SAVE_DELAY = 0.01


class Leader:
    """All jobs of the instance; on rank 0 only."""

    def __init__(self, ctx: ModuleContext, node: TreeExec, args: list[str]) -> None:
        self.ctx = ctx
        self.node = node
        self.jobs: dict[int, Job] = {}
        # True once the job manager has answered the hello. Earlier requests were sent to an earlier load.
        self.taking = False
        self.unsaved: dict[tuple[int, str], list[Any]] = {}
        self.waiting = False
        self.args = args
        self.settings = Settings(ctx.config, args)
        self.simulates_for_guests = simulates_for_guests(ctx.config)
        node.report = self._report
        self.simulator = Simulator(ctx, self.jobs, self._running, self._fail, self._end)
        methods = {
            "start": self._start,
            "kill": self._kill,
            "expiration": self._expiration,
            "override": self.simulator.override,
            "critical-ranks": self._critical_ranks,
        }
        ctx.service("job-exec", {**node.methods(), **methods}, open=("critical-ranks",), requests=JOB_EXEC)
        ctx.subscribe("job-exception", self._job_exception)
        ctx.subscribe("shell-", self._shell_event)
        ctx.on_config(self._configure)
        ctx.on_stats(self._stats)
        ctx.on_unload(self._unload)
        ctx.call("job-manager.exec-hello", {"service": "job-exec"}, self._hello)

    def _hello(self, reply: Message) -> None:
        if reply.errnum:
            text = reply.text or os.strerror(reply.errnum)
            self.ctx.log(logging.ERROR, f"job-manager.exec-hello: {text}: no job can be started")
        else:
            self.taking = True

    def _configure(self, config: dict[str, Any]) -> None:
        self.settings = Settings(config, self.args)
        # As in Flux, a configuration without the key keeps what an earlier one said.
        self.simulates_for_guests = simulates_for_guests(config, self.simulates_for_guests)

    def _stats(self) -> dict[str, Any]:
        running = sum(job.running for job in self.jobs.values())
        jobs = {"active": len(self.jobs), "running": running}
        return {**self.settings.stats(), "jobs": jobs, "parts": len(self.node.parts)}

    # -- start

    def _start(self, msg: Message) -> None:
        body = msg.obj
        job_id = body["id"]
        if job_id in self.jobs:
            raise RpcError(errno.EEXIST, f"job {job_id} is already started")
        if not self.taking:
            raise RpcError(errno.ENOSYS, "the service is not ready to start jobs")
        ranks = ranks_of(body["R"])
        job = self.jobs[job_id] = Job(job_id, body["userid"], msg, ranks)
        if js.system(body["jobspec"]).get("requeue") is True:
            job.requeues_left = body.get("requeues_left", 1)
        if body.get("reattach"):
            self._fail(job, "lost when the broker restarted")
            return
        now = self.ctx.now()
        self._append(job_id, _EVENTS, [[now, "init", None], [now, "starting", None]], soon=False)
        try:
            job.sim = simulation(body["jobspec"])
        except SimError as exc:
            self._fail(job, str(exc))
            return
        is_guests = job.userid != self.ctx.owner
        if is_guests and (why := self._refusal(job)):
            # The job passed ingest because the owner submitted it for another user, or because the configuration was
            # different then.
            self._fail(job, why)
            return
        if not ranks:
            self._fail(job, "R has no rank on which to start the job")
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
                # Decided here for all nodes, regardless of the configuration of other brokers.
                "as_user": is_guests and guests.submit(self.ctx.config) == guests.AS_USER,
                "pam_service": guests.pam_service(self.ctx.config),
                **({"most_output": guests.limit(self.ctx.config, "output-bytes")} if is_guests else {}),
            },
            bits_of(ranks),
        )

    def _refusal(self, job: Job) -> str:
        """Why the instance does not run this job of a guest; "" if it does."""
        if job.sim is not None and self.simulates_for_guests:
            return ""
        if guests.submit(self.ctx.config) == guests.REFUSE:
            why = f'{guests.KEY} is "{guests.REFUSE}"'
            return f"this instance runs jobs of its owner only, this one is of user {job.userid}: {why}"
        return guests.below_least(self.ctx.config, job.userid)

    def _fail(self, job: Job, note: str) -> None:
        self._raise(job, {"severity": FATAL, "type": EXEC, "note": note})
        self._end(job, EXIT_1_STATUS)

    def _respond(self, job: Job, response: ExecResponse) -> None:
        self.ctx.respond(job.msg, response)

    def _running(self, job: Job) -> None:
        """Report that the job runs on all its nodes."""
        job.running = True
        self._respond(job, {"id": job.id, "type": "start", "data": {}})

    def _raise(self, job: Job, data: ExceptionData) -> None:
        self._respond(job, {"id": job.id, "type": "exception", "data": data})

    def _unload(self) -> None:
        """End all jobs, since no service watches them after this module is unloaded."""
        for job in self.jobs.values():
            self.node.down({"op": "kill", "id": job.id, "signum": int(signal.SIGKILL), "all": True})
            self.ctx.respond_error(job.msg, errno.ECONNRESET, "the module was unloaded")

    # -- reports of the shells

    def _report(self, op: Report) -> None:
        job = self.jobs.get(op["id"])
        if job is None:
            return
        match op["op"]:
            case "event":
                self._append(job.id, _EVENTS, [[op["t"], op["name"], op["context"]]])
            case "output" | "input":
                self._append(job.id, f"guest.{op['op']}", op["entries"])
            case "started":
                self._started(job)
            case "finish":
                self._finished(job, op)
            case "exception":
                self._exception(job, op)
            case "lost":
                self._lost(job, Idset.parse(op["ranks"]))
            case "barrier":
                # TreeExec on rank 0 completes barriers.
                pass

    def _started(self, job: Job) -> None:
        if not job.running and not job.failed:
            self._running(job)

    def _exception(self, job: Job, op: RaisedException) -> None:
        data: ExceptionData = {"severity": op["severity"], "type": op["type"], "note": op["note"]}
        if "wait_status" in op:
            data["wait_status"] = op["wait_status"]
        job.failed = job.failed or data["severity"] == FATAL
        job.start_failure = max(job.start_failure, op.get("status", 0))
        # The job store must have the shell's log entries about the exception first.
        self._save()
        self._raise(job, data)

    def _lost(self, job: Job, ranks: Idset) -> None:
        nodes = Idset([nodeid for nodeid, rank in enumerate(job.ranks) if rank in ranks])
        fatal = job.critical is None or bool(nodes & job.critical)
        job.runs_again = job.runs_again or bool(fatal and job.requeues_left and not job.failed and not job.doomed)
        job.failed = job.failed or fatal
        many = "s" if len(ranks) > 1 else ""
        hosts = list(Hostlist.parse(self.ctx.attrs.get("hostlist", "")))
        names = Hostlist(hosts[rank] for rank in ranks) if hosts else ""
        note = f"lost contact with job shell on broker{many} {names} (rank{many} {ranks})"
        if job.runs_again:
            self._raise(job, {"severity": 1, "type": NODE_FAILURE, "note": f"{note}: queued again"})
            self._doom(job, self.settings.term_signal)
            return
        if fatal and job.requeues_left == 0:
            note = f"{note}: {js.REQUEUED_ENOUGH}"
        self._raise(job, {"severity": FATAL if fatal else 2, "type": NODE_FAILURE, "note": note})

    def _finished(self, job: Job, op: Finish) -> None:
        bad = {rank: status for rank, status in op["bad"]}
        now = self.ctx.now()
        lead = job.ranks[0]
        events: list[Any] = [[now, "shell-exit", {"rank": lead, "wait_status": bad.pop(lead, 0)}]]
        events += [[now, "shell-exit", {"rank": rank, "wait_status": status}] for rank, status in sorted(bad.items())]
        self._append(job.id, _EVENTS, events)
        self._end(job, job.start_failure or op["status"])

    def _end(self, job: Job, status: int) -> None:
        """Send the final responses of a job, after all its log entries have been sent to the job store."""
        now = self.ctx.now()
        # If the job is requeued, its logs are continued.
        if not job.runs_again:
            self._append(job.id, _EVENTS, [[now, "complete", {"status": status}], [now, "done", None]])
        self._save()
        if job.timer is not None:
            job.timer.cancel()
        del self.jobs[job.id]
        finish: FinishData = {"status": status}
        release: ReleaseData = {"ranks": "all", "final": True}
        if job.runs_again:
            finish["requeue"] = release["requeue"] = True
        self._respond(job, {"id": job.id, "type": "finish", "data": finish})
        self._respond(job, {"id": job.id, "type": "release", "data": release})

    def _append(self, job: int, log: str, entries: list[Any], soon: bool = True) -> None:
        """Append `entries` to a log, at the end of this turn if `soon`, else after _SAVE_DELAY."""
        if soon:
            self.ctx.at_flush(self._save)
        elif not self.waiting:
            self.waiting = True
            self.ctx.call_later(_SAVE_DELAY, self._save_waiting)
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
        """Handle an exception that the job manager has posted. A fatal exception ends the job."""
        job = self.jobs.get(msg.obj["id"])
        if job is not None and msg.obj["severity"] == FATAL:
            job.runs_again = False
            self._doom(job, signal.SIGALRM if msg.obj.get("type") == TIMEOUT else self.settings.term_signal)

    def _doom(self, job: Job, signum: int) -> None:
        if job.doomed:
            # A job that continues after SIGALRM may end on this signal, so a cancellation need not wait for SIGKILL.
            if job.doomed == signal.SIGALRM != signum:
                job.doomed = signum
                self.node.down({"op": "kill", "id": job.id, "signum": int(signum)})
            return
        job.doomed = signum
        if job.sim is not None:
            self._end(job, signum)
            return
        self.node.down({"op": "kill", "id": job.id, "signum": int(signum)})
        job.doomed_at = self.ctx.monotonic()
        job.timer = self.ctx.call_later(self.settings.kill_timeout, self._kill_harder, job)

    def _kill_harder(self, job: Job) -> None:
        """Send SIGKILL, since the first signal did not end the job; repeat at growing intervals.

        After the configured time or number of signals, the job's nodes are drained.
        """
        if job.id not in self.jobs:
            return
        settings = self.settings
        remaining = job.doomed_at + settings.max_kill_timeout - self.ctx.monotonic()
        if remaining <= 0 if settings.max_kill_timeout else job.kills >= settings.max_kills:
            self._give_up(job)
            return
        job.kills += 1
        self.node.down({"op": "kill", "id": job.id, "signum": settings.kill_signal, "all": True})
        wait = min(settings.kill_timeout * 2.0 ** min(job.kills - 1, 32), 300.0)
        if settings.max_kill_timeout:
            wait = min(wait, remaining)
        job.timer = self.ctx.call_later(wait, self._kill_harder, job)

    def _give_up(self, job: Job) -> None:
        text = jobid.encode(job.id)
        reason = f"unkillable user processes for job {text}"
        ranks = str(Idset(job.ranks))
        self.ctx.log(logging.ERROR, f"{reason}: draining rank {ranks}")
        self.ctx.call("resource.drain", {"targets": ranks, "reason": reason, "mode": "update"})
        self.node.parts.pop(job.id, None)
        self._end(job, signal.SIGKILL)

    def _kill(self, msg: Message) -> Any:
        """`job-exec.kill {id, signum}`: send a signal to all tasks of a job.

        The signal takes the same path as the job's start, so it cannot overtake the start.
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
        """Event `shell-<id>.kill {signum}`, by which flux-core's job manager sends signals.

        The shells report errors in the event in the job's log, where the sender looks for the effect.
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
        """`job-exec.critical-ranks {id, ranks}`: set the nodes (by index in the job) whose loss ends the job.

        By default, the loss of any node ends the job.
        """
        job = self.jobs.get(msg.obj["id"])
        if job is None or is_hidden(self.ctx, msg, job.userid):
            raise RpcError(errno.ENOENT, f"job {msg.obj['id']} is not running")
        if not msg.rolemask & 1 and msg.userid != job.userid:
            raise RpcError(errno.EPERM, "only the owner of a job may do that")
        try:
            job.critical = Idset.parse(msg.obj["ranks"])
        except IdsetError as exc:
            raise RpcError(errno.EINVAL, f"ranks: {exc}") from None
        return EMPTY
