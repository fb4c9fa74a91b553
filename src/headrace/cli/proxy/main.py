"""`flux proxy`: runs a command, or a shell, as a client of another instance.

The command and its children connect to a local socket of the proxy. The proxy forwards all of them over a single
connection to the instance, because a connection may be remote and slow to set up. If that connection is lost, the
command gets SIGHUP, like a shell whose terminal is gone.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

from headrace import FLUX_VERSION
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.proxy.router import Client, ProxyRouter
from headrace.cli.proxy.socket import Listener, MessageStream
from headrace.formats.spec.message import RESPONSE, Deframer, Message, frame, request
from headrace.wire.client.reactor import Reactor
from headrace.wire.client.transport import connect, split_uri
from headrace.wire.client.usershell import user_shell
from headrace.wire.query import QueryError
from headrace.wire.query.uri import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from headrace.cli.common.getopts import Options
    from headrace.formats.spec.stdlib_parts import socket

PREFIX = "flux-proxy: "

_COMMAND = Command(
    "flux-proxy",
    "[OPTIONS] JOB|URI [COMMAND...]",
    "Run a command as if inside another instance",
    (
        ("f", "force", "", "Connect even if the broker has a different version of Flux"),
        ("n", "nohup", "", "Do not send SIGHUP to the command when the connection is lost"),
        ("", "reconnect", "", "If the connection is lost, try to reconnect every 2 seconds"),
    ),
)
_RECONNECT_EVERY = 2.0
# Seconds that the command gets to end by itself with the instance (`flux proxy JOB flux shutdown`).
_GRACE = 0.5


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv, stop_early=True)
    target, *command = options.need(1)
    try:
        uri = resolve(target)
    except QueryError as exc:
        raise CommandError(f"Unable to resolve {target} to a URI: {exc}") from None
    sock = connect(uri)
    _check_version(_version(sock), options.has("force"))
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="flux-proxy-")
    try:
        proxy = _Proxy(uri, sock, os.path.join(folder, "local"), options)
        status = proxy.run(_start(command, uri, proxy.path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if status < 0:
        sys.stderr.write(f"flux-proxy: {signal.strsignal(-status)}\n")
        return 128 - status
    return status


def _version(sock: socket.socket) -> str:
    """The broker's attribute `version`, read before there are clients. Raises OSError."""
    sock.sendall(frame(request("attr.get", {"name": "version"}, matchtag=1)))
    deframer = Deframer()
    while True:
        data = sock.recv(1 << 16)
        if not data:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        deframer.feed(data)
        for msg in deframer:
            if msg.type == RESPONSE:
                if msg.errnum:
                    raise OSError(msg.errnum, msg.text or os.strerror(msg.errnum))
                return str(msg.obj["value"])


def _check_version(version: str, force: bool) -> None:
    """If the broker has a different version, warn with `force`, otherwise raise CommandError."""
    if version.split(".")[:2] == FLUX_VERSION.split(".")[:2]:
        return
    text = f"proxy version {FLUX_VERSION} may not interoperate with broker version {version}"
    if not force:
        raise CommandError(f"fatal: {text} (--force to connect anyway)")
    sys.stderr.write(f"flux-proxy: warning: {text}\n")


def _start(command: List[str], uri: str, path: str) -> subprocess.Popen[bytes]:
    """Start the command with the proxy's socket at `path` as its instance. Raises CommandError."""
    env = dict(os.environ, FLUX_URI=f"local://{path}")
    for name in ("FLUX_JOB_ID", "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE"):
        env.pop(name, None)
    scheme, host, _ = split_uri(uri)
    if scheme == "ssh":
        # Tells clients on which host the paths of the instance are.
        env["FLUX_PROXY_REMOTE"] = host
    command = command or [user_shell(os.environ)]
    try:
        return subprocess.Popen(command, env=env)
    except OSError as exc:
        status = 127 if isinstance(exc, FileNotFoundError) else 126
        raise CommandError(f"{command[0]}: {exc.strerror}", status) from None


