"""Jobs that run as their users, in the agent of root: the shell of each job is a process of that user.

Such a process (`as_user`) relates to this agent as an agent relates to its broker, for one job. The user controls it,
so its reports are validated, rebuilt, and accepted only about its own job. In any case, the job ends here when the
process has ended, and all its remaining processes are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.engine.jobs.storable import is_deep
from headrace.engine.process import linux
from headrace.engine.process.feed import Feed
from headrace.engine.process.spawn import running, spawn
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.job_exception import EXEC, FATAL
from headrace.formats.spec.os_error import reason
from headrace.formats.spec.payload import form, mismatch

from ..shell import node_variables
from ..shell.environment import id_text
from ..shell.tmpdir import folder_of, remove
from . import leftovers, reaper
from .protocol import Reader, frame

if TYPE_CHECKING:
    from headrace.engine.process.operations import JobOperation, Rpc, Start

    from ..shell.host import Host

# The module that runs as a shell's process, and the descriptor of its socket.
PROGRAM, SOCKET = f"{__package__}.as_user", 3
_READ = 1 << 18
# The most bytes of a shell's frame, and the most bytes that may wait for a shell that does not read.
_LONGEST_FRAME, _MOST_UNREAD = 64 << 20, 256 << 20
# The most reads after the end of a shell: its socket cannot have more data.
_LAST_READS = 64
# Seconds for a shell to kill all processes of its job before it is killed itself.
_HARD_KILL = 3.0
# The deepest nesting of a report.
_LEVELS = 24
_ID = {"id": int}
_REPORTS = {
    "event": form({**_ID, "t": float, "name": str, "context?": dict}),
    "output": form({**_ID, "entries": [list]}),
    "input": form({**_ID, "entries": [list]}),
    "peer": form({**_ID, "to": int, "data": dict}),
    "started": form(_ID),
    "finish": form({**_ID, "status": int}),
    "barrier": form({**_ID, "seq": int, "kvs": dict}),
    "exception": form({**_ID, "severity": int, "type": str, "note": str, "wait_status?": int, "status?": int}),
    "rpc-reply": form({"token": int, "errnum": int, "payload?": dict, "text": str}),
    "rpc-drain": form({**_ID, "token": int}),
    # The process could not become the user, and ends.
    "refused": form({"note": str}),
}
_ENTRY = (float, str, dict)
_MOST = {"severity": 7, "status": 0xFFFF, "wait_status": 0xFFFF, "errnum": 0xFFFF}
# Variables of the agent that its Python, and the shell in it, need.
_OWN = frozenset({"LANG", "LD_LIBRARY_PATH", "PATH", "TZ", node_variables.VARIABLE})
_encode, _decode = msgspec.json.encode, msgspec.json.decode


class _Shell:
    """The shell of one job.

    `requests` has the tokens of requests that it may answer, and whether each is a stream.
    """

    def __init__(self, op: Start, folder: str, pid: int, sock: socket.socket, feed: Feed) -> None:
        self.id = op["id"]
        self.op = op
        self.folder = folder
        self.pid = pid
        self.sock = sock
        self.feed = feed
        self.reader: Reader[Any] = Reader(_LONGEST_FRAME)
        self.began = linux.began(pid)
        self.requests: dict[int, bool] = {}
        # The wait status of the job on this node, as reported by its shell.
        self.status: int | None = None
        # The reason why the process ends without a status.
        self.note = ""


class Guests:
    """The shells of the jobs of one agent that run as their users."""

    def __init__(self, agent: Host, sweep_later: Callable[[], None]) -> None:
        self._agent = agent
        self._sweep_later = sweep_later
        self._shells: dict[int, _Shell] = {}
        # By user whose shells have ended: the earliest start time (ticks) of processes that may remain.
        self._ended_users: dict[int, int] = {}

    def start(self, op: Start) -> None:
        """Start the shell of a job."""
        leftovers.users.add(op["userid"])
        text = id_text(op["id"], specs.environment(op["jobspec"]))
        folder = folder_of(op, text)
        try:
            _make_folder(folder, op["userid"])
            shell = self._spawn(op, folder, text)
        except OSError as exc:
            self._fail(op, f"cannot start a shell of user {op['userid']}: {reason(exc)}")
            _remove(folder)
            return
        self._shells[shell.id] = shell
        self._agent.children[shell.pid] = partial(self._ended, shell)
        self._agent.watch(shell.sock.fileno(), partial(self._readable, shell))
        shell.feed.write(frame([op]))

    def _spawn(self, op: Start, folder: str, text: str) -> _Shell:
        ours, its = socket.socketpair()
        with its:
            argv = running(PROGRAM, str(op["userid"]), text, op.get("pam_service", ""))
            own = {
                name: value for name, value in os.environ.items() if name in _OWN or name.startswith(("LC_", "PYTHON"))
            }
            try:
                # A new session: otherwise the user's processes would have the terminal in which root started the
                # instance.
                pid = spawn(argv, own, [(its.fileno(), SOCKET)], session=True)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        # A duplicate, since the loop watches each descriptor for one purpose.
        return _Shell(op, folder, pid, ours, Feed(self._agent, os.dup(ours.fileno())))

    def pass_on(self, op: JobOperation | Rpc) -> bool:
        """Send an operation to the shell of its job. False if the job has no shell here."""
        shell = self._shells.get(op["id"])
        if shell is None:
            return False
        if op["op"] == "rpc":
            shell.requests[op["token"]] = op["streaming"]
        elif op["op"] == "kill" and op["signum"] == signal.SIGKILL and op.get("all"):
            self._agent.after(_HARD_KILL, partial(self._kill, shell))
        shell.feed.write(frame([op]))
        if shell.feed.backlog > _MOST_UNREAD:
            self._kill_for_violation(shell, "it does not read")
        return True

    # -- reports

    def _readable(self, shell: _Shell) -> None:
        self._read(shell)

    def _read(self, shell: _Shell) -> bool:
        """Handle a shell's reports. True if there may be more."""
        try:
            data = shell.sock.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._agent.unwatch(shell.sock.fileno())
            return False
        try:
            for op in shell.reader.feed(data):
                wrong = self._handle_report(shell, op)
                if wrong:
                    self._kill_for_violation(shell, wrong)
                    return False
        except (ValueError, msgspec.DecodeError) as exc:
            self._kill_for_violation(shell, str(exc))
            return False
        return True

    def _handle_report(self, shell: _Shell, op: dict[str, Any]) -> str:
        """Handle a report. Returns the error in it, or ""."""
        if shell.status is not None or shell.note:
            return ""
        kind = op.get("op")
        known = _REPORTS.get(kind) if isinstance(kind, str) else None
        wrong = f"unknown report {kind!r:.40}" if known is None else mismatch(known, op) or _error_in_values(op)
        if wrong or known is None:
            return wrong
        report: Any = {"op": kind, **{name: op.get(name) for name, *_ in known}}
        if kind == "exception":
            report = {name: value for name, value in report.items() if value is not None}
        if report.get("id", shell.id) != shell.id:
            return f"a report about job {op['id']}"
        if kind == "finish":
            # Sent to the broker when the process, and with it the whole job on this node, has ended.
            shell.status = op["status"]
            self._close(shell)
        elif kind == "refused":
            shell.note = op["note"]
        elif kind in ("rpc-reply", "rpc-drain") and op["token"] not in shell.requests:
            return f"an answer to request {op['token']}"
        else:
            if kind == "rpc-reply" and (op["errnum"] or not shell.requests[op["token"]]):
                del shell.requests[op["token"]]
            self._agent.send(report)
        return ""

    def _kill_for_violation(self, shell: _Shell, why: str) -> None:
        shell.note = shell.note or f"the shell of user {shell.op['userid']} does not keep to the protocol: {why}"
        self._kill(shell)

    # -- the end

    def continue_shell(self, pid: int) -> None:
        """Continue a stopped shell, since it has to end its job."""
        if any(shell.pid == pid for shell in self._shells.values()):
            reaper.continue_stopped(pid)

    def _kill(self, shell: _Shell) -> None:
        if self._shells.get(shell.id) is shell:
            with contextlib.suppress(ProcessLookupError):
                os.kill(shell.pid, signal.SIGKILL)

    def _close(self, shell: _Shell) -> None:
        """Let a shell end, after it has killed the remaining processes of its job."""
        shell.feed.close()
        with contextlib.suppress(OSError):
            shell.sock.shutdown(socket.SHUT_WR)

    def _ended(self, shell: _Shell, status: int) -> None:
        """Handle the end of a shell's process with a wait status."""
        for _ in range(_LAST_READS):
            if not self._read(shell):
                break
        self._agent.unwatch(shell.sock.fileno())
        shell.feed.close()
        shell.sock.close()
        del self._shells[shell.id]
        user = shell.op["userid"]
        self._ended_users[user] = min(self._ended_users.get(user, shell.began), shell.began)
        self.sweep()
        self._sweep_later()
        _remove(shell.folder)
        if shell.status is not None:
            self._agent.send({"op": "finish", "id": shell.id, "status": shell.status})
        else:
            self._lost(shell, status)

    def _lost(self, shell: _Shell, status: int) -> None:
        """Handle a shell that ended before its job.

        The lead shell decides whether the job continues without this node.
        """
        op = shell.op
        if shell.note or not os.WIFSIGNALED(status):
            self._fail(op, shell.note or f"the shell of user {op['userid']} has ended")
            return
        signum = os.WTERMSIG(status)
        if op["nodeid"]:
            lost = {"kind": "lost-shell", "signal": signum}
            self._agent.send({"op": "peer", "id": shell.id, "to": 0, "data": lost})
            self._agent.send({"op": "finish", "id": shell.id, "status": signum})
        else:
            host = op["hosts"][0] if op["hosts"] else ""
            self._fail(op, f"shell rank 0 (on {host}): {signal.strsignal(signum)}", signum)

    def _fail(self, op: Start, note: str, status: int = 1 << 8) -> None:
        id = op["id"]
        self._agent.send({"op": "exception", "id": id, "severity": FATAL, "type": EXEC, "note": note, "status": status})
        if op["nodeid"]:
            self._agent.send({"op": "peer", "id": id, "to": 0, "data": {"kind": "done"}})
        self._agent.send({"op": "finish", "id": id, "status": status})

    def sweep(self) -> None:
        """Kill the remaining processes of users whose shells have ended.

        These orphans are children of this process. Children of running shells are not affected.
        """
        if not self._ended_users:
            return
        remaining = set()
        for pid in linux.children_of(os.getpid()):
            if pid in self._agent.children:
                continue
            user = linux.user_of(pid)
            if user in self._ended_users and linux.began(pid) >= self._ended_users[user]:
                remaining.add(user)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # The agent calls this method again when a killed process has ended.
        self._ended_users = {user: since for user, since in self._ended_users.items() if user in remaining}

    def remove_folders(self) -> None:
        """Remove the folders of all shells, after the broker has ended and all processes were killed."""
        for shell in self._shells.values():
            _remove(shell.folder)


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        remove(folder)


def _make_folder(path: str, uid: int) -> None:
    """Create the folder of a job. Raises OSError."""
    # If the agent was killed during the first run of a requeued job, the old folder still exists.
    if os.path.lexists(path):
        remove(path)
    os.mkdir(path, 0o700)
    os.chown(path, uid, -1, follow_symlinks=False)


def _error_in_values(op: dict[str, Any]) -> str:
    """The error in the values of a report, or "": values that JSON or a log cannot represent."""
    if is_deep(op, _LEVELS):
        return "too deep"
    try:
        if _decode(_encode(op)) != op:
            return "not JSON"
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        return str(exc)
    for entry in op.get("entries", ()):
        if len(entry) != len(_ENTRY) or not all(
            isinstance(value, wanted) or (wanted is dict and value is None)
            for value, wanted in zip(entry, _ENTRY, strict=True)
        ):
            return "an entry that is not [time, name, context]"
        if not isinstance((entry[2] or {}).get("data") or "", str):
            return "data that is not text"
    for name, most in _MOST.items():
        if not 0 <= (op.get(name) or 0) <= most:
            return f"{name} {op[name]}"
    return ""
