"""The execution service of one broker, between its agent and its parent and children in the tree.

Every broker has one, rank 0 too. Reports from the agent or a child are combined if possible (start, finish, barrier)
and otherwise passed on (events, output), in one message for each link and loop turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.module.context import EMPTY, ModuleContext
from headrace.modules.job_exec.tree import HERE, LOST_STATUS, Part, split
from headrace.spec import jobid
from headrace.spec import message as m
from headrace.spec.hostlist import Hostlist
from headrace.spec.idset import Idset
from headrace.spec.job_exception import EXEC, FATAL
from headrace.spec.message import Message

if TYPE_CHECKING:
    from headrace.modules.job_exec.payload import Payloads
    from headrace.process.operations import (
        Barrier,
        FromAgent,
        FromPeer,
        JobOperation,
        Report,
        RpcReply,
        Start,
        ToPeer,
    )

# Bytes of output on their way to the parent from which the agent is not read, and below which it is read again.
_MOST, _FEW = 2 << 20, 1 << 20


class Node:
    """Jobs that run on or below this broker. On rank 0 `report` is the leader's; on others it sends to the parent."""

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.rank = ctx.rank
        self.parts: dict[int, Part] = {}
        self.report: Callable[[Report], None] = self._report_up
        self.shells = _ShellServices(ctx)
        # None until the first start, which most followers of an idle instance never get.
        self._payloads: Payloads | None = None
        self._up: list[Report] = []
        self._up_bytes = 0
        self._on_way = 0
        self._owed: list[Message] = []
        self._peers: dict[int, list[FromPeer]] = {}
        self._subtrees: dict[int, int] = {}
        self._look_below()
        ctx.tree.on_child_lost.append(self._child_lost)
        ctx.on_growth(self._look_below)
        agent = ctx.agent
        if agent is not None:
            agent.subscribe(self._from_agent)
        ctx.on_unload(self._unload)
        ctx.on_disconnect(self.shells.forget)

    def methods(self) -> dict[str, Any]:
        """Requests between the execution services of the tree."""
        return {"launch": self._on_launch, "up": self._on_up, "down": self._on_down, "peer": self._on_peer}

    def _unload(self) -> None:
        if self._payloads is not None:
            self._payloads.clear()
        if self.ctx.agent is not None:
            self.ctx.agent.unsubscribe(self._from_agent)
            self.ctx.agent.resume()
        if self._child_lost in self.ctx.tree.on_child_lost:
            self.ctx.tree.on_child_lost.remove(self._child_lost)
        self.shells.clear()

    def _look_below(self, _added: Idset | None = None) -> None:
        """Set the ranks below each child; the tree may have grown."""
        topology = self.ctx.tree.topology
        self._subtrees = {child: _bits(topology.subtree(child)) for child in topology.children(self.rank)}

    # -- down the tree

    def launch(self, job: dict[str, Any], targets: int) -> None:
        """Start `job` (id, userid, jobspec, R, ranks, expiration) on those ranks of `targets` that are at or below this
        broker.
        """
        here, below = split(targets, self.rank, self._subtrees)
        ranks = job["ranks"]
        nodeid = (0 if len(ranks) == 1 else ranks.index(self.rank)) if here else None
        part = self.parts[job["id"]] = Part(job, self.rank, nodeid, below)
        children = self.ctx.tree.children
        for child, members in below.items():
            if children and child in children and children[child].alive:
                body = {"job": job, "targets": str(Idset.from_bits(members))}
                self.ctx.call("job-exec.launch", body, nodeid=child)
            else:
                self._lost(part, child, members)
        if nodeid is not None:
            self._start(part, nodeid)

    def _start(self, part: Part, nodeid: int) -> None:
        job, agent = part.job, self.ctx.agent
        if agent is None:
            note = f"rank {self.rank} has no exec agent"
            self.report({"op": "exception", "id": job["id"], "severity": FATAL, "type": EXEC, "note": note})
            self._finish(HERE, job["id"], 1 << 8, None)
            return
        nodelist = job["R"]["execution"].get("nodelist", [])
        ranks = job["ranks"]
        hosts = nodelist if len(ranks) == 1 else list(Hostlist.parse(",".join(nodelist)))
        op = self._operation(job, nodeid, hosts)
        self.shells.add(op["service"], job["id"], job["userid"], nodeid == 0)
        agent.send(op)

    def _operation(self, job: dict[str, Any], nodeid: int, hosts: list[str]) -> Start:
        attrs, text = self.ctx.attrs, jobid.encode(job["id"])
        if self._payloads is None:
            from headrace.modules.job_exec.payload import Payloads

            self._payloads = Payloads(attrs.get("rundir", ""))
        jobspec, environment = self._payloads.of(job["jobspec"])
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
            "nodeid": nodeid,
            "nnodes": len(job["ranks"]),
            "rank": self.rank,
            "hosts": hosts,
            "ranks": job["ranks"],
        }
        hint = attrs.get("tbon.interface-hint", "")
        if hint not in ("", "default-route"):
            op["interface_hint"] = hint
        return op

    def down(self, op: JobOperation) -> None:
        """Send `op` (kill, expiration, barrier) to the job's shells at and below this broker."""
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
        self.down(msg.obj)
        return EMPTY

    # -- up the tree

    def _from_agent(self, op: FromAgent) -> None:
        match op["op"]:
            case "event" | "output" | "input" | "started" | "finish" | "barrier" | "exception":
                self._take(HERE, op)
            case "rpc-reply":
                self.shells.reply(op)
            case "peer":
                self._peer(op)
            case "gone":
                self._agent_gone()
            case "hello" | "exec-started" | "exec-output" | "exec-finished" | "exec-error":
                # These are for the agent's link and for the subprocess server.
                pass

    def _on_up(self, msg: Message) -> Any:
        source = msg.obj["rank"]
        for op in msg.obj["ops"]:
            self._take(source, op)
        if self._on_way + self._up_bytes > _MOST:
            self._owed.append(msg)
            return None
        return EMPTY

    def _take(self, source: int, op: Report) -> None:
        """Handle one report from below: combine it, or pass it on."""
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
        whole: Barrier = {"op": "barrier", "id": op["id"], "seq": op["seq"], "kvs": pairs}
        if self.rank == 0 or len(part.job["ranks"]) == 1:
            self.down(whole)
        else:
            self.report(whole)

    def _report_up(self, op: Report) -> None:
        if not self._up:
            self.ctx.at_flush(self._send_up)
        self._up.append(op)
        if op["op"] == "output":
            self._up_bytes += sum(len((entry[2] or {}).get("data") or "") for entry in op["entries"])

    def _send_up(self) -> None:
        ops, self._up = self._up, []
        size, self._up_bytes = self._up_bytes, 0
        # The parent responds to output when it has passed it on, which limits the output under way on each link.
        taken = (lambda _reply: self._taken(size)) if size else None
        self.ctx.call("job-exec.up", {"rank": self.rank, "ops": ops}, taken, self.rank, flags=m.FLAG_UPSTREAM)
        self._on_way += size
        if self._on_way > _MOST and self.ctx.agent is not None:
            self.ctx.agent.pause()

    def _taken(self, size: int) -> None:
        self._on_way -= size
        if self._on_way <= _FEW:
            if self.ctx.agent is not None:
                self.ctx.agent.resume()
            owed, self._owed = self._owed, []
            for msg in owed:
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
                # The operation is made anew, since the agent executes what it gets and must get only these fields.
                agent.send({"op": "peer", "id": op["id"], "from": op["from"], "data": op["data"]})
        return EMPTY

    # -- loss of a child and its subtree

    def _child_lost(self, rank: int, _ranks: frozenset[int]) -> None:
        for part in list(self.parts.values()):
            if rank in part.children and rank not in part.heard_finish:
                self._lost(part, rank, part.children[rank])

    def _agent_gone(self) -> None:
        for part in list(self.parts.values()):
            if part.here and HERE not in part.heard_finish:
                if part.nodeid:
                    self._shell_lost(part, part.nodeid)
                else:
                    self._lost(part, HERE, 1 << self.rank)

    def _shell_lost(self, part: Part, nodeid: int) -> None:
        """The agent with a shell of a job was killed. The node still exists, so the lead shell decides what follows."""
        job = part.job["id"]
        self._to_shell(part.job["ranks"][0], {"op": "peer", "id": job, "from": nodeid, "data": {"kind": "lost-shell"}})
        self._started(HERE, job)
        self._finish(HERE, job, LOST_STATUS, None)

    def _lost(self, part: Part, child: int, members: int) -> None:
        job = part.job["id"]
        self.report({"op": "lost", "id": job, "ranks": str(Idset.from_bits(members))})
        ranks = part.job["ranks"]
        for nodeid, rank in enumerate(ranks):
            if nodeid and members >> rank & 1:
                # The lead shell would otherwise wait for it.
                self._to_shell(ranks[0], {"op": "peer", "id": job, "from": nodeid, "data": {"kind": "done"}})
        self._started(child, job)
        bad = [[rank, LOST_STATUS] for rank in Idset.from_bits(members)]
        self._finish(child, job, LOST_STATUS, bad)


