"""The execution service of one broker, between its agent and its parent and children in the tree.

Every broker has one, including rank 0. Reports from the agent and the children are combined if possible (start, finish,
barrier) and passed on otherwise (events, output), in one message per link and loop turn.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.job_exec.shell_services import ShellServices
from headrace.engine.modules.job_exec.tree import HERE, LOST_STATUS, Part, split
from headrace.formats.spec import jobid
from headrace.formats.spec import message as m
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_exception import EXEC, FATAL
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.agent.environments import Named
    from headrace.engine.process.operations import (
        Barrier,
        Environment,
        FromAgent,
        FromPeer,
        Kill,
        Report,
        SetExpiration,
        Start,
        ToPeer,
    )
    from headrace.formats.spec.jobspec import Bare

# The wait status (waitpid(2)) of exit code 1, used for a job or shell that could not be started.
EXIT_1_STATUS = 1 << 8
# Back-pressure: if more bytes of output than the first limit are on their way to the parent, the agent is not read
# until their number has fallen to the second.
_PAUSE_ABOVE, _RESUME_BELOW = 2 << 20, 1 << 20


class TreeExec:
    """The execution service at one broker of the tree.

    It starts the shells of jobs on this node, passes starts and signals down to its children, and combines the reports
    from below.

    `parts` has the jobs with a shell at or below this broker. `report` is called with each report that goes up. On rank
    0 the leader sets it, elsewhere it sends the report to the parent.

    `job_nodeid` is the index of a node in a job, from 0, in the order of broker ranks. The parameter `nodeid` of
    `ctx.call` is a broker rank (RFC 3).
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.rank = ctx.rank
        self.parts: dict[int, Part] = {}
        self.report: Callable[[Report], None] = self._report_up
        self.shells = ShellServices(ctx)
        # Environments that several jobs share, and the function that removes the environment from a jobspec. They are
        # None until the first start, so that a broker without jobs does not load the code for them.
        self._environments: Named | None = None
        self._bare: Bare | None = None
        # The reports of this loop turn for the parent, and the bytes of output in them.
        self._up: list[Report] = []
        self._up_bytes = 0
        # Bytes of output that were sent to the parent and not acknowledged yet.
        self._on_way = 0
        # `up` requests of children whose responses are delayed until less output is on its way to the parent.
        self._owed: list[Message] = []
        # The operations of this loop turn for shells on other brokers, by broker rank.
        self._peers: dict[int, list[FromPeer]] = {}
        # For each child, the ranks at and below it, as a bit set.
        self._subtrees: dict[int, int] = {}
        self._update_subtrees()
        ctx.tree.on_child_lost.append(self._child_lost)
        ctx.on_growth(self._update_subtrees)
        agent = ctx.agent
        if agent is not None:
            agent.subscribe(self._from_agent)
        ctx.on_unload(self._unload)
        ctx.on_disconnect(self.shells.forget)

    def methods(self) -> dict[str, Any]:
        """The handlers of requests between the execution services of the tree."""
        return {"launch": self._on_launch, "up": self._on_up, "down": self._on_down, "peer": self._on_peer}

    def _unload(self) -> None:
        if self._environments is not None:
            self._environments.clear()
        if self.ctx.agent is not None:
            self.ctx.agent.unsubscribe(self._from_agent)
            self.ctx.agent.resume()
        if self._child_lost in self.ctx.tree.on_child_lost:
            self.ctx.tree.on_child_lost.remove(self._child_lost)
        self.shells.clear()

    def _update_subtrees(self, _added: Idset | None = None) -> None:
        """Update the ranks below each child, since the tree may have grown."""
        topology = self.ctx.tree.topology
        self._subtrees = {child: _bits(topology.subtree(child)) for child in topology.children(self.rank)}

    # -- down the tree

    def launch(self, job: dict[str, Any], target_bits: int) -> None:
        """Start a job on `target_bits`, the job's ranks at or below this broker, as a bit set.

        `job` has the keys id, userid, jobspec, R, ranks, expiration, as_user, pam_service and, for guests, most_output.
        """
        here, below = split(target_bits, self.rank, self._subtrees)
        ranks = job["ranks"]
        job_nodeid = (0 if len(ranks) == 1 else ranks.index(self.rank)) if here else None
        part = self.parts[job["id"]] = Part(job, self.rank, job_nodeid, below)
        children = self.ctx.tree.children
        for child, members in below.items():
            if children and child in children and children[child].alive:
                body = {"job": job, "targets": str(Idset.from_bits(members))}
                self.ctx.call("job-exec.launch", body, nodeid=child)
            else:
                self._lost(part, child, members)
        if job_nodeid is not None:
            self._start(part, job_nodeid)

    def _start(self, part: Part, job_nodeid: int) -> None:
        job, agent = part.job, self.ctx.agent
        if agent is None:
            note = f"rank {self.rank} has no exec agent"
            self.report({"op": "exception", "id": job["id"], "severity": FATAL, "type": EXEC, "note": note})
            self._finish(HERE, job["id"], EXIT_1_STATUS, None)
            return
        nodelist = job["R"]["execution"].get("nodelist", [])
        ranks = job["ranks"]
        hosts = nodelist if len(ranks) == 1 else list(Hostlist.parse(",".join(nodelist)))
        op = self._start_operation(job, job_nodeid, hosts)
        self.shells.add(op["service"], job["id"], job["userid"], lead=job_nodeid == 0)
        agent.send(op)

    def _start_operation(self, job: dict[str, Any], job_nodeid: int, hosts: list[str]) -> Start:
        attrs, text = self.ctx.attrs, jobid.encode(job["id"])
        as_user = job.get("as_user") is True
        # Guests must not read files of the broker, so they get the environment in the jobspec.
        jobspec, environment = (job["jobspec"], None) if as_user else self._payload(job["jobspec"])
        op: Start = {
            "op": "start",
            "id": job["id"],
            "jobspec": jobspec,
            "environment": environment,
            "userid": job["userid"],
            "uri": attrs.get("local-uri"),
            "rundir": attrs.get("rundir"),
            "idpath": attrs.get("jobid-path", "/").rstrip("/") + "/" + text,
            "instance_level": int(attrs.get("instance-level", "0")),
            "expiration": job["expiration"],
            "service": f"{job['userid']}-shell-f{text[1:]}",
            "R": job["R"],
            "nodeid": job_nodeid,
            "nnodes": len(job["ranks"]),
            "rank": self.rank,
            "hosts": hosts,
            "ranks": job["ranks"],
        }
        if as_user:
            op["as_user"] = True
            op["pam_service"] = job.get("pam_service", "")
        if "most_output" in job:
            op["most_output"] = job["most_output"]
        hint = attrs.get("tbon.interface-hint", "")
        if hint not in ("", "default-route"):
            op["interface_hint"] = hint
        return op

    def _payload(self, jobspec: dict[str, Any]) -> tuple[dict[str, Any], Environment | None]:
        """The `jobspec` and `environment` of a start operation.

        If the environment has a name, the jobspec without environment and the name, else the complete jobspec and None.
        """
        from headrace.formats.spec import jobspec as js

        if self._environments is None or self._bare is None:
            from headrace.engine.agent.environments import Named

            self._environments, self._bare = Named(self.ctx.attrs.get("rundir", "")), js.Bare()
        named = self._environments.name(js.environment(jobspec))
        return (jobspec, None) if named is None else (self._bare.of(jobspec), named)

    def down(self, op: Kill | SetExpiration | Barrier) -> None:
        """Send `op` to the job's shells at and below this broker."""
        part = self.parts.get(op["id"])
        if part is None:
            return
        for child in part.children:
            if child not in part.heard_finish:
                self.ctx.call("job-exec.down", op, nodeid=child)
        if part.here and HERE not in part.heard_finish and self.ctx.agent is not None:
            self.ctx.agent.send(op)

    def _on_launch(self, msg: Message) -> Any:
        self.launch(msg.obj["job"], Idset.parse(msg.obj["targets"]).bits)
        return EMPTY

    def _on_down(self, msg: Message) -> Any:
        self.down(_from_request(msg.obj))
        return EMPTY

    # -- up the tree

    def _from_agent(self, op: FromAgent) -> None:
        match op["op"]:
            case "event" | "output" | "input" | "started" | "finish" | "barrier" | "exception":
                self._take(HERE, op)
            case "rpc-reply":
                self.shells.reply(op)
            case "rpc-drain":
                self.shells.drain(op["id"], op["token"])
            case "peer":
                self._peer(op)
            case "gone":
                self._agent_gone()
            case "hello" | "exec-started" | "exec-output" | "exec-finished" | "exec-error":
                # Handled by the agent's link and the subprocess server.
                pass

    def _on_up(self, msg: Message) -> Any:
        source = msg.obj["rank"]
        for op in msg.obj["ops"]:
            self._take(source, op)
        if self._on_way + self._up_bytes > _PAUSE_ABOVE:
            # Without a response, the child will pause its own agent when too much of its output is unacknowledged.
            self._owed.append(msg)
            return None
        return EMPTY

    def _take(self, source: int, op: Report) -> None:
        """Combine a report from below with others, or pass it on."""
        match op["op"]:
            case "started":
                self._started(source, op["id"])
            case "finish":
                self._finish(source, op["id"], op["status"], op.get("bad"))
            case "barrier":
                self._barrier(source, op)
            case _:
                self.report(op)

    def _started(self, source: int, job: int) -> None:
        part = self.parts.get(job)
        if part is not None and part.started(source):
            self.report({"op": "started", "id": job})

    def _finish(self, source: int, job: int, status: int, bad: list[list[int]] | None) -> None:
        """Handle the end of all shells of a subtree. `status` is the largest of their wait statuses.

        `bad` has [rank, wait status] of each failed shell. It is None for this broker's own shell.
        """
        part = self.parts.get(job)
        if part is None:
            return
        if bad is None:
            bad = [[self.rank, status]] if status else []
        if source == HERE:
            self.shells.remove(job)
        if part.finished(source, status, bad):
            del self.parts[job]
            self.report({"op": "finish", "id": job, "status": part.finish.status, "bad": part.finish.bad})

    def _barrier(self, source: int, op: Barrier) -> None:
        part = self.parts.get(op["id"])
        if part is None:
            return
        pairs = part.barrier(source, op["seq"], op["kvs"])
        if pairs is None:
            return
        merged: Barrier = {"op": "barrier", "id": op["id"], "seq": op["seq"], "kvs": pairs}
        # At rank 0, all shells of the job have entered the barrier. A job with one rank has no other shells, so its
        # barrier is complete here and is not sent to rank 0.
        if self.rank == 0 or len(part.job["ranks"]) == 1:
            self.down(merged)
        else:
            self.report(merged)

    def _report_up(self, op: Report) -> None:
        if not self._up:
            self.ctx.at_flush(self._send_up)
        self._up.append(op)
        if op["op"] == "output":
            self._up_bytes += sum(len((entry[2] or {}).get("data") or "") for entry in op["entries"])

    def _send_up(self) -> None:
        ops, self._up = self._up, []
        size, self._up_bytes = self._up_bytes, 0
        # The parent responds when it has passed the output on. This limits the output on each link.
        taken = (lambda _reply: self._passed_on(size)) if size else None
        self.ctx.call("job-exec.up", {"rank": self.rank, "ops": ops}, taken, self.rank, flags=m.FLAG_UPSTREAM)
        self._on_way += size
        if self._on_way > _PAUSE_ABOVE and self.ctx.agent is not None:
            self.ctx.agent.pause()

    def _passed_on(self, size: int) -> None:
        self._on_way -= size
        if self._on_way <= _RESUME_BELOW:
            if self.ctx.agent is not None:
                self.ctx.agent.resume()
            delayed, self._owed = self._owed, []
            for msg in delayed:
                self.ctx.respond(msg)

    # -- between the shells of one job

    def _peer(self, op: ToPeer) -> None:
        part = self.parts.get(op["id"])
        if part is None or part.nodeid is None:
            return
        ranks = part.job["ranks"]
        to = op["to"]
        if not 0 <= to < len(ranks):
            return
        self._to_shell(ranks[to], {"op": "peer", "id": op["id"], "from": part.nodeid, "data": op["data"]})

    def _to_shell(self, rank: int, out: FromPeer) -> None:
        if rank == self.rank:
            self.ctx.agent.send(out)  # type: ignore[union-attr]
            return
        if not self._peers:
            self.ctx.at_flush(self._send_peers)
        self._peers.setdefault(rank, []).append(out)

    def _send_peers(self) -> None:
        peers, self._peers = self._peers, {}
        for rank, ops in peers.items():
            self.ctx.call("job-exec.peer", {"ops": ops}, nodeid=rank)

    def _on_peer(self, msg: Message) -> Any:
        agent = self.ctx.agent
        if agent is not None:
            for op in msg.obj["ops"]:
                # The operation is rebuilt, because the agent executes every operation that it gets: the sender of the
                # request must not choose `op`.
                agent.send({"op": "peer", "id": op["id"], "from": op["from"], "data": op["data"]})
        return EMPTY

    # -- loss of a child and its subtree

    def _child_lost(self, rank: int, _ranks: frozenset[int]) -> None:
        for part in list(self.parts.values()):
            if rank in part.children and rank not in part.heard_finish:
                self._lost(part, rank, part.children[rank])

    def _agent_gone(self) -> None:
        for part in list(self.parts.values()):
            if part.nodeid is None or HERE in part.heard_finish:
                continue
            if part.nodeid == 0:
                # The job's lead shell ended with the agent. No other shell can handle the loss, so it is treated as
                # the loss of this node.
                self._lost(part, HERE, 1 << self.rank)
            else:
                self._shell_lost(part, part.nodeid)

    def _shell_lost(self, part: Part, job_nodeid: int) -> None:
        """Handle the loss of a shell whose agent was killed.

        The node still exists, so the lead shell decides how the job continues.
        """
        job, lead_rank = part.job["id"], part.job["ranks"][0]
        self._to_shell(lead_rank, {"op": "peer", "id": job, "from": job_nodeid, "data": {"kind": "lost-shell"}})
        self._started(HERE, job)
        self._finish(HERE, job, LOST_STATUS, None)

    def _lost(self, part: Part, source: int, members: int) -> None:
        """Handle the loss of a subtree, or of the lead shell here. `members` are its ranks, as a bit set."""
        job = part.job["id"]
        self.report({"op": "lost", "id": job, "ranks": str(Idset.from_bits(members))})
        ranks = part.job["ranks"]
        for job_nodeid, rank in enumerate(ranks):
            if job_nodeid > 0 and members >> rank & 1:
                # Otherwise the lead shell (node 0) would wait for this shell.
                self._to_shell(ranks[0], {"op": "peer", "id": job, "from": job_nodeid, "data": {"kind": "done"}})
        self._started(source, job)
        bad = [[rank, LOST_STATUS] for rank in Idset.from_bits(members)]
        self._finish(source, job, LOST_STATUS, bad)


def _from_request(body: dict[str, Any]) -> Kill | SetExpiration | Barrier:
    """The operation of a `down` request, with only the fields of its type. Raises RpcError(EPROTO).

    The operation is rebuilt, because the agent executes every operation that it gets, and any client with the role
    OWNER can send this request.
    """
    job, op = body["id"], body["op"]
    try:
        match op:
            case "kill":
                kill: Kill = {"op": "kill", "id": job, "signum": body["signum"]}
                if "all" in body:
                    kill["all"] = body["all"]
                return kill
            case "expiration":
                return {"op": "expiration", "id": job, "expiration": body["expiration"]}
            case "barrier":
                return {"op": "barrier", "id": job, "seq": body["seq"], "kvs": body["kvs"]}
            case _:
                raise RpcError(errno.EPROTO, f"job-exec.down: op is {op!r}, it must be kill, expiration or barrier")
    except KeyError as exc:
        raise RpcError(errno.EPROTO, f"job-exec.down: {op}: missing field {exc}") from None


def _bits(ranks: frozenset[int]) -> int:
    bits = 0
    for rank in ranks:
        bits |= 1 << rank
    return bits
