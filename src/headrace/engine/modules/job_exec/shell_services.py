"""The services `UID-shell-ƒID` of the job shells on one broker's node.

The lead shell of a job answers requests for standard input, signals, terminals and the like. It runs in the agent,
which is not a peer of the router. So one object here receives all of these requests and passes them to the agent.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.module.privacy import is_hidden
from headrace.engine.broker.services import drain
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.process.operations import RpcReply


class _Service(NamedTuple):
    """The service of a shell. `userid` is the job's user, `lead` is True for the job's lead shell."""

    job: int
    userid: int
    lead: bool


class ShellServices:
    """A peer of the router that provides the services of all shells on this node.

    One object provides all services, so that a job costs only an entry in the router's table. Requests to a subprocess
    server (`UID-shell-ƒID.rexec`, RFC 42) are passed to the subprocess server of the broker, on every node of a job.
    All other requests are passed to the agent, only on the node of the lead shell.
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.uuid = ctx.uuid + "-shells"
        self._by_name: dict[str, _Service] = {}
        self._name_by_job: dict[int, str] = {}
        # Unfinished requests to the agent, each with its job id, by the token in the agent's replies.
        self._waiting: dict[int, tuple[int, Message]] = {}
        self._last_token = 0

    def add(self, name: str, job: int, userid: int, lead: bool) -> None:
        """Provide the service `name` of a job's shell on this node."""
        self.ctx.delegate(name, self)
        self._by_name[name] = _Service(job, userid, lead)
        self._name_by_job[job] = name

    def remove(self, job: int) -> None:
        """Withdraw the service of a job whose shell has ended. Unanswered requests get ENOSYS."""
        name = self._name_by_job.pop(job, None)
        if name is None:
            return
        self._by_name.pop(name, None)
        self.ctx.end_delegation(name)
        if not self._waiting:
            return
        for token, (owner, msg) in list(self._waiting.items()):
            if owner == job:
                del self._waiting[token]
                self._refuse_unknown(msg)

    def clear(self) -> None:
        """Withdraw all services."""
        for job in list(self._name_by_job):
            self.remove(job)

    def forget(self, sender: str) -> None:
        """Drop the unanswered requests of a client that has disconnected."""
        for token, (_job, msg) in list(self._waiting.items()):
            if msg.sender == sender:
                del self._waiting[token]

    def send(self, msg: Message) -> None:
        """Handle a message from the router."""
        if msg.type != m.REQUEST:
            return
        name = self._name_in(msg.topic)
        if name is None:
            self._refuse_unknown(msg)
            return
        service = self._by_name[name]
        if is_hidden(self.ctx, msg, service.userid):
            # The same error as the router's for a job that does not exist.
            self.ctx.respond_error(msg, errno.ENOSYS, f"No service matching {msg.topic} is registered")
            return
        if not msg.rolemask & m.ROLE_OWNER and msg.userid != service.userid:
            self.ctx.respond_error(msg, errno.EPERM, "only the owner of a job may talk to its shell")
            return
        try:
            payload = dict(msg.obj or {})
        except (m.MessageError, TypeError, ValueError) as exc:
            self.ctx.respond_error(msg, errno.EPROTO, str(exc))
            return
        method = msg.topic[len(name) + 1 :]
        if method == "disconnect":
            self.forget(msg.sender)
            # The shell needs the sender to drop its own state for this client.
            payload["sender"] = msg.sender
        if method.startswith("rexec."):
            self._to_subprocess_server(msg, method, payload, service)
        elif service.lead:
            self._to_lead_shell(msg, method, payload, service.job)
        else:
            self._refuse_unknown(msg)

    def _name_in(self, topic: str) -> str | None:
        """The service in a topic; None if it is not the service of a shell here. Methods may have dots."""
        name = topic
        while name not in self._by_name:
            name, dot, _ = name.rpartition(".")
            if not dot:
                return None
        return name

    def _refuse_unknown(self, msg: Message) -> None:
        self.ctx.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")

    def _to_lead_shell(self, msg: Message, method: str, payload: dict[str, Any], job: int) -> None:
        """Pass a request to the agent. Its replies are handled by `reply`."""
        agent = self.ctx.agent
        if agent is None:
            self.ctx.respond_error(msg, errno.ENOSYS, os.strerror(errno.ENOSYS))
            return
        self._last_token += 1
        if not msg.noresponse:
            self._waiting[self._last_token] = (job, msg)
        agent.send(
            {
                "op": "rpc",
                "id": job,
                "token": self._last_token,
                "method": method,
                "payload": payload,
                "userid": msg.userid,
                "streaming": msg.streaming,
                "sender": msg.sender,
            }
        )

    def _to_subprocess_server(self, msg: Message, method: str, payload: dict[str, Any], service: _Service) -> None:
        """Pass a request to this broker's subprocess server, which responds to the client itself."""
        owner = self.ctx.owner
        if not service.userid == msg.userid == owner:
            # Processes run as the instance owner, so the role OWNER does not give another user access.
            self.ctx.respond_error(msg, errno.EPERM, "Access denied")
            return
        flags = msg.flags & (m.FLAG_STREAMING | m.FLAG_NORESPONSE)
        body = {**payload, "shell": {"job": service.job, "topic": msg.topic}}
        passed = m.request(method, body, self.ctx.rank, msg.matchtag, flags, owner, m.ROLE_OWNER)
        passed.routes.extend(msg.routes)
        self.ctx.forward(passed)

    def reply(self, op: RpcReply) -> None:
        """Send a reply of the agent to the client, if the client still waits for it."""
        token = op["token"]
        entry = self._waiting.get(token)
        if entry is None:
            return
        msg = entry[1]
        errnum = op["errnum"]
        if errnum or not msg.streaming:
            # An error ends a stream (RFC 6).
            del self._waiting[token]
        if errnum:
            self.ctx.respond_error(msg, errnum, op["text"])
        else:
            self.ctx.respond(msg, op["payload"])

    def drain(self, job: int, token: int) -> None:
        """Notify the agent when the client of stream `token` has received all data so far, or is gone."""
        entry = self._waiting.get(token)
        if entry is None:
            self._send_drained(job, token)
            return
        route = drain.route_of(entry[1])
        self.ctx.call(drain.TOPIC, route, lambda _reply: self._send_drained(job, token), self.ctx.rank)

    def _send_drained(self, job: int, token: int) -> None:
        if self.ctx.agent is not None:
            self.ctx.agent.send({"op": "rpc-drained", "id": job, "token": token})
