"""`flux proxy`: run a command, or a shell, as a client of another instance.

On the same machine the instance's socket is used directly. An instance elsewhere is reached through ssh: the command's
connections are each carried by a relay process there. A connection of our own tells when the instance is gone: then
the command is hung up, as a shell is whose terminal has gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command
from headrace.cli.instances import to_remote
from headrace.cli.uri import resolve
from headrace.client.handle import Handle
from headrace.client.reactor import Reactor
from headrace.client.usershell import user_shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from headrace.cli.getopts import Options

PREFIX = "flux-proxy: "

_COMMAND = Command(
    "flux-proxy",
    "[OPTIONS] JOB|URI [COMMAND...]",
    "Run a command as if inside another instance",
    (
        ("f", "force", "", "Connect to a broker that speaks another version of Flux, too"),
        ("n", "nohup", "", "Do not hang up the command when the connection is lost"),
        ("", "reconnect", "", "If the connection is lost, try to reconnect every 2 seconds"),
    ),
)
# The Flux version whose protocols our commands speak, as brokers tell theirs in the attribute `version`.
_SPOKEN = "0.88"
_RECONNECT_EVERY = 2.0
# The command may end by itself with the instance (`flux proxy JOB flux shutdown`): it gets this long to do so.
_GRACE = 0.5


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv, stop_early=True)
    target, *command = options.need(1)
    try:
        uri = resolve(target)
    except CommandError as exc:
        raise CommandError(f"Unable to resolve {target} to a URI: {exc.text}") from None
    handle = Handle(uri)
    _check_version(handle.attr_get("version"), options.has("force"))
    os.environ["FLUX_URI"] = uri
    os.environ["FLUX_PROXY_REMOTE"] = to_remote(uri)
    for name in ("FLUX_JOB_ID", "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE" if uri[:6] == "local:" else ""):
        os.environ.pop(name, None)
    if not command:
        command = [user_shell(os.environ)]
    try:
        child = subprocess.Popen(command)
    except OSError as exc:
        status = 127 if isinstance(exc, FileNotFoundError) else 126
        raise CommandError(f"{command[0]}: {exc.strerror}", status) from None
    status = _Proxy(handle, uri, child, options).run()
    if status < 0:
        sys.stderr.write(f"flux-proxy: {signal.strsignal(-status)}\n")
        return 128 - status
    return status


def _check_version(version: str, force: bool) -> None:
    """Warn of another version, or raise CommandError."""
    if version.split(".")[:2] == _SPOKEN.split("."):
        return
    text = f"the broker speaks Flux {version}, this command {_SPOKEN}"
    if not force:
        raise CommandError(f"{text}: use --force to connect nevertheless")
    sys.stderr.write(f"flux-proxy: warning: {text}\n")


class _Proxy:
    """Waits for the command's end, and looks after the connection meanwhile."""

    def __init__(self, handle: Handle, uri: str, child: subprocess.Popen[bytes], options: Options) -> None:
        self.uri = uri
        self.child = child
        self.options = options
        self.reactor = Reactor()
        self._follow(handle)

    def run(self) -> int:
        """The command's exit status as Popen has it."""
        # An interrupt is the command's to answer; we stay to pass on how it ended.
        self.reactor.add_signal(signal.SIGINT, lambda: None)
        self.reactor.add_signal(signal.SIGCHLD, self._child_changed)
        # It may have ended before the signal was watched.
        self.reactor.add_timer(0.0, self._child_changed)
        self.reactor.run()
        return self.child.wait()

    def _child_changed(self) -> None:
        if self.child.poll() is not None:
            self.reactor.stop()

    def _follow(self, handle: Handle) -> None:
        fd = handle.fileno()

        def readable(_revents: int) -> None:
            try:
                handle.pump(0)
            except OSError as exc:
                self.reactor.remove_fd(fd)
                handle.close()
                self._lost(exc)

        self.reactor.add_fd(fd, readable)

    def _lost(self, exc: OSError) -> None:
        if self.options.has("reconnect"):
            sys.stderr.write(f"flux-proxy: lost connection to the broker: {exc.strerror}, trying to reconnect\n")
            self.reactor.add_timer(_RECONNECT_EVERY, self._reconnect)
            return
        if os.isatty(2):
            # A full-screen program that loses its broker may leave the cursor hidden.
            sys.stderr.write("\033[?25h")
        self.reactor.add_timer(_GRACE, self._hang_up)

    def _hang_up(self) -> None:
        hang_up = not self.options.has("nohup")
        told = ", sending SIGHUP to the command" if hang_up else ""
        sys.stderr.write(f"flux-proxy: lost connection to the broker{told}\n")
        if hang_up:
            self.child.send_signal(signal.SIGHUP)
            self.child.send_signal(signal.SIGCONT)

    def _reconnect(self) -> None:
        try:
            handle = Handle(self.uri)
        except OSError:
            self.reactor.add_timer(_RECONNECT_EVERY, self._reconnect)
            return
        sys.stderr.write("flux-proxy: reconnected\n")
        self._follow(handle)
