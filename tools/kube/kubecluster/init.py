"""Process 1 of a cluster: namespaces of its own, and the processes that run in them.

`python -m kubecluster.init STATE [--lifeline FD]` makes network, mount, process, UTS and IPC namespaces, prints the id
of their first process, and leaves that process behind. It starts, stops and reaps processes as the socket
`STATE/control` asks, one JSON object a line, and knows nothing of Kubernetes. When it dies, the kernel kills all that
runs in its namespaces and takes their mounts, interfaces and firewall rules away: a cluster leaves nothing behind,
however it ends.

With a lifeline it ends when the other end of that pipe is closed, so it does not outlive its starter.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
# Folders whose paths containerd, runc, the CNI plugins and the kubelet do not let one choose.
_PRIVATE = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet", "/etc/cni")
# The kubelet sets these for the whole machine unless they have its values: it is shown files that have them.
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def _unshare() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "this machine makes no namespaces: " + os.strerror(ctypes.get_errno()))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _arrange(state: Path) -> None:
    """Mounts and settings of the namespaces."""
    _mount("--make-rprivate", "/")
    # Pods may ask for mount propagation, which needs a shared root; it is shared within this namespace only.
    _mount("--make-rshared", "/")
    _mount("-t", "proc", "proc", "/proc")
    for folder in _PRIVATE:
        if os.path.isdir(folder):
            _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    fast = state / "fast"
    fast.mkdir()
    _mount("-t", "tmpfs", "-o", "mode=700", "tmpfs", str(fast))
    for name, value in _TUNABLES.items():
        shown = fast / name.replace("/", ".")
        shown.write_text(f"{value}\n")
        _mount("--bind", str(shown), f"/proc/sys/{name}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
    socket.sethostname(f"kube-{state.name}")


class Init:
    """The processes by name, and the requests about them."""

    def __init__(self, state: Path, lifeline: int | None) -> None:
        self._state = state
        self._lifeline = lifeline
        self._pids: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._waiting: dict[str, list[socket.socket]] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)

    def run(self) -> None:
        """Serve until the lifeline is cut, or for ever."""
        self._listener.bind(str(self._state / "control"))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        self._selector.register(reader, selectors.EVENT_READ, self._reap)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if self._lifeline is not None:
            self._selector.register(self._lifeline, selectors.EVENT_READ, self._end)
        while True:
            for key, _ in self._selector.select():
                key.data(key.fileobj)

    def _end(self, lifeline: int) -> None:
        if not os.read(lifeline, 1):
            sys.exit(0)

    def _reap(self, reader: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            reader.recv(4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [one for one, its in self._pids.items() if its == pid]:
                del self._pids[name]
                self._codes[name] = os.waitstatus_to_exitcode(status)
                for connection in self._waiting.pop(name, []):
                    self._answer(connection, {"code": self._codes[name]})

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.settimeout(5)
        try:
            request = json.loads(connection.makefile("r").readline())
            answer = self._do(connection, request)
        except (OSError, ValueError, KeyError, TypeError) as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        if answer is not None:
            self._answer(connection, answer)

    @staticmethod
    def _answer(connection: socket.socket, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), connection:
            connection.sendall(json.dumps(answer).encode() + b"\n")

    def _do(self, connection: socket.socket, request: dict[str, Any]) -> dict[str, Any] | None:
        name = request.get("name", "")
        if request["op"] == "start":
            return self._start(name, request["argv"], request.get("env", {}))
        if request["op"] == "list":
            return {"running": self._pids, "ended": self._codes}
        if request["op"] == "signal":
            if name not in self._pids:
                return {"code": self._codes.get(name)}
            os.killpg(self._pids[name], request["signal"])
            if not request.get("wait"):
                return {}
            self._waiting.setdefault(name, []).append(connection)
            return None
        return {"error": f"unknown op {request['op']!r}"}

    def _start(self, name: str, argv: list[str], env: dict[str, str]) -> dict[str, Any]:
        if name in self._pids:
            return {"error": f"{name} runs already"}
        with open(self._state / "logs" / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                argv,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self._codes.pop(name, None)
        self._pids[name] = process.pid
        process.returncode = 0  # This object's own wait would take the exit status from _reap.
        return {"pid": process.pid}


def main(arguments: list[str]) -> None:
    """Make the namespaces, print the id of their first process as the machine sees it, and leave."""
    state = Path(arguments[0])
    lifeline = int(arguments[2]) if len(arguments) > 1 else None
    _unshare()
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(0)
    os.setsid()
    with open(state / "logs" / "init.log", "ab") as log, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    _arrange(state)
    Init(state, lifeline).run()


if __name__ == "__main__":
    main(sys.argv[1:])
