"""A TLS handshake as the API server makes it with a webhook."""

from __future__ import annotations

import socket
import ssl
import threading


def handshake(server: ssl.SSLContext, authority: str, host: str) -> None:
    """Raises ssl.SSLError where a client that trusts `authority` (PEM) does not trust the server for `host`."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        ssl.create_default_context(cadata=authority).wrap_socket(ours, server_hostname=host).close()
    finally:
        ours.close()
        thread.join()
