"""The lead's end of the channel to the operator, in a process of its own beside the lead's broker.

ZeroMQ starts threads, and the runner forks brokers, so they must be in different processes. A socket connects them: the
runner sends the broker's states, and this process sends the operator's request to end the instance, one per line. Only
the operator's key is accepted (ZAP, RFC 27 of ZeroMQ), before any message is parsed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

import zmq
from zmq.backend import Context, Socket
from zmq.utils import z85

from headrace.formats.spec import jobid
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_state import STATE_BITS
from headrace.formats.spec.lines import LineReader
from headrace.wire.client.handle import Handle, Rpc
from headrace.wire.client.reactor import Reactor

from ...api import channel_messages as messages
from ...api import pod_plan
from ...api.channel_messages import MessageError
from ...api.pod_plan import PodPlan
from ...api.toml_text import toml_text
from .brokers import UP
from .instance import CHECK_PERIOD, Instance
from .place import Place

# Seconds between two responses to a watch.
_PERIOD = 0.5
# Timeout in seconds for the broker's immediate responses. While this process waits, it serves no other request.
_RPC_TIMEOUT = 20.0
# A job that lost a node within this many seconds before a resize counts as lost by the resize: hosts may disappear
# before the operator notices.
_RECENT = 30.0
_KEY = re.compile(r"^\s*(public-key|secret-key)\s*=\s*\"([^\"]{40})\"\s*$", re.MULTILINE)
_NOW, _NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
# The broker attribute with the path of the archive that is written when the instance ends.
_DUMP = "content.dump"
_DOMAIN = b"headrace-channel"
# The drain reason of ranks that are about to leave.
SCALING = "the MiniCluster is scaled down"


class Keys(NamedTuple):
    """The secret key of this end, and the public key of the operator; Z85."""

    secret: bytes
    client: bytes


def read_keys(folder: str = pod_plan.KEYS_FOLDER) -> Keys | None:
    """The channel's keys; None if there are none, as in a MiniCluster without an operator."""
    try:
        with open(os.path.join(folder, "channel.cert"), encoding="utf-8") as file:
            found = dict(_KEY.findall(file.read()))
        with open(os.path.join(folder, "channel-client.pub"), encoding="utf-8") as file:
            client = file.read().strip().encode()
    except OSError:
        return None
    return Keys(found["secret-key"].encode(), client) if "secret-key" in found and len(client) == 40 else None


def fork_server(plan: PodPlan, place: Place, keys: Keys) -> tuple[int, socket.socket]:
    """Start the process; returns its pid and the runner's end of the socket to it."""
    ours, its = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_server(plan, place, keys, its)
    its.close()
    return pid, ours


