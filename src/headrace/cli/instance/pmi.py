"""`flux pmi`: a client that tests the PMI-1 server (RFC 13) of the launcher that started it."""

from __future__ import annotations

import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec.idset import Idset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

PREFIX = "flux-pmi: "

_COMMAND = Command(
    "flux-pmi",
    "[OPTIONS] barrier|exchange|get KEY",
    "Test the PMI server of a job from one of its tasks",
    (
        ("", "method", "NAME", "Method of connection (only simple is supported)"),
        ("v", "verbose", "[LEVEL]", "Print each operation"),
    ),
)
_BARRIER = Command(
    "flux-pmi barrier",
    "[OPTIONS]",
    "Wait for all tasks of the job, N times",
    (
        ("", "count", "N", "Repeat N times"),
        ("", "test-count", "N", "Same as --count"),
        ("", "test-timing", "", "Print how long it took"),
    ),
)
_EXCHANGE = Command(
    "flux-pmi exchange",
    "[OPTIONS]",
    "Exchange a value between all tasks",
    (("", "count", "N", "Repeat N times"),),
)
_GET = Command(
    "flux-pmi get",
    "[OPTIONS] KEY",
    "Print the value of a key",
    (("", "ranks", "IDSET", "Print on these ranks, or all (default 0)"),),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv, stop_early=True)
    name, *rest = options.need(1)
    if name not in ("barrier", "exchange", "get"):
        _COMMAND.usage_error()
    if options.get("method", "simple") != "simple":
        raise CommandError(f"unknown PMI method '{options.get('method')}': use simple")
    client = Client(options.has("verbose"))
    if name == "barrier":
        given = _BARRIER.parse(rest)
        given.need(0, 0)
        start = time.monotonic()
        for _ in range(given.get_int("test-count", given.get_int("count", 1))):
            client.barrier()
        if client.rank == 0:
            timing = f" in {time.monotonic() - start:.3f}s." if given.has("test-timing") else ""
            print(f"{client.kvsname}: completed pmi barrier on {client.size} tasks{timing}")
    elif name == "exchange":
        given = _EXCHANGE.parse(rest)
        given.need(0, 0)
        start = time.monotonic()
        for number in range(given.get_int("count", 1)):
            _exchange(client, number)
        if client.rank == 0:
            took = time.monotonic() - start
            print(f"{client.kvsname}: completed pmi exchange on {client.size} tasks in {took:.3f}s.")
    else:
        given = _GET.parse(rest)
        (key,) = given.need(1, 1)
        ranks = given.get("ranks", "0")
        if ranks == "all" or client.rank in Idset.parse(ranks):
            print(client.get(key))
    client.finalize()
    return 0


def _exchange(client: Client, number: int) -> None:
    """Put a value for each task, and get the values of all. Raises CommandError if one is wrong."""
    # The prefix has the number of the round, because a key can be put only once.
    prefix = f"pmi-exchange.{number}"
    client.put(f"{prefix}.{client.rank}", str(client.rank))
    client.barrier()
    for rank in range(client.size):
        found = client.get(f"{prefix}.{rank}")
        if found != str(rank):
            raise CommandError(f"exchange: task {rank} put {rank}, task {client.rank} got {found}")


class Client:
    """A PMI-1 client on the descriptor in PMI_FD, initialized.

    With `trace`, each operation is reported on stderr.

    Raises CommandError if there is no server, or if the server reports an error.
    """

    def __init__(self, trace: bool) -> None:
        self._trace = trace
        self._trace_line("flux-pmi-client: trying 'config'")
        self._trace_line("config: bootstrap configuration not found")
        self._trace_line("flux-pmi-client: trying 'simple'")
        try:
            self._fd = int(os.environ["PMI_FD"])
            self.rank = int(os.environ["PMI_RANK"])
            self.size = int(os.environ["PMI_SIZE"])
        except (KeyError, ValueError):
            raise CommandError("PMI_FD, PMI_RANK and PMI_SIZE are not set: not started by a PMI server") from None
        self._trace_line("simple: selected")
        self._buffer = b""
        self._call("init pmi_version=1 pmi_subversion=1", "response_to_init")
        self._call("get_maxes", "maxes")
        self.kvsname = self._call("get_my_kvsname", "my_kvsname")["kvsname"]
        self._trace_line(f"simple: initialize: rank={self.rank} size={self.size} name={self.kvsname}: success")

    def _trace_line(self, text: str) -> None:
        if self._trace:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _call(self, command: str, expected: str) -> Dict[str, str]:
        os.write(self._fd, f"cmd={command}\n".encode())
        while b"\n" not in self._buffer:
            data = os.read(self._fd, 4096)
            if not data:
                raise CommandError(f"{command.split(maxsplit=1)[0]}: the PMI server closed the connection")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        # The value is the last pair and may contain spaces.
        head, mark, value = line.decode().partition(" value=")
        answer = dict(pair.partition("=")[::2] for pair in head.split())
        if mark:
            answer["value"] = value
        if answer.get("cmd") != expected or answer.get("rc", "0") != "0":
            raise CommandError(f"{command.split(maxsplit=1)[0]}: {answer.get('msg', line.decode())}")
        return answer

    def barrier(self) -> None:
        self._call("barrier_in", "barrier_out")
        self._trace_line("simple: barrier: success")

    def put(self, key: str, value: str) -> None:
        self._call(f"put kvsname={self.kvsname} key={key} value={value}", "put_result")
        self._trace_line(f"simple: put key={key}: success")

    def get(self, key: str) -> str:
        answer = self._call(f"get kvsname={self.kvsname} key={key}", "get_result")
        self._trace_line(f"simple: get key={key}: success")
        return answer.get("value", "")

    def finalize(self) -> None:
        self._call("finalize", "finalize_ack")
        self._trace_line("simple: finalize: success")
