"""Connections of clients to a broker: `local://PATH` sockets, and `ssh://HOST/PATH` through a relay process.

A broker answers a new connection with one byte: 0, or the errno of a refusal.
"""

from __future__ import annotations

import errno
import os

from headrace.formats.spec import credential
from headrace.formats.spec.stdlib_parts import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

DEFAULT_URI = "local:///run/flux/local"


def split_uri(uri: str) -> Tuple[str, str, str]:
    """(scheme, host, path) of a broker URI. Raises OSError EINVAL for anything but local:// and ssh://."""
    scheme, sep, rest = uri.partition("://")
    if sep and scheme == "local" and rest:
        return scheme, "", rest
    if sep and scheme == "ssh":
        host, slash, path = rest.partition("/")
        if _is_ssh_host(host) and path and "?" not in path:
            return scheme, host, slash + path
    raise OSError(
        errno.EINVAL, f"Unable to connect to Flux: '{uri}' is not a broker URI (local://PATH or ssh://HOST/PATH)"
    )


def _is_ssh_host(host: str) -> bool:
    """Whether a text is [USER@]HOST[:PORT]. A user or host must not begin with a dash: ssh would take it for an option,
    some options run commands (ProxyCommand), and addresses may come from job memos.
    """
    user, at, rest = host.rpartition("@")
    name, colon, port = rest.partition(":")
    if not name or name.startswith("-") or (at and (not user or user.startswith("-"))):
        return False
    return not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536)


def through_proxy(uri: str) -> str:
    """The address of another instance, as given by a broker, for a client of `flux proxy`: a local socket is on the
    host that the proxy is connected to (FLUX_PROXY_REMOTE).
    """
    remote = os.environ.get("FLUX_PROXY_REMOTE")
    return f"ssh://{remote}{uri[8:]}" if remote and uri.startswith("local://") else uri


def is_this_host(host: str) -> bool:
    """Whether the host of an ssh URI is this machine, so that its socket is reached without ssh."""
    name = host.rpartition("@")[2].partition(":")[0]
    here = os.environ.get("FLUX_FAKE_HOSTNAME") or os.uname().nodename
    return name in ("localhost", here) or name == here.partition(".")[0]


def connect(uri: str, timeout: Optional[float] = None) -> socket.socket:
    """A connected stream to the broker at `uri`, after the broker's greeting, for which `timeout` seconds are waited
    (a local broker; None: without end).

    Raises OSError with Flux's text: ENOENT if there is no socket, ECONNREFUSED if no broker listens on it, ETIMEDOUT,
    or the errno in the broker's greeting.
    """
    scheme, host, path = split_uri(uri)
    if scheme == "ssh":
        return _connect_ssh(host, path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.settimeout(timeout)
    try:
        sock.connect(path)
    except FileNotFoundError:
        sock.close()
        raise OSError(errno.ENOENT, f"Unable to connect to Flux: broker socket {path} was not found") from None
    except OSError as exc:
        sock.close()
        code = exc.errno or errno.EIO
        text = "the socket's path is too long" if exc.errno is None else os.strerror(code)
        raise OSError(code, f"Unable to connect to Flux: broker socket {path}: {text}") from None
    greeted = _greet(sock)
    greeted.settimeout(None)
    return greeted


def _greet(sock: socket.socket) -> socket.socket:
    try:
        first = sock.recv(1)
    except OSError as exc:
        sock.close()
        # A timeout of a socket has no errno.
        code = exc.errno or errno.ETIMEDOUT
        raise OSError(code, f"Unable to connect to Flux: {os.strerror(code)}") from None
    if not first:
        sock.close()
        raise OSError(errno.ECONNRESET, f"Unable to connect to Flux: {os.strerror(errno.ECONNRESET)}")
    if first[0]:
        sock.close()
        raise OSError(first[0], f"Unable to connect to Flux: {os.strerror(first[0])}")
    return sock


def ssh_command(host: str, path: str) -> List[str]:
    """The command that relays bytes to the socket `path` on `host` ([USER@]HOST[:PORT]).

    FLUX_SSH names another ssh. On the host, `flux` is found next to the socket, where the broker has linked its own, or
    at its local path; FLUX_SSH_RCMD names it instead.
    """
    import shlex

    name, _, port = host.partition(":")
    argv = os.environ.get("FLUX_SSH", "ssh").split()
    if port:
        argv += ["-p", port]
    argv.append(name)
    # The remote shell sets LD_LIBRARY_PATH for the relay, whose Python may need the same libraries as this one.
    libraries = os.environ.get("LD_LIBRARY_PATH")
    carried = ["LD_LIBRARY_PATH=" + shlex.quote(libraries)] if libraries else []
    there = os.environ.get("FLUX_SSH_RCMD")
    if there:
        argv += [*carried, there]
    else:
        folders = [os.path.join(os.path.dirname(path), "bin"), _own_folder(), "/bin", "/usr/bin"]
        argv += ["env", "PATH=" + shlex.quote(":".join(folders)), *carried, "flux"]
    return [*argv, "relay", shlex.quote(path)]


def _own_folder() -> str:
    """The folder of the local `flux` command."""
    import shutil
    import sys

    found = sys.argv[0] if os.path.basename(sys.argv[0]) in ("flux", "headrace") else shutil.which("flux")
    return os.path.dirname(os.path.abspath(found or sys.executable))


def _connect_ssh(host: str, path: str) -> socket.socket:
    """A greeted socket whose other end is `flux relay PATH` on `host`. The output of ssh becomes part of the error
    instead of being printed, since programs that use the handle decide what they print.
    """
    import subprocess

    argv = ssh_command(host, path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    said = os.memfd_create("ssh-stderr")
    try:
        try:
            subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=said)
        except OSError as exc:
            ours.close()
            raise OSError(
                exc.errno,
                f"ssh-connector: {argv[0]}: {exc.strerror}\nHint: set FLUX_SSH in environment to override",
            ) from None
        theirs.close()
        try:
            return _greet(ours)
        except OSError as exc:
            text = os.pread(said, 4096, 0).decode("utf-8", "replace").strip()
            raise OSError(exc.errno, f"{exc.strerror}: {text}" if text else exc.strerror) from None
    finally:
        theirs.close()
        os.close(said)


def own_userid() -> int:
    """The userid that a command means by one's own: that of HEADRACE_USERID, which jobs of guests have, or of this
    process. Raises OSError(EINVAL).
    """
    own = _number(credential.OWN_USERID)
    return os.getuid() if own is None else own


def claimed_credentials() -> Tuple[Optional[int], Optional[int]]:
    """The userid and role mask in FLUX_HANDLE_USERID and FLUX_HANDLE_ROLEMASK, by which an owner may claim less."""
    return _number(credential.USERID), _number(credential.ROLEMASK)


def _number(variable: str) -> Optional[int]:
    text = os.environ.get(variable)
    try:
        return int(text, 0) if text else None
    except ValueError:
        raise OSError(errno.EINVAL, f"{variable} is {text!r}, it must be a number") from None
