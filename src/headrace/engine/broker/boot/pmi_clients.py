"""Clients for PMI-1 (RFC 13) and PMI-2, with which a launcher assigns ranks.

Launchers are `mpiexec`, `srun`, or the shell of a Flux job. Both clients have the same methods, so the exchange of
brokers does not depend on the protocol.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from headrace.formats.spec.os_error import text_of

_TIMEOUT = 60.0


class PmiError(Exception):
    """The process manager's response violates RFC 13. The text includes the response."""


class Pmi1Client:
    """A PMI-1 connection at PMI_FD. Every method raises PmiError if the server refuses or disconnects."""

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
        """Like get, but returns "" if there is no such key."""
        try:
            return self.get(key)
        except PmiError:
            return ""

    def barrier(self) -> None:
        self._call("cmd=barrier_in")

    def finalize(self) -> None:
        self._call("cmd=finalize")
        self._sock.close()


def offers_pmi1(env: Mapping[str, str] | None = None) -> bool:
    """True if a launcher offers PMI-1 in PMI_FD."""
    env = os.environ if env is None else env
    return "PMI_FD" in env and "PMI_RANK" in env and "PMI_SIZE" in env


_LENGTH_DIGITS = 6


class Pmi2Client:
    """A PMI-2 connection at PMI_FD, as Slurm's `srun --mpi=pmi2` serves it.

    Messages are `key=value;` pairs, preceded by their length. Every method raises PmiError if the server refuses or
    disconnects.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        try:
            self.rank = int(env["PMI_RANK"])
            self._sock = socket.socket(fileno=int(env["PMI_FD"]))
        except (KeyError, ValueError, OSError) as exc:
            raise PmiError(f"PMI_FD and PMI_RANK must be set together: {text_of(exc)}") from None
        self._sock.settimeout(_TIMEOUT)
        self.kvsname = env.get("PMI_JOBID", "")
        answer = self._call("fullinit", pmijobid=self.kvsname, pmirank=str(self.rank), threaded="FALSE")
        try:
            self.size = int(answer["size"])
        except (KeyError, ValueError):
            raise PmiError(f"fullinit: no size in {answer}") from None

    def _call(self, command: str, **fields: str) -> dict[str, str]:
        body = "".join(f"{key}={value.replace(';', ';;')};" for key, value in {"cmd": command, **fields}.items())
        try:
            data = body.encode()
            self._sock.sendall(b"%*d%b" % (_LENGTH_DIGITS, len(data), data))
            size = int(self._read(_LENGTH_DIGITS))
            answer = _pmi2_fields(self._read(size))
        except (OSError, ValueError) as exc:
            raise PmiError(f"{command}: {text_of(exc)}") from None
        if answer.get("cmd") != command + "-response" or answer.get("rc", "0") != "0":
            raise PmiError(f"{command}: {answer.get('errmsg') or answer}")
        return answer

    def _read(self, size: int) -> str:
        data = b""
        while len(data) < size:
            piece = self._sock.recv(size - len(data))
            if not piece:
                raise PmiError("the process manager closed the connection")
            data += piece
        return data.decode("utf-8", "replace")

    def put(self, key: str, value: str) -> None:
        self._call("kvs-put", key=key, value=value)

    def get(self, key: str) -> str:
        answer = self._call("kvs-get", jobid=self.kvsname, srcid="-1", key=key)
        if answer.get("found") != "TRUE":
            raise PmiError(f"kvs-get: {key} was not put")
        return answer.get("value", "")

    def lookup(self, key: str) -> str:
        """An attribute of the job (`PMI_process_mapping`), or "" if the server does not have it."""
        try:
            answer = self._call("info-getjobattr", key=key)
        except PmiError:
            return ""
        return answer.get("value", "") if answer.get("found") == "TRUE" else ""

    def barrier(self) -> None:
        self._call("kvs-fence")

    def finalize(self) -> None:
        self._call("finalize")
        self._sock.close()


def _pmi2_fields(text: str) -> dict[str, str]:
    """Parse `key=value;` pairs. A doubled semicolon is a semicolon in the value."""
    fields = {}
    for pair in text.replace(";;", "\0").split(";"):
        key, sep, value = pair.partition("=")
        if sep:
            fields[key] = value.replace("\0", ";")
    return fields


def offers_pmi2(env: Mapping[str, str]) -> bool:
    """True if Slurm serves PMI-2: only its launcher sets both a step and PMI_FD."""
    return "SLURM_STEP_ID" in env and "PMI_FD" in env and "PMI_RANK" in env
