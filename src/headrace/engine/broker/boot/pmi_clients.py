"""The client's side of PMI-1 (RFC 13): how a launcher (`mpiexec`, a Flux job's shell) tells brokers who they are."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from headrace.formats.spec.os_error import text_of

_TIMEOUT = 60.0


class PmiError(Exception):
    """The process manager did not answer as RFC 13 says; the text has its answer."""


class Pmi1Client:
    """A connection by PMI_FD. Raises PmiError from every method when the server refuses or goes away."""

    def __init__(self, env: Mapping[str, str]) -> None:
        try:
            self.rank = int(env["PMI_RANK"])
            self.size = int(env["PMI_SIZE"])
            self._sock = socket.socket(fileno=int(env["PMI_FD"]))
        except (KeyError, ValueError, OSError) as exc:
            raise PmiError(f"PMI_FD, PMI_RANK and PMI_SIZE must be set together: {text_of(exc)}") from None
        self._sock.settimeout(_TIMEOUT)
        self._buffer = b""
        self._call("cmd=init pmi_version=1 pmi_subversion=1")
        self.kvsname = self._call("cmd=get_my_kvsname")["kvsname"]

    def _call(self, line: str) -> dict[str, str]:
        try:
            self._sock.sendall(line.encode() + b"\n")
            while b"\n" not in self._buffer:
                data = self._sock.recv(1 << 16)
                if not data:
                    raise PmiError("the process manager closed the connection")
                self._buffer += data
        except OSError as exc:
            raise PmiError(f"the process manager does not answer: {text_of(exc)}") from None
        answer, self._buffer = self._buffer.split(b"\n", 1)
        text = answer.decode("utf-8", "replace")
        head, marker, rest = text.partition(" value=")
        fields = dict(word.partition("=")[::2] for word in head.split())
        if marker:
            fields["value"] = rest
        if fields.get("rc", "0") != "0":
            raise PmiError(f"{line.split(maxsplit=1)[0][4:]}: {text}")
        return fields

    def put(self, key: str, value: str) -> None:
        self._call(f"cmd=put kvsname={self.kvsname} key={key} value={value}")

    def get(self, key: str) -> str:
        return self._call(f"cmd=get kvsname={self.kvsname} key={key}").get("value", "").rstrip()

    def lookup(self, key: str) -> str:
        """Like get, "" when there is no such key."""
        try:
            return self.get(key)
        except PmiError:
            return ""

    def barrier(self) -> None:
        self._call("cmd=barrier_in")

    def finalize(self) -> None:
        self._call("cmd=finalize")
        self._sock.close()


def offered(env: Mapping[str, str] | None = None) -> bool:
    """True when a launcher offers PMI-1 by descriptor."""
    env = os.environ if env is None else env
    return "PMI_FD" in env and "PMI_RANK" in env and "PMI_SIZE" in env