def _be_server(plan: PodPlan, place: Place, keys: Keys, link: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # This process ignores the signals. It ends when the runner has closed its end of the link.
            signal.signal(number, signal.SIG_IGN)
        ChannelServer(plan, place, keys, link).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class _Request(NamedTuple):
    peer: bytes
    id: int


class ChannelServer:
    """Serves the channel until the runner's end of `link` is closed."""

    def __init__(self, plan: PodPlan, place: Place, keys: Keys, link: socket.socket) -> None:
        self._plan = plan
        self._place = place
        self._link = link
        self._reactor = Reactor()
        self._instance = Instance(f"local://{place.socket}", self._changed)
        self._watched_fd = -1
        self._watchers: set[_Request] = set()
        self._due = False
        self._sent: dict[str, Any] = {}
        # The latest resize while it waits for its ranks to become idle, and the stream that reports busy ranks.
        self._resizing: tuple[_Request, Rpc] | None = None
        # Requests to end the instance.
        self._ending: list[_Request] = []
        # By path of the archive: the callbacks of the requests that wait for it.
        self._dumps: dict[str, list[Callable[[str], None]]] = {}
        # The former value of the attribute `content.dump`, if a save has disabled the archive at the instance's end;
        # "" if it is not disabled.
        self._disabled_dump = ""
        self._lines = LineReader()
        self._context = Context(1)
        self._zap = self._authenticator(keys)
        self._socket = self._listener(keys)

    def run(self) -> None:
        self._reactor.add_fd(self._link.fileno(), lambda _events: self._read_link())
        for sock, read in ((self._zap, self._read_zap), (self._socket, self._read_socket)):
            self._reactor.add_fd(cast(int, sock.get(zmq.FD)), partial(_call, read))
        # The descriptor of a ZeroMQ socket is edge-triggered, and a send may have consumed the edge, so the sockets are
        # checked in each turn.
        self._reactor.add_turn("check", self._settle)
        self._reactor.add_timer(CHECK_PERIOD, self._instance.check, CHECK_PERIOD)
        self._settle()
        self._reactor.run()
        self._socket.close()
        self._zap.close()
        self._context.term()

    # -- sockets

    def _listener(self, keys: Keys) -> Socket:
        sock = Socket(self._context, zmq.ROUTER)
        sock.set(zmq.LINGER, 500)
        sock.set(zmq.IPV6, int(os.path.exists("/proc/net/if_inet6")))
        sock.set(zmq.CURVE_SERVER, 1)
        sock.set(zmq.CURVE_SECRETKEY, keys.secret)
        sock.set(zmq.ZAP_DOMAIN, _DOMAIN)
        sock.set(zmq.MAXMSGSIZE, messages.LARGEST)
        sock.set(zmq.ROUTER_MANDATORY, 1)
        sock.set(zmq.HEARTBEAT_IVL, 15_000)
        sock.set(zmq.HEARTBEAT_TIMEOUT, 45_000)
        sock.bind(f"tcp://*:{pod_plan.CHANNEL_PORT}")
        return sock

    def _authenticator(self, keys: Keys) -> Socket:
        zap = Socket(self._context, zmq.REP)
        zap.set(zmq.LINGER, 0)
        zap.bind("inproc://zeromq.zap.01")
        self._allowed = keys.client
        return zap

    def _settle(self) -> None:
        self._read_zap()
        self._read_socket()
        self._instance.dispatch()

    def _read_zap(self) -> None:
        while (parts := _receive(self._zap)) is not None:
            allowed = len(parts) >= 7 and parts[5] == b"CURVE" and z85.encode(parts[6]) == self._allowed
            code, text = (b"200", b"OK") if allowed else (b"400", b"not the operator of this MiniCluster")
            _send(self._zap, [*parts[:2], code, text, b"", b""])

    def _read_socket(self) -> None:
        while (parts := _receive(self._socket)) is not None:
            if len(parts) == 2:
                self._take(parts[0], parts[1])

    def _answer(self, request: _Request, body: dict[str, Any]) -> None:
        if "error" in body:
            body = {"error": body["error"][: messages.LONGEST_ERROR]}
        try:
            _send(self._socket, [request.peer, messages.encode({"id": request.id, **body})])
        except zmq.ZMQError:
            # The peer has disconnected or does not read.
            self._watchers.discard(request)

    # -- requests

    def _take(self, peer: bytes, data: bytes) -> None:
        try:
            body = messages.parse_request(data)
        except MessageError as exc:
            self._answer(_Request(peer, -1 if exc.id is None else exc.id), {"error": str(exc)})
            return
        request = _Request(peer, body["id"])
        try:
            {
                "watch": self._watch,
                "resize": self._resize,
                "reload": self._reload,
                "save": self._save,
                "go_on": self._go_on,
                "end": self._end,
            }[body["op"]](request, body)
        except OSError as exc:
            self._answer(request, {"error": exc.strerror or str(exc)})

    def _watch(self, request: _Request, _body: dict[str, Any]) -> None:
        self._watchers.add(request)
        self._answer(request, self._snapshot())

    def _handle(self) -> Handle:
        handle = self._instance.handle
        if handle is None:
            raise OSError(0, "the lead's broker is not up")
        if not self._instance.answers:
            raise OSError(0, "the lead's broker does not answer")
        return handle

    def _ask(self, topic: str, body: dict[str, Any]) -> Any:
        """The broker's response to a request. Raises OSError."""
        return self._handle().rpc(topic, body, nodeid=0).get(_RPC_TIMEOUT)

    def _resize(self, request: _Request, body: dict[str, Any]) -> None:
        """Resize the cluster, or one of its groups.

        Drain the hosts whose index is `size` or higher, and undrain hosts with a lower index that an earlier resize
        drained. Respond when the drained hosts are idle, with the jobs that ran on them.
        """
        handle = self._handle()
        self._end_resizing({"error": "another resize was requested"})
        if body.get("hosts"):
            self._ask("overlay.grow", {"hosts": body["hosts"]})
        known = self._ask("attr.get", {"name": "hostlist"})["value"]
        stay, leave = ranks_of(known, self._plan.name, body.get("group", ""), body["size"])
        drained = self._drained()
        back = [rank for rank in stay if drained.get(rank) == SCALING]
        if back:
            self._ask("resource.undrain", {"targets": str(Idset(back)), "mode": "force"})
        jobs = self._jobs_on(leave) if leave else []
        new = [rank for rank in leave if rank not in drained]
        if new:
            targets = {"targets": str(Idset(new)), "reason": SCALING, "mode": "update"}
            self._ask("resource.drain", targets)
        # The stream is started after the drain, so that its first response describes the state after the drain.
        busy = handle.stream("resource.busy", {}, nodeid=0)
        self._resizing = (request, busy)
        busy.then(partial(self._take_busy, Idset(leave), jobs))

    def _jobs_on(self, ranks: list[int]) -> list[str]:
        """At most `MOST_NAMED` jobs that run on these ranks or have just failed with one of them."""
        recent = {"t_inactive": [f">={time.time() - _RECENT}"]}
        constraint = {"and": [{"ranks": [str(Idset(ranks))]}, {"or": [{"states": ["running"]}, recent]}]}
        attrs = ["state", "exception_type"]
        body = {"max_entries": messages.MOST_NAMED, "attrs": attrs, "constraint": constraint}
        try:
            found = self._handle().stream("job-list.list", body).get(_RPC_TIMEOUT)["jobs"]
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                raise
            return []
        inactive = STATE_BITS["inactive"]
        return [
            jobid.encode(one["id"])
            for one in found
            if one["state"] != inactive or one.get("exception_type") == "node-failure"
        ]

    def _take_busy(self, leave: Idset, jobs: list[str], rpc: Rpc) -> None:
        """Handle a response of the stream of busy ranks.

        The resize ends when the ranks `leave`, on which `jobs` ran, are idle.
        """
        try:
            busy = Idset.parse(rpc.get()["ranks"])
        except OSError as exc:
            self._end_resizing({"error": exc.strerror or str(exc)})
            return
        if not busy & leave:
            self._end_resizing({"drained": True, **({"jobs": jobs} if jobs else {})})

    def _end_resizing(self, answer: dict[str, Any]) -> None:
        """Respond to the latest resize if it still waits."""
        if self._resizing is not None:
            request, busy = self._resizing
            self._resizing = None
            self._answer(request, answer)
            with contextlib.suppress(OSError):
                busy.cancel()
            busy.abandon()

    def _drained(self) -> dict[int, str]:
        drained = self._ask("resource.status", {})["drain"]
        return {rank: one.get("reason", "") for ranks, one in drained.items() for rank in Idset.parse(ranks)}

    def _reload(self, request: _Request, body: dict[str, Any]) -> None:
        """Load a new configuration without the tables that place brokers."""
        current = self._ask("config.get", {})
        kept = {name: current[name] for name in ("bootstrap",) if name in current}
        config = {**{name: value for name, value in body["config"].items() if name != "bootstrap"}, **kept}

        def answered(rpc: Rpc) -> None:
            try:
                rpc.get()
            except OSError as exc:
                self._answer(request, {"error": exc.strerror or str(exc)})
            else:
                # A user's `flux config reload` must not load the old configuration again.
                with open(f"{self._place.config}/etc/flux/config/broker.toml", "w", encoding="utf-8") as file:
                    file.write(toml_text(config))
                self._answer(request, {"reloaded": True})

        self._handle().rpc("config.load", config, nodeid=0).then(answered)

    def _save(self, request: _Request, body: dict[str, Any]) -> None:
        self._dump(body["path"], lambda why: self._answer(request, {"error": why} if why else {"saved": body["path"]}))

    def _go_on(self, request: _Request, _body: dict[str, Any]) -> None:
        """Undo `_disable_dump`: the instance continues after a save, so its end must write an archive again."""
        if self._disabled_dump:
            self._ask("attr.set", {"name": _DUMP, "value": self._disabled_dump})
            self._disabled_dump = ""
            self._changed()
        self._answer(request, {"goes_on": True})

    def _end(self, request: _Request, body: dict[str, Any]) -> None:
        """Save the queue if requested, then shut down the instance; respond when it has ended."""
        if self._instance.snapshot.state == "finished":
            self._answer(request, {"ended": True})
            return

        def saved(why: str) -> None:
            if why:
                self._answer(request, {"error": why})
                return
            self._ending.append(request)
            self._link.sendall(b"end\n")

        if body.get("path"):
            self._dump(body["path"], saved)
        else:
            saved("")

    def _dump(self, path: str, done: Callable[[str], None]) -> None:
        """Write the instance's content to the archive at `path`, and call `done` with the error ("" for none).

        The archive is written to a temporary file and renamed when it is complete.
        """
        if path in self._dumps:
            self._dumps[path].append(done)
            return
        part = os.path.join(os.path.dirname(path), f".part-{os.getpid()}-{os.path.basename(path)}")
        env = {**os.environ, "FLUX_URI": f"local://{self._place.socket}"}
        flux = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "flux")
        process = subprocess.Popen(
            [flux, "dump", "--quiet", part],
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        pidfd = os.pidfd_open(process.pid)
        self._dumps[path] = [done]

        def ended(_events: int) -> None:
            self._reactor.remove_fd(pidfd)
            os.close(pidfd)
            text = process.communicate()[1].decode(errors="replace").strip().replace(part, path)
            why = (text or f"flux dump ended with status {process.returncode}") if process.returncode else ""
            try:
                if why:
                    os.unlink(part)
                else:
                    os.replace(part, path)
            except OSError as exc:
                why = why or str(exc)
            if not why:
                with contextlib.suppress(OSError):
                    self._disable_dump()
            for each in self._dumps.pop(path):
                each(why)

        self._reactor.add_fd(pidfd, ended)

    def _disable_dump(self) -> None:
        """Disable the archive at the instance's end. Raises OSError.

        A shutdown cancels running jobs, so an archive written then would not continue them.
        """
        if value := self._ask("attr.get", {"name": _DUMP})["value"]:
            self._ask("attr.set", {"name": _DUMP, "value": ""})
            self._disabled_dump = value
            self._changed()

    # -- the broker, the runner

    def _read_link(self) -> None:
        data = self._link.recv(4096)
        if not data:
            self._reactor.stop()
            return
        for line in self._lines.feed(data):
            self._take_state(line.decode())

    def _take_state(self, state: str) -> None:
        if state == "ended":
            self._drop_broker()
            self._instance.set_state("finished")
            for request in self._ending:
                self._answer(request, {"ended": True})
            self._ending.clear()
            summary = {"jobs": self._instance.snapshot.jobs, "failed": self._instance.failed_job}
            self._link.sendall(b"jobs " + messages.encode(summary) + b"\n")
        elif state in UP:
            if self._instance.handle is None:
                with contextlib.suppress(OSError):
                    self._watched_fd = self._instance.connect()
                    self._reactor.add_fd(self._watched_fd, lambda _events: self._read_broker())
            if state == "run":
                self._instance.set_state("running")
        if state in ("cleanup", "shutdown"):
            # Request the job counts: the stream may not deliver the last ones before the broker ends.
            with contextlib.suppress(OSError):
                self._instance.count_jobs()
                self._instance.find_failure()

    def _read_broker(self) -> None:
        try:
            self._instance.read()
        except OSError:
            self._drop_broker()

    def _drop_broker(self) -> None:
        if self._watched_fd >= 0:
            self._reactor.remove_fd(self._watched_fd)
            self._watched_fd = -1
        self._end_resizing({"error": "the lead's broker has ended"})
        self._instance.close()

    def _changed(self) -> None:
        if not self._due:
            self._due = True
            self._reactor.add_timer(_PERIOD if self._sent else 0.0, self._send_snapshot)

    def _snapshot(self) -> dict[str, Any]:
        """The state for watchers. `saved`: the instance was saved before a shutdown and has not ended yet."""
        return {**self._instance.snapshot.as_object(), "saved": bool(self._disabled_dump)}

    def _send_snapshot(self) -> None:
        self._due = False
        body = self._snapshot()
        if body != self._sent:
            self._sent = body
            for request in list(self._watchers):
                self._answer(request, body)


def ranks_of(hosts: str, name: str, group: str, size: int) -> tuple[list[int], list[int]]:
    """The ranks of the own hosts, or of a group, in two lists: index below `size`, and the others."""
    prefix = f"{name}-{group}-" if group else f"{name}-"
    stay: list[int] = []
    leave: list[int] = []
    for rank, host in enumerate(Hostlist.parse(hosts)):
        index = host[len(prefix) :]
        if host.startswith(prefix) and index.isdigit():
            (stay if int(index) < size else leave).append(rank)
    return stay, leave


def _call(read: Callable[[], None], _events: int) -> None:
    read()


def _receive(sock: Socket) -> list[bytes] | None:
    try:
        parts = [sock.recv(_NOW)]
    except zmq.Again:
        return None
    while sock.get(zmq.RCVMORE):
        parts.append(sock.recv(_NOW))
    return parts


def _send(sock: Socket, parts: list[bytes]) -> None:
    for number, part in enumerate(parts):
        sock.send(part, _NOW if number == len(parts) - 1 else _NOW_MORE)
