"""How a client reaches a broker: `local://PATH` sockets and `ssh://HOST/PATH` through a relay process.

The standard library's `socket` pulls in `selectors` and `enum`, which every command would feel, so the C module
underneath it is used directly. A broker greets a new connection with one byte: 0, or the errno of a refusal.
"""

from __future__ import annotations

import _socket
import errno
import os

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
        if host and path and "?" not in path:
            return scheme, host, slash + path
    raise OSError(
        errno.EINVAL, f"Unable to connect to Flux: '{uri}' is not a broker URI (local://PATH or ssh://HOST/PATH)"
    )


def is_this_host(host: str) -> bool:
    """Whether an ssh URI's host is the machine we run on, so that no ssh is needed to reach its socket."""
    name = host.rpartition("@")[2].partition(":")[0]
    here = os.environ.get("FLUX_FAKE_HOSTNAME") or os.uname().nodename
    return name in ("localhost", here) or name == here.partition(".")[0]


def connect(uri: str) -> _socket.socket:
    """A connected, greeted stream to the broker at `uri`.

    Raises OSError with the text users know from Flux: ENOENT when the socket is not there, ECONNREFUSED when nobody
    listens, or the errno that the broker answered.
    """
    scheme, host, path = split_uri(uri)
    if scheme == "ssh" and not (is_this_host(host) and os.path.exists(path)):
        return _greet(_connect_ssh(host, path))
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
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
    return _greet(sock)


def _greet(sock: _socket.socket) -> _socket.socket:
    try:
        first = sock.recv(1)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"Unable to connect to Flux: {exc.strerror}") from None
    if not first:
        sock.close()
        raise OSError(errno.ECONNRESET, f"Unable to connect to Flux: {os.strerror(errno.ECONNRESET)}")
    if first[0]:
        sock.close()
        raise OSError(first[0], f"Unable to connect to Flux: {os.strerror(first[0])}")
    return sock


def _connect_ssh(host: str, path: str) -> _socket.socket:
    """A socket whose other end is `flux relay PATH` on `host`, started by ssh (FLUX_SSH names another program)."""
    import shlex
    import subprocess

    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    name, _, port = host.partition(":")
    argv: List[str] = os.environ.get("FLUX_SSH", "ssh").split()
    if port:
        argv += ["-p", port]
    argv.append(name)
    if os.environ.get("LD_LIBRARY_PATH"):
        # A shell at the other end sets it for the relay, whose Python may need what ours needs.
        argv.append("LD_LIBRARY_PATH=" + shlex.quote(os.environ["LD_LIBRARY_PATH"]))
    argv += [_remote_command(), "relay", shlex.quote(path)]
    try:
        subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno())
    except OSError as exc:
        ours.close()
        raise OSError(exc.errno, f"Unable to connect to Flux: {argv[0]}: {exc.strerror}") from None
    finally:
        theirs.close()
    return ours


def _remote_command() -> str:
    """`flux` at the other end of ssh: FLUX_SSH_RCMD, else the path it has here, as no login has set PATH there."""
    import shutil

    return os.environ.get("FLUX_SSH_RCMD") or shutil.which("flux") or "flux"


def claimed_credentials() -> Tuple[Optional[int], Optional[int]]:
    """The userid and role mask that FLUX_HANDLE_USERID and FLUX_HANDLE_ROLEMASK ask for (an owner may claim less)."""
    user = os.environ.get("FLUX_HANDLE_USERID")
    roles = os.environ.get("FLUX_HANDLE_ROLEMASK")
    try:
        return int(user, 0) if user else None, int(roles, 0) if roles else None
    except ValueError:
        raise OSError(errno.EINVAL, "FLUX_HANDLE_USERID and FLUX_HANDLE_ROLEMASK must be numbers") from None
