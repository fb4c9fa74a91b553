"""Real exec agents under a stand-in for the exec modules: it routes between the nodes, and keeps what was reported.

Each node is a process of its own with a socket, as under a broker. A job's result is what a broker would
have been told.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from headrace.engine.agent.protocol import Op, Reader, frame
from headrace.formats.spec import jobspec_build, stdio
from waiting import PATIENCE

_MAIN = (
    "import socket, sys; from headrace.engine.agent.start import run_agent;"
    "run_agent(socket.socket(fileno=int(sys.argv[1])))"
)


class Job:
    """What became of one job."""

    def __init__(self, id: int, nnodes: int) -> None:
        self.id = id
        self.nnodes = nnodes
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.inputs: list[tuple[str, dict[str, Any]]] = []
        self.exceptions: list[Op] = []
        self.started: set[int] = set()
        self.finished: dict[int, int] = {}
        self.barriers: dict[int, dict[int, dict[str, str]]] = defaultdict(dict)

    @property
    def done(self) -> bool:
        return len(self.finished) == self.nnodes

    @property
    def status(self) -> int:
        """The job's wait status: the largest of its nodes'."""
        return max(self.finished.values())

    def text(self, stream: str = "stdout", rank: int | None = None) -> str:
        """What the tasks (or one of them) wrote, as far as it is in the output log."""
        out = b""
        for name, context in self.entries:
            if name == "data" and context["stream"] == stream and (rank is None or context["rank"] == str(rank)):
                out += stdio.decode_data(context).data or b""
        return out.decode()

    def logs(self) -> list[str]:
        return [context["message"] for name, context in self.entries if name == "log"]

    def event(self, name: str) -> dict[str, Any]:
        """The context of the one event of that name."""
        (context,) = [context for event, context in self.events if event == name]
        return context


class World:
    """`size` nodes."""

    def __init__(self, size: int, rundir: str) -> None:
        self.rundir = rundir
        self.sockets: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.readers = [Reader() for _ in range(size)]
        self.unsent = [bytearray() for _ in range(size)]
        self.jobs: dict[int, Job] = {}
        self.replies: dict[int, list[Op]] = defaultdict(list)
        self.exec_ops: list[Op] = []
        self.closed: set[int] = set()
        self.ids = 1 << 24
        # Nodes whose frames to other shells stay on their way until `deliver()`, and those frames (node, frame).
        self.delayed: set[int] = set()
        self.on_way: list[tuple[int, Op]] = []
        for _ in range(size):
            ours, its = socket.socketpair()
            self.processes.append(
                subprocess.Popen([sys.executable, "-c", _MAIN, str(its.fileno())], pass_fds=[its.fileno()])
            )
            its.close()
            ours.setblocking(False)
            self.sockets.append(ours)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        for process in self.processes:
            process.wait(PATIENCE)

    # -- jobs

    def start(
        self,
        command: list[str],
        ntasks: int = 1,
        nodes: list[int] | None = None,
        options: dict[str, Any] | None = None,
        cores: str = "0-7",
        gpus: str = "",
        jobspec: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        cwd: str = "/tmp",
        expiration: float = 0.0,
        most_output: int | None = None,
        **more: Any,
    ) -> Job:
        """Start a job on `nodes` (node 0 alone by default); `more` goes to jobspec_build.from_command."""
        nodes = nodes or [0]
        spec = jobspec or jobspec_build.from_command(
            command,
            ntasks,
            num_nodes=len(nodes) if len(nodes) > 1 else None,
            environment={"PATH": os.environ["PATH"], **(env or {})},
            cwd=cwd,
            **more,
        )
        shell = spec["attributes"]["system"].setdefault("shell", {}).setdefault("options", {})
        shell.update(options or {})
        self.ids += 1
        job = self.jobs[self.ids] = Job(self.ids, len(nodes))
        children = {"core": cores, **({"gpu": gpus} if gpus else {})}
        ranks = ",".join(str(node) for node in nodes)
        r = {"version": 1, "execution": {"R_lite": [{"rank": ranks, "children": children}], "nodelist": []}}
        for nodeid, node in enumerate(nodes):
            op = {
                "op": "start",
                "id": job.id,
                "jobspec": spec,
                "R": r,
                "userid": os.getuid(),
                "nodeid": nodeid,
                "nnodes": len(nodes),
                "rank": node,
                "hosts": [f"host{each}" for each in nodes],
                "ranks": nodes,
                "uri": "local:///nowhere",
                "rundir": self.rundir,
                "idpath": f"/f{job.id}",
                "instance_level": 0,
                "expiration": expiration,
                "service": f"{os.getuid()}-shell-f{job.id}",
                **({} if most_output is None else {"most_output": most_output}),
            }
            self.send(op, node)
        return job

    def run(self, command: list[str], ntasks: int = 1, **more: Any) -> Job:
        """Start a job whose tasks read an empty standard input, and wait for its end."""
        job = self.start(command, ntasks, **more)
        self.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
        return self.finish(job)

    def shell(self, script: str, ntasks: int = 1, **more: Any) -> Job:
        return self.run(["sh", "-c", script], ntasks, **more)

    def finish(self, job: Job) -> Job:
        self.pump(lambda: job.done)
        return job

    def rpc(self, job: Job, method: str, payload: dict[str, Any], streaming: bool = False) -> int:
        """Ask the lead shell's service; returns the token under which `replies` keeps the answers."""
        token = len(self.replies) + 1
        self.replies[token] = []
        op = {"op": "rpc", "id": job.id, "token": token, "method": method, "payload": payload, "userid": os.getuid()}
        self.send({**op, "streaming": streaming, "sender": "a-client"})
        return token

    def kill(self, job: Job, signum: int) -> None:
        for node in range(len(self.sockets)):
            self.send({"op": "kill", "id": job.id, "signum": int(signum)}, node)

    # -- the wire

    def send(self, op: Op, node: int = 0) -> None:
        """What the agent does not take now it gets while we read: like a broker, we never wait for it alone."""
        self.unsent[node] += frame([op])
        self._write(node)

    def _write(self, node: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.unsent[node]:
                del self.unsent[node][: self.sockets[node].send(self.unsent[node])]

    def pump(self, until: Callable[[], bool]) -> None:
        """Take what agents report until `until()`; fails the test when that never comes."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            left = deadline - time.monotonic()
            assert left > 0, "the agents never reported what the test waits for"
            writers = [sock for sock, unsent in zip(self.sockets, self.unsent, strict=True) if unsent]
            readable, writable, _ = select.select(self.sockets, writers, [], left)
            for sock in writable:
                self._write(self.sockets.index(sock))
            for sock in readable:
                node = self.sockets.index(sock)
                data = sock.recv(1 << 18)
                assert data, f"agent {node} ended"
                for op in self.readers[node].feed(data):
                    self._take(node, op)

    def _take(self, node: int, op: Op) -> None:
        kind = op["op"]
        if kind.startswith("exec-"):
            self.exec_ops.append(op)
            return
        if kind == "rpc-reply":
            self.replies[op["token"]].append(op)
            return
        if kind == "rpc-drain":
            self.send({**op, "op": "rpc-drained"}, node)
            return
        job = self.jobs[op["id"]]
        if kind == "event":
            job.events.append((op["name"], op["context"]))
        elif kind in ("output", "input"):
            log = job.entries if kind == "output" else job.inputs
            log.extend((name, context) for _time, name, context in op["entries"])
        elif kind == "exception":
            job.exceptions.append(op)
        elif kind == "started":
            job.started.add(node)
        elif kind == "finish":
            assert node not in job.finished, "a node finished twice"
            job.finished[node] = op["status"]
        elif kind == "peer" and node in self.delayed:
            self.on_way.append((node, op))
        elif kind == "peer":
            self._pass_on(node, op)
        elif kind == "barrier":
            entered = job.barriers[op["seq"]]
            entered[node] = op["kvs"]
            if len(entered) == job.nnodes:
                kvs = {key: value for each in entered.values() for key, value in each.items()}
                for each in entered:
                    self.send({"op": "barrier", "id": job.id, "seq": op["seq"], "kvs": kvs}, each)
        else:
            raise AssertionError(f"unknown operation {kind}")

    def deliver(self) -> None:
        """Pass on the frames that were delayed, in their order, and delay none any more."""
        self.delayed.clear()
        on_way, self.on_way = self.on_way, []
        for node, op in on_way:
            self._pass_on(node, op)

    def _pass_on(self, node: int, op: Op) -> None:
        self.send({"op": "peer", "id": op["id"], "from": node, "data": op["data"]}, op["to"])
