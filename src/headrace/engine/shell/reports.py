"""Operations that a job's shell sends: to the broker, to the job's other shells and to clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import job_exception

if TYPE_CHECKING:
    from headrace.engine.process.operations import FromAgent, RaisedException

    from .output import Entry


class Reports:
    """The sender of one shell. `send` passes an operation to the broker (docs/dev/interfaces.md).

    In the lead shell, `others` are the nodes whose shells have not finished.
    """

    def __init__(self, send: Callable[[FromAgent], None], id: int, others: set[int]) -> None:
        self._send = send
        self._id = id
        self.others = others

    def started(self) -> None:
        """Report that the job's start has begun. Clients read the output log, including errors, only after this."""
        self._send({"op": "started", "id": self._id})

    def event(self, name: str, context: dict[str, Any] | None = None) -> None:
        self._send({"op": "event", "id": self._id, "t": time.time(), "name": name, "context": context})

    def exception(self, note: str, severity: int = job_exception.FATAL, status: int | None = None) -> None:
        """Raise an exception of the job. `status` is the job's wait status if its tasks could not be started."""
        kind = job_exception.EXEC
        op: RaisedException = {"op": "exception", "id": self._id, "severity": severity, "type": kind, "note": note}
        if status is not None:
            op["status"] = status
        self._send(op)

    def output(self, entries: list[Entry]) -> None:
        self._send({"op": "output", "id": self._id, "entries": entries})

    def input(self, entries: list[Entry]) -> None:
        self._send({"op": "input", "id": self._id, "entries": entries})

    def barrier(self, seq: int, kvs: dict[str, str]) -> None:
        """Enter the barrier `seq` of the job's shells with the pairs of this node."""
        self._send({"op": "barrier", "id": self._id, "seq": seq, "kvs": kvs})

    def to_peer(self, nodeid: int, data: dict[str, Any]) -> None:
        """Send a message to the job's shell on node `nodeid`."""
        self._send({"op": "peer", "id": self._id, "to": nodeid, "data": data})

    def to_others(self, data: dict[str, Any]) -> None:
        """Send a message to all shells that have not finished (lead shell only)."""
        for nodeid in self.others:
            self.to_peer(nodeid, data)

    def reply(self, token: int, payload: dict[str, Any] | None = None, errnum: int = 0, text: str = "") -> None:
        """Respond to a request. An error ends a stream; other responses to a stream may be followed by more."""
        self._send({"op": "rpc-reply", "token": token, "errnum": errnum, "payload": payload, "text": text})

    def ask_drained(self, token: int) -> None:
        """Ask the broker to send `rpc-drained` once the client of a stream has received all responses."""
        self._send({"op": "rpc-drain", "id": self._id, "token": token})
