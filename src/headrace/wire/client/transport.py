"""Client connections to a broker: `local://PATH` sockets, and `ssh://HOST/PATH` through a relay.

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
    """True for a text of the form [USER@]HOST[:PORT].

    A user or host must not begin with a dash: addresses may come from job memos, and ssh would parse it as an option.
    Some options run commands (ProxyCommand).
    """
    user, at, rest = host.rpartition("@")
    name, colon, port = rest.partition(":")
    if not name or name.startswith("-") or (at and (not user or user.startswith("-"))):
        return False
    return not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536)


def through_proxy(uri: str) -> str:
    """Convert another instance's URI, received from a broker, for a client of `flux proxy`.

    A local socket is on the host to which the proxy is connected (FLUX_PROXY_REMOTE).
    """
    remote = os.environ.get("FLUX_PROXY_REMOTE")
    return f"ssh://{remote}{uri[8:]}" if remote and uri.startswith("local://") else uri


def is_this_host(host: str) -> bool:
    """True if the host of an ssh URI is this machine, whose sockets can be reached without ssh."""
    name = host.rpartition("@")[2].partition(":")[0]
    here = os.environ.get("FLUX_FAKE_HOSTNAME") or os.uname().nodename
    return name in ("localhost", here) or name == here.partition(".")[0]


def connect(uri: str, timeout: Optional[float] = None) -> socket.socket:
    """Connect to the broker at `uri`, wait for its greeting, and return the socket.

    `timeout` is in seconds (None: no limit) and applies to local brokers. Raises OSError with Flux's text: ENOENT if
    there is no socket, ECONNREFUSED if no broker listens on it, ETIMEDOUT, or the errno in the broker's greeting.
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
    greeted(sock).settimeout(None)
    return sock


def greeted(sock: socket.socket) -> socket.socket:
    """Wait for the broker's greeting, and return the socket. Raises OSError, and closes the socket."""
    try:
        first = sock.recv(1)
    except OSError as exc:
        sock.close()
        # The exception for a socket's timeout has no errno.
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

    FLUX_SSH names another program than ssh. On the remote host, `flux` is searched in `bin` beside the socket, where
    the broker creates a link to it, and then at its path on this host. FLUX_SSH_RCMD names another command.
    """
    import shlex

    name, _, port = host.partition(":")
    argv = os.environ.get("FLUX_SSH", "ssh").split()
    if port:
        argv += ["-p", port]
    argv.append(name)
    # LD_LIBRARY_PATH is passed to the relay, because its Python may need the same libraries as this process.
    libraries = os.environ.get("LD_LIBRARY_PATH")
    library_path = ["LD_LIBRARY_PATH=" + shlex.quote(libraries)] if libraries else []
    remote_command = os.environ.get("FLUX_SSH_RCMD")
    if remote_command:
        argv += [*library_path, remote_command]
    else:
        folders = [os.path.join(os.path.dirname(path), "bin"), _own_folder(), "/bin", "/usr/bin"]
        argv += ["env", "PATH=" + shlex.quote(":".join(folders)), *library_path, "flux"]
    return [*argv, "relay", shlex.quote(path)]


def _own_folder() -> str:
    """The folder of the local `flux` command."""
    import shutil
    import sys

    found = sys.argv[0] if os.path.basename(sys.argv[0]) in ("flux", "headrace") else shutil.which("flux")
    return os.path.dirname(os.path.abspath(found or sys.executable))


def _connect_ssh(host: str, path: str) -> socket.socket:
    """Connect to `flux relay PATH` on `host`, and return the socket after the broker's greeting.

    Error output of ssh becomes part of the exception and is not printed, because the program that uses the handle
    decides what to print.
    """
    import subprocess

    argv = ssh_command(host, path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ssh_stderr = os.memfd_create("ssh-stderr")
    try:
        try:
            subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=ssh_stderr)
        except OSError as exc:
            ours.close()
            raise OSError(
                exc.errno,
                f"ssh-connector: {argv[0]}: {exc.strerror}\nHint: set FLUX_SSH in environment to override",
            ) from None
        theirs.close()
        try:
            return greeted(ours)
        except OSError as exc:
            text = os.pread(ssh_stderr, 4096, 0).decode("utf-8", "replace").strip()
            raise OSError(exc.errno, f"{exc.strerror}: {text}" if text else exc.strerror) from None
    finally:
        theirs.close()
        os.close(ssh_stderr)


def own_userid() -> int:
    """The user whose jobs a command handles by default: HEADRACE_USERID, or the user of this process.

    HEADRACE_USERID is set in guests' jobs. Raises OSError(EINVAL).
    """
    own = _number(credential.OWN_USERID)
    return os.getuid() if own is None else own


def claimed_credentials() -> Tuple[Optional[int], Optional[int]]:
    """The userid and role mask in FLUX_HANDLE_USERID and FLUX_HANDLE_ROLEMASK.

    An owner sets them to act with fewer privileges.
    """
    return _number(credential.USERID), _number(credential.ROLEMASK)


def _number(variable: str) -> Optional[int]:
    text = os.environ.get(variable)
    try:
        return int(text, 0) if text else None
    except ValueError:
        raise OSError(errno.EINVAL, f"{variable} is {text!r}, it must be a number") from None
