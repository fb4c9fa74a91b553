"""The service as a program: listening sockets, the message when it is ready, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import shlex
import signal
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import uvicorn

from headrace.formats.config import guests
from headrace.formats.spec.message import use_json_codec
from headrace.service import running
from headrace.service.app import create_app
from headrace.service.broker_link import BrokerLink
from headrace.service.http_connection import BoundedConnection
from headrace.service.middleware import Forwarded
from headrace.service.settings import Settings, SettingsError
from headrace.service.users import credential

# Seconds that requests in progress have to finish when the service stops.
_GRACE = 5
# Host names for a loopback address, as browsers and scripts on this machine or behind `ssh -L` use them.
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))


class Ready(NamedTuple):
    """The addresses of a service that accepts requests.

    `socket` is the path of the unix socket, "" for none. `login` is the one-time address that opens the page, and
    `token` is a token for scripts. Both are "" if no token is needed.
    """

    url: str
    socket: str
    login: str
    token: str


class Beyond(NamedTuple):
    """Protection of requests from other machines: a certificate or a proxy with TLS.

    `certificate` is the certificate and its key (PEM files). A proxy reports the client's address and the scheme in
    `X-Forwarded-For` and `X-Forwarded-Proto`. `names` are additional names of the service.
    """

    certificate: tuple[str, str] | None = None
    behind_proxy: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_protected(self) -> bool:
        return self.certificate is not None or self.behind_proxy


def check_certificate(certificate: tuple[str, str] | None, options: tuple[str, str]) -> None:
    """Check that the files of a certificate and its key can be used.

    Raises SettingsError, which names the option of the file.
    """
    if certificate is None:
        return
    for path, option in zip(certificate, options):
        try:
            with open(path, "rb"):
                pass
        except OSError as exc:
            raise SettingsError(f"{option} {path}: {exc.strerror or exc}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*certificate)
    except OSError as exc:
        names = ", ".join(f"{option} {path}" for path, option in zip(certificate, options))
        raise SettingsError(f"{names}: {exc.strerror or exc}") from None


def exposed(key: str) -> str:
    """The error text for a key file that other users can read or write, "" if the file is private.

    If the file belongs to another user, its group may have rights: root has then given the key to a group of this
    process. ssh has the same rule for its keys. Raises OSError.
    """
    found = os.stat(key)
    mode = stat.S_IMODE(found.st_mode)
    if not mode & (0o077 if found.st_uid == os.geteuid() else 0o007):
        return ""
    return f"{key}: others have rights to this file, which has a key (mode {mode:o}): chmod 600 {shlex.quote(key)}"


class Listener(NamedTuple):
    """A listening socket, its URL, the host names it accepts (empty: any), and the path of a unix socket."""

    sock: socket.socket
    url: str
    names: frozenset[str]
    path: str = ""


def listen(host: str, port: int, beyond: Beyond) -> Listener:
    """Listen on an address of this machine (port 0: any free port).

    Raises SettingsError for an unprotected address that other machines can reach, and OSError.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        loopback = ipaddress.ip_address(address[0]).is_loopback
    except (OSError, UnicodeError, ValueError) as exc:
        raise SettingsError(f"host '{host}': {getattr(exc, 'strerror', None) or exc}") from None
    if not loopback and not beyond.is_protected:
        raise SettingsError(
            f"host '{host}' can be reached from other machines, and there is no TLS: give --tls-cert and --tls-key, or "
            "--behind-proxy if a proxy has them; or use 127.0.0.1, which `ssh -L` and `kubectl port-forward` reach"
        )
    sock = socket.socket(family, kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(socket.SOMAXCONN)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"{host}:{port}: {exc.strerror}") from None
    shown = f"[{host}]" if ":" in host else host
    names = _LOOPBACK_NAMES | {shown.lower(), *(name.lower() for name in beyond.names)}
    if not loopback:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    scheme = "https" if beyond.certificate else "http"
    return Listener(sock, f"{scheme}://{shown}:{sock.getsockname()[1]}", names)


