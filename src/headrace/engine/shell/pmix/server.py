"""The PMIx server process of one job on one node, started at the job's first PMIx connection.

It exchanges lines of JSON with its shell over an inherited socket, since only the shell can reach the job's other
nodes. A crash of libpmix only ends this process and thereby the job, with a reason. When the shell's end of the socket
is closed, the process exits.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from . import MISSING, find_library, relay
from . import library as px

Message = dict[str, Any]

# Tasks get these settings before libpmix is loaded (offer.py), so they must be equal to libpmix's settings.
_SETTINGS = ("PMIX_SECURITY_MODE", "PMIX_BFROP_BUFFER_TYPE", "PMIX_GDS_MODULE")


class _Waiting(NamedTuple):
    """A callback of libpmix that waits for responses of other nodes."""

    function: Any
    data: int


class Server:
    """The host part of a PMIx server. `job` is the shell's first message (offer.py, `_describe`)."""

    def __init__(self, job: Message, sock: socket.socket, path: str) -> None:
        self._job = job
        self._nspace: str = job["nspace"]
        self._nodes: list[list[int]] = job["ranks"]
        self._where = {rank: node for node, ranks in enumerate(self._nodes) for rank in ranks}
        self._node: int = job["nodeid"]
        self._sock = sock
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._sequence = 0
        # Blobs that libpmix still reads, by the number that it passes to `_released` afterwards.
        self._blobs: dict[int, Any] = {}
        self._release = px.RELEASE(self._released)
        self._asked: dict[int, Any] = {}
        self._lib = px.Library(path)
        self._lib.server_init(self._module(), self._server_attributes())
        mine = self._nodes[self._node]
        self._lib.register_nspace(self._nspace, len(mine), self._job_attributes())
        for rank in mine:
            self._lib.register_client(self._nspace, rank, os.getuid(), os.getgid())
        self._env = self._lib.fork_environment(self._nspace, mine[0])
        for name in _SETTINGS:
            if self._env.get(name) != job["settings"][name]:
                raise px.PmixError(f"{path} wants {name}={self._env.get(name)}, and tasks have {job['settings'][name]}")

    @property
    def port(self) -> int:
        """The port of libpmix on the loopback."""
        return int(self._env["PMIX_SERVER_URI41"].rpartition(":")[2])

    def send(self, message: Message) -> None:
        """Send a message to the shell. Also called by libpmix's thread."""
        with self._sending, contextlib.suppress(OSError):
            self._sock.sendall(json.dumps(message).encode() + b"\n")

    # -- attributes for libpmix

    def _server_attributes(self) -> list[px.Attribute]:
        folder = self._job["folder"]
        return [
            px.Attribute("pmix.srv.nspace", px.STRING, self._job["server"]),
            px.Attribute("pmix.srv.rank", px.PROC_RANK, self._node),
            px.Attribute("pmix.srvr.tmpdir", px.STRING, folder),
            px.Attribute("pmix.sys.tmpdir", px.STRING, folder),
            px.Attribute("pmix.hname", px.STRING, self._job["nodes"][self._node]),
            px.Attribute("pmix.srvr.tool", px.BOOL, False),
            px.Attribute("pmix.srvr.remote", px.BOOL, False),
        ]

    def _job_attributes(self) -> list[px.Attribute]:
        size, folder = self._job["size"], self._job["folder"]
        mine = self._nodes[self._node]
        used = [(name, ranks) for name, ranks in zip(self._job["nodes"], self._nodes) if ranks]
        nodes = self._lib.regex("PMIx_generate_regex", (name for name, _ranks in used), ",")
        tasks = self._lib.regex("PMIx_generate_ppn", (_comma(ranks) for _name, ranks in used), ";")
        return [
            px.Attribute("pmix.jobid", px.STRING, self._nspace),
            px.Attribute("pmix.univ.size", px.UINT32, size),
            px.Attribute("pmix.job.size", px.UINT32, size),
            px.Attribute("pmix.max.size", px.UINT32, size),
            px.Attribute("pmix.job.napps", px.UINT32, 1),
            px.Attribute("pmix.app.size", px.UINT32, size),
            px.Attribute("pmix.num.nodes", px.UINT32, len(used)),
            px.Attribute("pmix.nmap", px.STRING, nodes),
            px.Attribute("pmix.pmap", px.STRING, tasks),
            px.Attribute("pmix.local.size", px.UINT32, len(mine)),
            px.Attribute("pmix.node.size", px.UINT32, len(mine)),
            px.Attribute("pmix.lpeers", px.STRING, _comma(mine)),
            px.Attribute("pmix.lldr", px.PROC_RANK, mine[0]),
            # Open MPI stores its files in this folder, which the shell removes.
            px.Attribute("pmix.tmpdir", px.STRING, folder),
            px.Attribute("pmix.nsdir", px.STRING, folder),
            px.Attribute("pmix.tdir.rmclean", px.BOOL, True),
            *(px.Attribute("pmix.pdata", px.DATA_ARRAY, self._task(rank)) for rank in range(size)),
        ]

    def _task(self, rank: int) -> list[px.Attribute]:
        node = self._where[rank]
        local = self._nodes[node].index(rank)
        return [
            px.Attribute("pmix.rank", px.PROC_RANK, rank),
            px.Attribute("pmix.grank", px.PROC_RANK, rank),
            px.Attribute("pmix.apprank", px.PROC_RANK, rank),
            px.Attribute("pmix.aldr", px.PROC_RANK, 0),
            px.Attribute("pmix.appnum", px.UINT32, 0),
            px.Attribute("pmix.lrank", px.UINT16, local),
            px.Attribute("pmix.nrank", px.UINT16, local),
            px.Attribute("pmix.nodeid", px.UINT32, node),
            px.Attribute("pmix.hname", px.STRING, self._job["nodes"][node]),
            px.Attribute("pmix.spawned", px.BOOL, False),
        ]

    # -- callbacks of libpmix, in its own thread

    def _module(self) -> px.Module:
        module = px.Module()
        module.client_connected2 = px.CLIENT_CONNECTED(self._connected)
        module.client_finalized = px.CLIENT(self._finalized)
        module.abort = px.ABORT(self._abort)
        module.fence_nb = px.FENCE(self._fence)
        module.direct_modex = px.DIRECT_MODEX(self._direct_modex)
        module.connect = px.CONNECT(self._connect)
        module.disconnect = px.CONNECT(self._disconnect)
        return module

    def _connected(self, proc: Any, _object: Any, _infos: Any, _count: Any, _function: Any, _data: Any) -> int:
        self.send({"op": "begun", "rank": proc[0].rank})
        return px.OPERATION_SUCCEEDED

    def _finalized(self, proc: Any, _object: Any, _function: Any, _data: Any) -> int:
        self.send({"op": "left", "rank": proc[0].rank})
        return px.OPERATION_SUCCEEDED

    def _abort(
        self, proc: Any, _object: Any, status: int, text: Any, _procs: Any, _count: int, _function: Any, _data: Any
    ) -> int:
        message = (text or b"").decode(errors="replace")
        self.send({"op": "abort", "rank": proc[0].rank, "status": status, "text": message})
        return px.OPERATION_SUCCEEDED

    def _fence(
        self, procs: Any, count: int, _infos: Any, _ninfo: int, data: Any, size: int, function: Any, where: Any
    ) -> int:
        blob = ctypes.string_at(data, size) if data and size else b""
        return self._collect("fence", procs, count, blob, _Waiting(px.MODEX_DONE(function), where))

    def _connect(self, procs: Any, count: int, _infos: Any, _ninfo: int, function: Any, where: Any) -> int:
        return self._collect("connect", procs, count, b"", _Waiting(px.OP_DONE(function), where))

    def _disconnect(self, procs: Any, count: int, _infos: Any, _ninfo: int, function: Any, where: Any) -> int:
        return self._collect("disconnect", procs, count, b"", _Waiting(px.OP_DONE(function), where))

    def _collect(self, kind: str, procs: Any, count: int, blob: bytes, waiting: _Waiting) -> int:
        """Start a collective operation: each node with one of `procs` contributes a part and gets all parts."""
        ranks: set[int] = set()
        for proc in procs[:count]:
            if proc.nspace.decode() != self._nspace:
                # Operations between tasks of different jobs are not supported.
                return px.ERR_NOT_SUPPORTED
            ranks |= set(self._where) if proc.rank == px.RANK_WILDCARD else {proc.rank}
        nodes = sorted({self._where[rank] for rank in ranks if rank in self._where})
        everyone = len(ranks) == len(self._where)
        message = {
            "op": "collect",
            "key": kind if everyone else f"{kind} {_comma(sorted(ranks))}",
            "everyone": everyone,
            "nodes": nodes,
            "data": base64.b64encode(blob).decode(),
            "token": self._wait(waiting),
        }
        self.send(message)
        return px.SUCCESS

    def _direct_modex(self, proc: Any, _infos: Any, _count: int, function: Any, where: Any) -> int:
        node = self._where.get(proc[0].rank)
        if node is None or proc[0].nspace.decode() != self._nspace:
            return px.ERR_NOT_FOUND
        token = self._wait(_Waiting(px.MODEX_DONE(function), where))
        self.send({"op": "ask", "node": node, "rank": proc[0].rank, "token": token})
        return px.SUCCESS

    def _wait(self, waiting: _Waiting) -> int:
        with self._lock:
            self._sequence += 1
            self._waiting[self._sequence] = waiting
            return self._sequence

    def _released(self, number: Any) -> None:
        self._blobs.pop(number or 0, None)

    # -- messages of the shell

    def hear(self, message: Message) -> None:
        """Handle a message of the shell."""
        handlers: dict[str, Callable[[Message], None]] = {
            "collected": self._collected,
            "answer": self._answered,
            "asked": self._requested,
        }
        handlers[message["op"]](message)

    def _collected(self, message: Message) -> None:
        waiting = self._waiting.pop(message["token"])
        if isinstance(waiting.function, px.MODEX_DONE):
            self._respond(waiting, px.SUCCESS, b"".join(base64.b64decode(part) for part in message["data"]))
        else:
            waiting.function(px.SUCCESS, waiting.data)

    def _answered(self, message: Message) -> None:
        self._respond(self._waiting.pop(message["token"]), message["status"], base64.b64decode(message["data"]))

    def _respond(self, waiting: _Waiting, status: int, blob: bytes) -> None:
        with self._lock:
            self._sequence += 1
            number = self._sequence
        kept = self._blobs[number] = ctypes.create_string_buffer(blob, len(blob))
        data = ctypes.cast(kept, ctypes.c_void_p) if blob else None
        waiting.function(status, data, len(blob), waiting.data, ctypes.cast(self._release, ctypes.c_void_p), number)

    def _requested(self, message: Message) -> None:
        """Handle another node's request for data of a task. libpmix responds once the task has put it."""
        with self._lock:
            self._sequence += 1
            number = self._sequence

        def done(status: int, data: Any, size: int, _data: Any) -> None:
            blob = ctypes.string_at(data, size) if data and size else b""
            self.answer(message, status, blob)
            self._asked.pop(number, None)

        proc, function = px.Proc(self._nspace.encode(), message["rank"]), px.MODEX_REQUESTED(done)
        self._asked[number] = (proc, function)
        status = self._lib.request_modex(proc, function)
        if status != px.SUCCESS:
            self._asked.pop(number, None)
            self.answer(message, status, b"")

    def answer(self, message: Message, status: int, blob: bytes) -> None:
        data = base64.b64encode(blob).decode()
        answer = {"op": "answer", "node": message["node"], "token": message["token"], "status": status, "data": data}
        self.send(answer)


def _comma(ranks: list[int]) -> str:
    return ",".join(map(str, ranks))


def main(messages: int, clients: int) -> None:
    """Serve until the shell closes its end of the socket `messages`.

    The shell passes connections of tasks through the socket `clients`. Both arguments are descriptors.
    """
    for fd in (messages, clients):
        os.set_inheritable(fd, False)
    sock = socket.socket(fileno=messages)
    lines = sock.makefile("rb")
    job = json.loads(lines.readline())
    try:
        path = find_library()
        if not path:
            raise px.PmixError(MISSING)
        server = Server(job, sock, path)
    except px.PmixError as exc:
        sock.sendall(json.dumps({"op": "failed", "text": str(exc)}).encode() + b"\n")
        sys.exit(1)
    passing = relay.Relay(socket.socket(fileno=clients), server.port, os.getuid())
    threading.Thread(target=passing.run, daemon=True).start()
    for line in lines:
        server.hear(json.loads(line))
    # Exits at once, because libpmix has its own threads. Its files are all in the job's folder, which is removed.
    os._exit(0)
