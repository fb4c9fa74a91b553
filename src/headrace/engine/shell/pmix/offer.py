"""The shell's part of PMIx for one job on one node: tasks' variables, the server process, other nodes.

The server (server.py) is started when the first task connects (port.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import headrace
from headrace.engine.process.feed import Feed
from headrace.engine.process.spawn import spawn
from headrace.formats.spec import jobid
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.pmix import is_of_one_job
from headrace.formats.spec.taskmap import TaskMap
from headrace.formats.spec.wait_status import how_ended

from .collect import Collector, Message

if TYPE_CHECKING:
    from ..host import Job

# Settings of the server's libpmix that clients need. All builds except debug builds have these settings, and the server
# compares them with its own (server.py). `hash` needs no files that are shared by tasks and server.
CLIENT_SETTINGS = {
    "PMIX_SECURITY_MODE": "native",
    "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
    "PMIX_GDS_MODULE": "hash",
}
# The variables in which clients of PMIx 2 to 5 look for the address.
_ADDRESSES = ("PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21")
# The variables by which MPICH selects a PMI: the current name, and the names of older versions.
_MPICH_CHOICE = ("MPIR_CVAR_PMI_VERSION", "MPICH_PMI_VERSION", "MPIR_PARAM_PMI_VERSION")
# The server only uses modules that clients of all versions have: plain lists of nodes, no munge, no shared files.
_SERVER_ENVIRONMENT = {
    "PMIX_MCA_gds": "hash",
    "PMIX_MCA_preg": "^compress",
    "PMIX_MCA_psec": "native",
    "PMIX_MCA_ptl_base_if_include": "lo",
    "LC_ALL": "C",
}
_SERVER = "headrace"
# Descriptors in the server process: for messages, and for connections of tasks.
_MESSAGES, _CLIENTS = 3, 4
_READ = 1 << 16
# Seconds until connections are passed again to a server whose socket was full.
_RETRY_DELAY = 0.01
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(headrace.__file__)))
_PROGRAM = (
    "import sys; sys.path[:0] = [sys.argv[1]]; "
    f"from headrace.engine.shell.pmix.server import main; main({_MESSAGES}, {_CLIENTS})"
)


class Offer:
    """PMIx for one job on this node. Raises OSError if no port can be opened."""

    def __init__(self, job: Job, tasks: Any) -> None:
        """`tasks` is the job's task map (RFC 34's array)."""
        self._job = job
        self._tasks = tasks
        self.namespace = jobid.encode(job.id, "f58plain")
        # Node names must differ: brokers on one machine have the same host name.
        hosts = job.op["hosts"]
        self.one_machine = len(hosts) > 1 and len(set(hosts)) == 1
        same = len(set(hosts)) < len(hosts)
        self._nodes = [f"{host}-{number}" if same else host for number, host in enumerate(hosts)]
        self._collector = Collector(job.nodeid, self._to_node, self._collected)
        self._started = False
        self._pid = 0
        self._server: socket.socket | None = None
        self._feed: Feed | None = None
        self._received = LineReader()
        # The ranks of tasks that have initialised PMIx but not finalised it.
        self._users: set[int] = set()
        self._used = False
        # Why operations of all tasks can no longer complete; "" as long as they can.
        self._block_reason = ""
        # The operations of all tasks in which this node waits, and the number of those that it has entered.
        self._awaited_operations: list[int] = []
        self._barriers = 0
        # Connections of tasks that are not passed to the server yet.
        self._clients: list[socket.socket] = []
        self._to_server: socket.socket | None = None
        address = f"{_SERVER}.{job.nodeid};{job.agent.pmix.add(self)}"
        self._environment = {
            **CLIENT_SETTINGS,
            **dict.fromkeys(_ADDRESSES, address),
            "PMIX_NAMESPACE": self.namespace,
            "PMIX_HOSTNAME": self._nodes[job.nodeid],
            "PMIX_SERVER_TMPDIR": job.tmpdir,
            "PMIX_SYSTEM_TMPDIR": job.tmpdir,
        }

    def environment(self, base: Mapping[str, str], rank: int) -> dict[str, str]:
        """The variables to add to the environment `base` of task `rank`."""
        env = {**self._environment, "PMIX_RANK": str(rank)}
        if "PMI_FD" in base and not any(name in base for name in _MPICH_CHOICE):
            # MPICH uses PMI-1, which is cheaper. Without this choice, MPICH 5 aborts if both are offered.
            env[_MPICH_CHOICE[0]] = "1"
        if self.one_machine and not any(name.startswith("OMPI_MCA_btl_tcp_if_") for name in base):
            # Between brokers on one machine, Open MPI uses TCP, but it does not use the loopback by default.
            env["OMPI_MCA_btl_tcp_if_include"] = "lo"
        return env

    # -- the server

    def connected(self, client: socket.socket) -> None:
        """Handle a connection of a task (port.py)."""
        self._clients.append(client)
        self._start()
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass connections to the server. If its socket is full, pass the others after a delay."""
        while self._clients and self._to_server is not None:
            try:
                socket.send_fds(self._to_server, [b"."], [self._clients[0].fileno()])
            except BlockingIOError:
                self._job.agent.after(_RETRY_DELAY, self._pass_on)
                return
            except OSError:
                return
            self._clients.pop(0).close()

    def _start(self) -> None:
        """Start the server if necessary.

        It is needed once a task has connected, or another node requests data of a task.
        """
        if self._started:
            return
        self._started = True
        agent = self._job.agent
        ours, its = socket.socketpair()
        to_server, clients = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: value for name, value in os.environ.items() if not is_of_one_job(name)}
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT]
        fds = [(its.fileno(), _MESSAGES), (clients.fileno(), _CLIENTS)]
        try:
            self._pid = spawn(argv, {**env, **_SERVER_ENVIRONMENT}, fds)
        except OSError as exc:
            ours.close()
            to_server.close()
            self._fail(f"the PMIx server cannot be started: {exc.strerror}")
            return
        finally:
            its.close()
            clients.close()
        agent.children[self._pid] = self._ended
        self._server = ours
        to_server.setblocking(False)
        self._to_server = to_server
        # Queues messages while the server does not read, so that the agent never blocks.
        self._feed = Feed(agent, os.dup(ours.fileno()))
        self._send_to_server(self._describe())
        agent.watch(ours.fileno(), self._readable)

    def _describe(self) -> Message:
        job, tasks = self._job, TaskMap.decode(self._tasks)
        return {
            "nspace": self.namespace,
            "server": _SERVER,
            "size": job.size,
            "nodes": self._nodes,
            "nodeid": job.nodeid,
            "ranks": [list(tasks.node_tasks(node)) for node in range(job.nnodes)],
            "folder": job.tmpdir,
            "settings": CLIENT_SETTINGS,
        }

    def _send_to_server(self, message: Message) -> None:
        if self._feed is not None:
            self._feed.write(json.dumps(message).encode() + b"\n")

    def _readable(self) -> None:
        assert self._server is not None
        try:
            data = self._server.recv(_READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        for line in self._received.feed(data):
            self._handle(json.loads(line))

    def _read_remaining(self) -> None:
        """Read all messages that the server has sent so far."""
        while self._server is not None and select.select([self._server], [], [], 0)[0]:
            self._readable()

    def _handle(self, message: Message) -> None:
        kind = message["op"]
        if kind == "begun":
            self._users.add(message["rank"])
            self._used = True
        elif kind == "left":
            self._users.discard(message["rank"])
        elif kind == "collect":
            self._collect(message)
        elif kind == "ask":
            self._to_node(message["node"], {**message, "node": self._job.nodeid})
        elif kind == "answer":
            self._to_node(message["node"], message)
        elif kind == "abort":
            self._job.abort(message["rank"], message["status"], message["text"])
        elif kind == "failed":
            self._fail(message["text"])

    def _collect(self, message: Message) -> None:
        """Handle a collective operation that the tasks of this node have entered."""
        if not message["everyone"]:
            self._collector.enter(message["key"], message["token"], message["nodes"], message["data"])
        elif self._block_reason:
            self._fail(self._block_reason)
        elif self._job.nnodes == 1:
            self._collected(message["token"], [message["data"]])
        else:
            # Operations of all tasks use the barriers of shells, which send one message over each edge of the TBON.
            self._awaited_operations.append(message["token"])
            self._barriers += 1
            self._job.reports.barrier(-self._barriers, {str(self._job.nodeid): message["data"]})

    def barrier_done(self, parts: Mapping[str, str]) -> None:
        """Complete the oldest operation of all tasks. `parts` has the part of each node."""
        self._collected(self._awaited_operations.pop(0), list(parts.values()))

    def _fail(self, text: str) -> None:
        self._job.fail(text, 1, component="pmix")

    def _ended(self, status: int) -> None:
        self._pid = 0
        # The server's last messages, such as the reason for its end, may still be unread.
        self._read_remaining()
        if self._users or not self._used:
            how = how_ended(status)
            self._fail(f"the PMIx server on {self._job.host} has ended ({how}), and tasks cannot continue without it")

    def _close(self) -> None:
        server, self._server = self._server, None
        feed, self._feed = self._feed, None
        to_server, self._to_server = self._to_server, None
        if feed is not None:
            feed.close()
        if to_server is not None:
            to_server.close()
        if server is not None:
            self._job.agent.unwatch(server.fileno())
            server.close()

    def end(self) -> None:
        """Stop the server, since the tasks of the job on this node have ended."""
        self._job.agent.pmix.remove(self)
        self._started = True
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._close()
        if self._pid:
            pid, self._pid = self._pid, 0
            self._job.agent.children[pid] = lambda _status: None
            os.kill(pid, signal.SIGKILL)

    # -- other nodes, and ended tasks

    def _to_node(self, node: int, message: Message) -> None:
        if node == self._job.nodeid:
            self.from_peer(node, message)
        else:
            self._job.reports.to_peer(node, {"kind": "pmix", "message": message})

    def from_peer(self, source: int, message: Message) -> None:
        """Handle a message of the shell on node `source`."""
        kind = message["op"]
        if kind == "ask":
            self._start()
            self._send_to_server({**message, "op": "asked"})
        elif kind == "answer":
            self._send_to_server(message)
        else:
            self._collector.from_node(source, message)

    def _collected(self, token: int, data: list[str]) -> None:
        self._send_to_server({"op": "collected", "token": token, "data": data})

    def is_used_by(self, rank: int) -> bool:
        """True if the ended task `rank` has initialised PMIx but not finalised it."""
        self._read_remaining()
        return rank in self._users

    def block(self, reason: str) -> None:
        """Mark collective operations of all tasks as unable to complete, for this reason."""
        self._block_reason = reason
        if self._awaited_operations:
            self._fail(reason)
