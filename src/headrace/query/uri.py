"""Addresses of brokers: the forms that they have on their machine and elsewhere."""

from __future__ import annotations

import os

from headrace.client.transport import is_this_host, split_uri


def to_local(uri: str) -> str:
    """The local:// form of a broker URI."""
    _, _, path = split_uri(uri)
    return f"local://{path}"


def to_remote(uri: str) -> str:
    """The ssh:// form of a broker URI."""
    scheme, host, path = split_uri(uri)
    return f"ssh://{host or os.uname().nodename}{path}" if scheme == "local" else uri


def reachable(uri: str) -> str:
    """The URI to connect to: the local form where the socket is on this machine, so that no ssh is needed."""
    scheme, host, path = split_uri(uri)
    if scheme == "ssh" and (is_this_host(host) or os.environ.get("FLUX_URI_RESOLVE_LOCAL")) and os.path.exists(path):
        return f"local://{path}"
    return uri
