"""`flux relay PATH`: copies bytes between stdin, stdout and a broker's socket (for ssh URIs)."""

from __future__ import annotations

import os
import select

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec.stdlib_parts import socket
from headrace.wire.client.transport import split_uri

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-relay: "

_COMMAND = Command("flux-relay", "path-to-socket", "Relay messages between stdin, stdout and a broker")
_CHUNK = 1 << 16


def main(argv: List[str]) -> int:
    (path,) = _COMMAND.parse(argv).need(1, 1)
    if "://" in path:
        path = split_uri(path)[2]
    # The broker's greeting byte must be copied, too, so the socket is not opened as a handle.
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(sock, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            data = os.read(fd, _CHUNK)
            if not data:
                return 0
            if fd == 0:
                sock.sendall(data)
            else:
                _write_all(1, data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