class _Proxy:
    """Serves the connections of the command until it ends, and maintains the connection to the broker."""

    def __init__(self, uri: str, sock: socket.socket, path: str, options: Options) -> None:
        self.uri = uri
        self.path = path
        self.options = options
        self.reactor = Reactor()
        self.router = ProxyRouter(self._up)
        self.streams: Dict[bytes, MessageStream] = {}
        self.broker: Optional[MessageStream] = None
        self.child: Optional[subprocess.Popen[bytes]] = None
        try:
            self.listener = Listener(self.reactor, path, self._accepted)
        except OSError as exc:
            raise CommandError(f"{path}: {exc.strerror or exc}") from None
        self._follow(sock)

    def run(self, child: subprocess.Popen[bytes]) -> int:
        """Serve until the command ends; returns its exit status in the form of Popen.returncode."""
        self.child = child
        # The command handles an interrupt from the terminal. The proxy stays to return its exit status.
        self.reactor.add_signal(signal.SIGINT, lambda: None)
        for signum in (signal.SIGTERM, signal.SIGHUP):
            self.reactor.add_signal(signum, lambda signum=signum: child.send_signal(signum))  # type: ignore[misc]
        self.reactor.add_signal(signal.SIGCHLD, self._child_changed)
        # The command may have ended before the signal handler was added.
        self.reactor.add_timer(0.0, self._child_changed)
        self.reactor.run()
        return child.wait()

    def _child_changed(self) -> None:
        if self.child is not None and self.child.poll() is not None:
            self.reactor.stop()

    # -- clients

    def _accepted(self, sock: socket.socket) -> None:
        def send(msg: Message) -> None:
            stream.send(msg)

        client = Client(os.urandom(16).hex().encode(), send)

        def received(msg: Message) -> None:
            self.router.from_client(client, msg)

        def closed(_exc: OSError) -> None:
            del self.streams[client.uuid]
            self.router.leave(client)

        stream = MessageStream(self.reactor, sock, received, closed)
        self.streams[client.uuid] = stream
        self.router.join(client)
        stream.set_reading(self.broker is not None)

    def _read_clients(self, reads: bool) -> None:
        for stream in self.streams.values():
            stream.set_reading(reads)

    # -- the broker

    def _up(self, msg: Message) -> None:
        if self.broker is not None:
            self.broker.send(msg)

    def _follow(self, sock: socket.socket) -> None:
        self.broker = MessageStream(
            self.reactor, sock, self.router.from_broker, self._lost, lambda full: self._read_clients(not full)
        )

    def _lost(self, exc: OSError) -> None:
        self.broker = None
        if self.options.has("reconnect"):
            sys.stderr.write(f"flux-proxy: lost connection to the broker: {exc.strerror}, trying to reconnect\n")
            self.router.lost()
            # New requests of clients are not read until there is a broker again.
            self._read_clients(False)
            self.reactor.add_timer(_RECONNECT_EVERY, self._reconnect)
            return
        self.listener.close()
        for stream in list(self.streams.values()):
            stream.close(exc)
        if os.isatty(2):
            # A full-screen program that loses its broker may leave the cursor hidden.
            sys.stderr.write("\033[?25h")
        self.reactor.add_timer(_GRACE, self._hang_up)

    def _hang_up(self) -> None:
        hang_up = not self.options.has("nohup")
        action = ", sending SIGHUP to the command" if hang_up else ""
        sys.stderr.write(f"flux-proxy: lost connection to the broker{action}\n")
        if hang_up and self.child is not None:
            self.child.send_signal(signal.SIGHUP)
            self.child.send_signal(signal.SIGCONT)

    def _reconnect(self) -> None:
        try:
            sock = connect(self.uri)
        except OSError:
            self.reactor.add_timer(_RECONNECT_EVERY, self._reconnect)
            return
        sys.stderr.write("flux-proxy: reconnected\n")
        self._follow(sock)
        self.router.restored()
        self._read_clients(True)