def listen_at(path: str) -> Listener:
    """Listen on a unix socket to which only its owner can connect. Raises OSError.

    A socket file without a listening process, left by an earlier service, is replaced.
    """
    path = os.path.abspath(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # With this umask the socket file never has rights for other users, not even briefly.
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(socket.SOMAXCONN)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"{path}: {exc.strerror or exc}") from None
    return Listener(sock, "http://localhost", frozenset(), path)


def _remove_stale(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def _is_unexpected(record: logging.LogRecord) -> bool:
    """False for uvicorn's message about a response that was cut off on purpose (middleware.Cut)."""
    return not record.getMessage().startswith("ASGI callable returned without completing response")


async def _check_guests(link: BrokerLink) -> str:
    """Warn if the jobs of all users run as the owner. Returns `submit` of [headrace.guests].

    Raises SettingsError if the instance refuses jobs of other users.
    """
    config = await link.call("config.get")
    allowed = guests.submit(config)
    if allowed == guests.REFUSE:
        raise SettingsError(
            f'several users cannot be served, as this instance refuses their jobs ({guests.KEY} is "refuse"): set '
            f'submit = "{guests.AS_OWNER}" in the table [headrace.guests] of its configuration'
        )
    if guests.mechanism(config) == guests.MUNGE:
        raise SettingsError(
            f'several users cannot be served, as they cannot sign their jobs here ({guests.MECHANISM_KEY} is "munge")'
        )
    if allowed == guests.AS_OWNER:
        text = "jobs of all users run as you: users are not protected from each other's processes"
        print(f"headrace-api: {text}", file=sys.stderr, flush=True)
    return allowed


class Server(uvicorn.Server):
    """A uvicorn server that calls `started` once it accepts requests, and `ending` when it stops.

    `ending` ends all streams, because uvicorn would wait for them. The main loop wakes once a second to renew the
    header `Date`. uvicorn's own loop wakes ten times a second and uses five times the CPU when idle.
    """

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = started
        self._end_streams = ending
        self._loop = asyncio.get_running_loop()
        self._must_end = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._must_end.set)

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 10
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._must_end.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)


def configuration(app: Any, certificate: tuple[str, str] | None, **more: Any) -> uvicorn.Config:
    """The uvicorn configuration for an application.

    `certificate` has the files of a certificate and its key, None for plain HTTP.
    """
    return uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        **more,
    )


def run_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that serves with a Server, until SIGINT or SIGTERM."""
    # After shutdown uvicorn raises the captured signals once more. By then they must have no effect.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)
    asyncio.run(serving)


def run(settings: Settings, listener: Listener, ready: Callable[[Ready], None], beyond: Beyond) -> None:
    """Serve until SIGINT or SIGTERM. Calls `ready` when requests are accepted, and again on SIGUSR1.

    Raises BrokerUnreachable if the broker cannot be reached at the start.
    """
    use_json_codec(msgspec.json.encode, msgspec.json.decode)
    app = create_app(settings)
    service = app.state.service
    served = Forwarded(app) if beyond.behind_proxy else app
    config = configuration(served, beyond.certificate, lifespan="on", proxy_headers=False)

    def describe(token: bool) -> Ready:
        """The addresses of the service. If a token is needed, each call makes a new one-time login address."""
        access = service.access
        if not access.needed or access.accounts.several:
            return Ready(listener.url, listener.path, "", "")
        login = f"{listener.url}/login?token={access.logins.issue()}"
        return Ready(listener.url, listener.path, login, access.accounts.issue(credential.owner()) if token else "")

    def for_url_command() -> dict[str, str]:
        return {"uri": service.broker.uri, **{name: value for name, value in describe(True)._asdict().items() if value}}

    async def serve() -> None:
        link = service.broker.link(None)
        await link.call("attr.get", {"name": "size"})
        if service.access.accounts.several and await _check_guests(link) == guests.AS_USER:
            service.settings = replace(service.settings, directory="")
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: ready(describe(False)))
        with running.listen() as found_by:
            answering = asyncio.ensure_future(running.answer(found_by, for_url_command))
            try:
                await Server(config, lambda: ready(describe(True)), service.broker.close).serve([listener.sock])
            finally:
                answering.cancel()

    # The sender of a malformed form gets the error in the response. The log does not repeat it.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_unexpected)
    try:
        run_until_signal(serve())
    finally:
        listener.sock.close()
        if listener.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(listener.path)
