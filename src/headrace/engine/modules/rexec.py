"""The subprocess server of each broker (RFC 42): `flux exec` and other remote starts of processes.

The processes themselves are children of the exec agent, so a broker never forks. This module has the protocol's state:
clients, forwarded streams, and the order of responses (started, output, finished, end of stream). It also acts as the
subprocess server of each job shell on this node, `UID-shell-ƒID.rexec`. job-exec forwards requests to such a server
with a key `shell` that names the job. A server knows only the processes that were started through it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.services import drain
from headrace.formats.spec.message import ROLE_LOCAL, Message
from headrace.formats.spec.requests.execution import REXEC

if TYPE_CHECKING:
    from headrace.engine.process.operations import Exec, FromAgent, SubprocessReport

NAME = "rexec"

_STDOUT, _STDERR, _WRITE_CREDIT, _WAITABLE = 1, 2, 8, 16
_FALLTHROUGH = 1
_STREAMS = {"stdout": _STDOUT, "stderr": _STDERR}
# Bytes of output that may be sent before the client has to confirm their receipt.
_PORTION = 1 << 20
# The initial write credit of a client, in bytes; flux-core's default.
_BUFFER = 4 << 20


def check(ctx: ModuleContext, args: list[str]) -> None:
    """Raise RpcError(EINVAL) for any argument.

    This is checked before a module is reloaded, because the reload kills the running processes.
    """
    only(ctx, args)


def load(ctx: ModuleContext, _args: list[str]) -> None:
    _Server(ctx)


class _Process:
    """One subprocess. `client` is the request that gets its output; None for a background process."""

    __slots__ = (
        "background",
        "client",
        "cmd",
        "flags",
        "handle",
        "job",
        "label",
        "open",
        "pid",
        "request",
        "sent",
        "status",
        "waiters",
    )

    def __init__(self, handle: int, msg: Message) -> None:
        body = msg.obj
        self.handle = handle
        self.request = msg
        self.background = not msg.streaming
        self.client: Message | None = msg if msg.streaming else None
        self.cmd: dict[str, Any] = body["cmd"]
        self.flags: int = body["flags"]
        self.label: str | None = self.cmd.get("label")
        self.job = _job_of(body)
        self.open = set(_STREAMS)
        self.pid = 0
        self.sent = 0
        self.status: int | None = None
        self.waiters: list[Message] = []


class _Server:
    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.agent = ctx.agent
        self.by_handle: dict[int, _Process] = {}
        self.handles = 0
        methods = {
            "exec": self._exec,
            "write": self._write,
            "kill": self._kill,
            "list": self._list,
            "wait": self._wait,
            "attach": self._attach,
        }
        answering = {name: _with_original_topic(handler) for name, handler in methods.items()}
        ctx.service(NAME, answering, requests=REXEC)
        ctx.on_disconnect(self._disconnected)
        ctx.on_stats(lambda: {"processes": len(self.by_handle)})
        ctx.on_unload(self._unload)
        if self.agent is not None:
            self.agent.subscribe(self._from_agent)

    def _unload(self) -> None:
        """Kill the processes, as RFC 42 requires when the server ends."""
        for process in self.by_handle.values():
            self._signal(process, signal.SIGKILL)
        if self.agent is not None:
            self.agent.unsubscribe(self._from_agent)

    # -- requests

    def _exec(self, msg: Message) -> None:
        _check(msg)
        guests = self.ctx.config.get("access", {}).get("allow-guest-user") is True
        if guests and self.ctx.rank == 0 and not msg.obj.get("shell") and not msg.rolemask & ROLE_LOCAL:
            # As in Flux: a user who controls another node must not gain control of the node of rank 0.
            raise RpcError(errno.EPERM, "Remote rexec requests are not allowed on rank 0")
        if self.agent is None:
            raise RpcError(errno.ENOSYS, f"rank {self.ctx.rank} has no exec agent")
        label = msg.obj["cmd"].get("label")
        if label is not None and any(process.label == label for process in self._known(msg.obj)):
            raise RpcError(errno.EEXIST, f"a process with label {label} exists already")
        self.handles += 1
        process = self.by_handle[self.handles] = _Process(self.handles, msg)
        env = {**process.cmd["env"], "FLUX_URI": self.ctx.attrs.get("local-uri")}
        cmd = {
            "cmdline": process.cmd["cmdline"],
            "cwd": process.cmd.get("cwd"),
            "env": env,
            "opts": process.cmd.get("opts") or {},
        }
        op: Exec = {"op": "exec", "handle": process.handle, "cmd": cmd, "job": process.job}
        self.agent.send(op)
        if process.background:
            self._to_stdin(process, b"", True)

    def _write(self, msg: Message) -> None:
        tag, io = msg.obj["matchtag"], msg.obj["io"]
        for process in self.by_handle.values():
            client = process.client
            if client is not None and client.matchtag == tag and client.sender == msg.sender:
                break
        else:
            return
        if io["stream"] != "stdin":
            return
        data = _decode(io)
        self._to_stdin(process, data, bool(io.get("eof")))
        if data and process.flags & _WRITE_CREDIT:
            self.ctx.respond(client, {"type": "add-credit", "channels": {"stdin": len(data)}})

    def _to_stdin(self, process: _Process, data: bytes, eof: bool) -> None:
        assert self.agent is not None
        self.agent.send({"op": "exec-write", "handle": process.handle, "stream": "stdin", "data": data, "eof": eof})

    def _kill(self, msg: Message) -> Any:
        process = self._find(msg.obj)
        signum = msg.obj["signum"]
        if not 0 <= signum < 65:
            raise RpcError(errno.EINVAL, f"invalid signal number {signum}")
        if process.status is not None:
            raise RpcError(errno.ESRCH, f"process {process.pid} has ended")
        self._signal(process, signum)
        return EMPTY

    def _signal(self, process: _Process, signum: int) -> None:
        if self.agent is not None and process.status is None:
            self.agent.send({"op": "exec-kill", "handle": process.handle, "signum": int(signum)})

    def _known(self, body: dict[str, Any]) -> list[_Process]:
        """The processes of the server to which a request is addressed."""
        job = _job_of(body)
        return [process for process in self.by_handle.values() if process.job == job]

    def _find(self, body: dict[str, Any]) -> _Process:
        """The process of a request, by label or pid. Raises RpcError(ENOENT)."""
        label = body.get("label") or None
        for process in self._known(body):
            if process.label == label if label is not None else process.pid == body.get("pid", 0):
                return process
        what = f"label {label}" if label is not None else f"pid {body.get('pid', 0)}"
        raise RpcError(errno.ENOENT, f"{what} does not exist")

    def _list(self, msg: Message) -> dict[str, Any]:
        procs = [
            {
                "pid": process.pid,
                "cmd": process.cmd["cmdline"][0],
                "label": process.label or "",
                "state": "R" if process.status is None else "Z",
            }
            for process in self._known(msg.obj or {})
            if process.pid
        ]
        return {"rank": self.ctx.rank, "procs": procs}

    def _wait(self, msg: Message) -> Any:
        process = self._find(msg.obj)
        if not process.flags & _WAITABLE:
            raise RpcError(errno.EINVAL, f"process {process.pid} is not waitable")
        if process.status is None:
            if process.waiters:
                raise RpcError(errno.EINVAL, f"process {process.pid} is already being waited for")
            process.waiters.append(msg)
            return None
        del self.by_handle[process.handle]
        return {"status": process.status}

    def _attach(self, msg: Message) -> None:
        process = self._find(msg.obj)
        if not msg.streaming:
            raise RpcError(errno.EPROTO, "attach needs a streaming request")
        if not process.background or process.client is not None:
            raise RpcError(errno.EBUSY, f"process {process.pid} already has a client")
        process.client = msg
        process.flags = process.flags & ~(_STDOUT | _STDERR) | msg.obj["flags"] & (_STDOUT | _STDERR)
        self.ctx.respond(msg, {"type": "attached", "pid": process.pid, "cmd": process.cmd})
        for stream, flag in _STREAMS.items():
            if process.flags & flag and stream not in process.open:
                self._output(process, stream, b"", True)
        if process.status is not None:
            self._close(process)

    def _disconnected(self, sender: str) -> None:
        for process in list(self.by_handle.values()):
            process.waiters = [msg for msg in process.waiters if msg.sender != sender]
            if process.client is not None and process.client.sender == sender:
                process.client = None
                if not process.background:
                    self._signal(process, signal.SIGKILL)

    # -- messages of the agent

    def _from_agent(self, op: FromAgent) -> None:
        match op["op"]:
            case "exec-started" | "exec-output" | "exec-finished" | "exec-error":
                process = self.by_handle.get(op["handle"])
                if process is not None:
                    self._report(process, op)
            case "gone":
                for each in list(self.by_handle.values()):
                    self._lost(each)
            case _:
                # All other messages are about jobs.
                pass

    def _report(self, process: _Process, op: SubprocessReport) -> None:
        match op["op"]:
            case "exec-output":
                if op["eof"]:
                    process.open.discard(op["stream"])
                self._output(process, op["stream"], op["data"], op["eof"])
                self._maybe_close(process)
            case "exec-started":
                self._started(process, op["pid"])
            case "exec-finished":
                process.status = op["status"]
                self._maybe_close(process)
            case "exec-error":
                self._failed(process, op["errnum"], op["text"])

    def _started(self, process: _Process, pid: int) -> None:
        process.pid = pid
        self.ctx.respond(process.request, {"type": "started", "pid": pid})
        if process.flags & _WRITE_CREDIT and not process.background:
            self.ctx.respond(process.request, {"type": "add-credit", "channels": {"stdin": _BUFFER}})

    def _failed(self, process: _Process, errnum: int, text: str) -> None:
        del self.by_handle[process.handle]
        if not process.pid:
            text = text or f"error launching process: {os.strerror(errnum)}"
            self.ctx.respond_error(process.request, errnum, text)

    def _lost(self, process: _Process) -> None:
        """Report the end of a process that was killed with the agent."""
        if not process.pid:
            self._failed(process, errno.EHOSTUNREACH, "the exec agent was killed")
            return
        if process.status is None:
            # The new agent does not know the process, so the broker kills it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for stream in list(process.open):
            self._output(process, stream, b"", True)
        process.open.clear()
        process.status = signal.SIGKILL if process.status is None else process.status
        self._maybe_close(process)

    def _output(self, process: _Process, stream: str, data: bytes, eof: bool) -> None:
        client = process.client
        if client is None:
            if process.background and data:
                level = logging.INFO if stream == "stdout" else logging.ERROR
                self._log(process, level, data.decode("utf-8", "replace").rstrip("\n"))
            return
        if not process.flags & _STREAMS.get(stream, 0):
            return
        io: dict[str, Any] = {"stream": stream, "rank": str(self.ctx.rank)}
        if data:
            self.ctx.respond(client, {"type": "output", "pid": process.pid, "io": {**io, **_encode(data)}})
            self._count(process, client, len(data))
        if eof:
            self.ctx.respond(client, {"type": "output", "pid": process.pid, "io": {**io, "eof": True}})

    def _log(self, process: _Process, level: int, text: str) -> None:
        """Log output or the end of a background process in the broker's log."""
        name = f"{process.label}: " if process.label else ""
        self.ctx.log(level, f"{name}{process.cmd['cmdline'][0]}[{process.pid}]: {text}")

    def _count(self, process: _Process, client: Message, size: int) -> None:
        """Count output. After each portion, stop reading until the client has received it."""
        process.sent += size
        if process.sent < _PORTION or len(process.open) == 0:
            return
        process.sent = 0
        self._pause_output(process, True)
        self.ctx.call(
            drain.TOPIC, drain.route_of(client), lambda _reply: self._pause_output(process, False), self.ctx.rank
        )

    def _pause_output(self, process: _Process, on: bool) -> None:
        if self.agent is not None:
            self.agent.send({"op": "exec-hold", "handle": process.handle, "on": on})

    def _maybe_close(self, process: _Process) -> None:
        """End the stream once the process has ended and all its output has been forwarded."""
        if process.status is None or process.open:
            return
        if process.client is not None:
            self._close(process)
        elif process.background:
            self._reap(process)
        else:
            del self.by_handle[process.handle]

    def _close(self, process: _Process) -> None:
        client = process.client
        assert client is not None
        self.ctx.respond(client, {"type": "finished", "status": process.status})
        self.ctx.respond_error(client, errno.ENODATA)
        process.client = None
        self.by_handle.pop(process.handle, None)

    def _reap(self, process: _Process) -> None:
        """Handle the end of a background process: log it, and respond to `wait`.

        A waitable process is kept until a `wait` request.
        """
        status = process.status or 0
        if os.WIFSIGNALED(status):
            self._log(process, logging.INFO, f"Killed by signal {os.WTERMSIG(status)}")
        elif status:
            self._log(process, logging.INFO, f"Exit {os.WEXITSTATUS(status)}")
        waiters, process.waiters = process.waiters, []
        for msg in waiters:
            self.ctx.respond(msg, {"status": process.status})
        if waiters or not process.flags & _WAITABLE:
            del self.by_handle[process.handle]