class _ShellServices:
    """The services `UID-shell-ƒID` of the shells on this node: a peer of the router that hands requests to the agent.

    One object provides all of them, so that a job costs only an entry in the router's table. Requests for a subprocess
    server (`UID-shell-ƒID.rexec`, RFC 42) are passed to the broker's own; all others are for lead shells.
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.uuid = ctx.uuid + "-shells"
        # (job, its user, whether its lead shell is here) by service name.
        self._by_name: dict[str, tuple[int, int, bool]] = {}
        self._by_job: dict[int, str] = {}
        self._waiting: dict[int, tuple[int, Message]] = {}
        self._token = 0

    def add(self, name: str, job: int, userid: int, lead: bool) -> None:
        self.ctx.delegate(name, self)
        self._by_name[name] = (job, userid, lead)
        self._by_job[job] = name

    def remove(self, job: int) -> None:
        name = self._by_job.pop(job, None)
        if name is None:
            return
        self._by_name.pop(name, None)
        self.ctx.end_delegation(name)
        if not self._waiting:
            return
        for token, (owner, msg) in list(self._waiting.items()):
            if owner == job:
                del self._waiting[token]
                self.ctx.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")

    def clear(self) -> None:
        for job in list(self._by_job):
            self.remove(job)

    def forget(self, sender: str) -> None:
        """A client has disconnected: forget the requests that it waits for."""
        for token, (_job, msg) in list(self._waiting.items()):
            if msg.sender == sender:
                del self._waiting[token]

    def send(self, msg: Message) -> None:
        """Handle a message from the router."""
        if msg.type != m.REQUEST:
            return
        name = msg.topic
        while name not in self._by_name:
            name, dot, _ = name.rpartition(".")
            if not dot:
                self.ctx.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")
                return
        job, userid, lead = self._by_name[name]
        if not msg.rolemask & m.ROLE_OWNER and msg.userid != userid:
            self.ctx.respond_error(msg, errno.EPERM, "only the owner of a job may talk to its shell")
            return
        method = msg.topic[len(name) + 1 :]
        if method == "disconnect":
            self.forget(msg.sender)
        agent = self.ctx.agent
        try:
            payload = dict(msg.obj or {})
        except (m.MessageError, TypeError, ValueError) as exc:
            self.ctx.respond_error(msg, errno.EPROTO, str(exc))
            return
        if method.startswith("rexec."):
            self._to_server(msg, method, payload, job, userid)
            return
        if not lead:
            self.ctx.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")
            return
        if method == "disconnect":
            payload["sender"] = msg.sender
        if agent is None:
            self.ctx.respond_error(msg, errno.ENOSYS, os.strerror(errno.ENOSYS))
            return
        self._token += 1
        if not msg.noresponse:
            self._waiting[self._token] = (job, msg)
        agent.send(
            {
                "op": "rpc",
                "id": job,
                "token": self._token,
                "method": method,
                "payload": payload,
                "userid": msg.userid,
                "streaming": msg.streaming,
                "sender": msg.sender,
            }
        )

    def _to_server(self, msg: Message, method: str, payload: dict[str, Any], job: int, userid: int) -> None:
        """Pass a request to this broker's subprocess server, which responds to the client itself."""
        owner = self.ctx.owner
        if not userid == msg.userid == owner:
            # Processes run as the instance's owner, so a role alone does not give another user access.
            self.ctx.respond_error(msg, errno.EPERM, "Access denied")
            return
        flags = msg.flags & (m.FLAG_STREAMING | m.FLAG_NORESPONSE)
        body = {**payload, "shell": {"job": job, "topic": msg.topic}}
        passed = m.request(method, body, self.ctx.rank, msg.matchtag, flags, owner, m.ROLE_OWNER)
        passed.routes.extend(msg.routes)
        self.ctx.forward(passed)

    def reply(self, op: RpcReply) -> None:
        token = op["token"]
        entry = self._waiting.get(token)
        if entry is None:
            return
        msg = entry[1]
        errnum = op["errnum"]
        if errnum or not msg.streaming:
            del self._waiting[token]
        if errnum:
            self.ctx.respond_error(msg, errnum, op["text"])
        else:
            self.ctx.respond(msg, op["payload"])


def _bits(ranks: frozenset[int]) -> int:
    bits = 0
    for rank in ranks:
        bits |= 1 << rank
    return bits