def _job_of(body: dict[str, Any]) -> int:
    """The job to whose shell a request is addressed; 0 for the broker's own server."""
    return int(body["shell"]["job"]) if body.get("shell") else 0


def _with_original_topic(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """Wrap a handler so that responses have the topic of the client's original request (RFC 6)."""

    def handle(msg: Message) -> Any:
        shell = (msg.obj or {}).get("shell")
        if shell:
            if "\0" in shell["topic"]:
                raise RpcError(errno.EPROTO, f"{msg.topic}: shell.topic: a topic must not contain a NUL")
            msg.topic = shell["topic"]
        return handler(msg)

    return handle


def _check(msg: Message) -> None:
    """Raise RpcError for an exec request that RFC 42 does not allow."""
    body = msg.obj
    cmd, flags = body["cmd"], body["flags"]
    if not cmd["cmdline"]:
        raise RpcError(errno.EPROTO, "exec: cmd.cmdline must have at least one string")
    for name in ("env", "opts"):
        if not all(isinstance(value, str) for value in (cmd.get(name) or {}).values()):
            raise RpcError(errno.EPROTO, f"exec: cmd.{name} must be an object of strings")
    if cmd.get("label") == "":
        raise RpcError(errno.EPROTO, "exec: cmd.label must be a string that is not empty")
    if cmd.get("channels"):
        raise RpcError(errno.EINVAL, "exec: auxiliary channels are not supported")
    if msg.streaming and flags & _WAITABLE:
        raise RpcError(errno.EINVAL, "exec: waitable processes are only supported in background mode")
    if not msg.streaming and (flags & _WRITE_CREDIT or (body.get("local_flags") or 0) & _FALLTHROUGH):
        raise RpcError(errno.EINVAL, "exec: write-credit and stdio-fallthrough need a streaming request")


def _encode(data: bytes) -> dict[str, str]:
    try:
        return {"data": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode(), "encoding": "base64"}


def _decode(io: dict[str, Any]) -> bytes:
    data = io.get("data") or ""
    if io.get("encoding") == "base64":
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise RpcError(errno.EPROTO, f"write: data is not base64: {exc}") from None
    return bytes(str(data).encode("utf-8", "surrogateescape"))
