"""`flux ping`: the round trip to a service, with the route it took."""

from __future__ import annotations

import sys
import time

from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command
from headrace.client.handle import NODEID_ANY, Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    from headrace.client.handle import Rpc

PREFIX = "flux-ping: "
# Seconds after which somebody at a terminal is told that nobody answers.
_PATIENCE = 2.0
# Seconds that nobody waits from one ping to the next.
_LONGEST = 1e6

_COMMAND = Command(
    "flux-ping",
    "[OPTIONS] target",
    "Time the way of a message to a service and back",
    (
        ("r", "rank", "NODEID", "Ask at this rank or host"),
        ("p", "pad", "N", "Send N bytes along (suffixes K and M)"),
        ("i", "interval", "N", "Wait so long between two messages (default: 1s)"),
        ("c", "count", "N", "End after N answers"),
        ("b", "batch", "", "Send all first, then wait for the answers"),
        ("u", "userid", "", "Print which user and roles the request came with"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    handle = Handle()
    node, service = _target(handle, text, options.get("rank"))
    shown = f"{'any' if node == NODEID_ANY else node}!{service}"
    print(f"flux-ping {shown}", flush=True)
    count = options.get_int("count", 0)
    pad = "z" * options.get_int("pad", 0)
    interval = _interval(options.get("interval", "1"))
    pings = _Pings(handle, node, service, pad, options.has("userid"))
    if options.has("batch"):
        if not count:
            raise CommandError("--batch requires --count")
        calls = []
        for seq in range(count):
            if seq:
                time.sleep(interval)
            calls.append(pings.send(seq))
        for call in calls:
            pings.receive(call)
        return 0
    seq = 0
    while True:
        pings.receive(pings.send(seq))
        seq += 1
        if seq == count:
            return 0
        time.sleep(interval)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= _LONGEST:
        raise CommandError(f"--interval: '{text}' is no number of seconds")
    return seconds


def _target(handle: Handle, text: str, rank: str) -> Tuple[int, str]:
    """Node and service of `SERVICE`, `RANK`, `HOST` or `RANK!SERVICE`. Raises CommandError."""
    service = text
    if "!" in text:
        rank, service = text.split("!", 1)
    elif not rank and _looks_like_node(handle, text):
        rank, service = text, "broker"
    if not rank or rank == "any":
        return NODEID_ANY, service
    if rank == "upstream":
        return 0xFFFFFFFE, service
    node = _node(handle, rank)
    if node < 0:
        raise CommandError(f"invalid nodeid/host: '{rank}'")
    return node, service or "broker"


def _looks_like_node(handle: Handle, text: str) -> bool:
    return text.isdigit() or _node(handle, text) >= 0


def _node(handle: Handle, text: str) -> int:
    """The rank that a number or host name stands for, -1 if none."""
    if text.isdigit():
        handle.attr_get("hostlist")
        return int(text)
    from headrace.spec.hostlist import Hostlist

    hosts = list(Hostlist.parse(handle.attr_get("hostlist")))
    return hosts.index(text) if text in hosts else -1


class _Pings:
    """Sends and prints pings to one service."""

    def __init__(self, handle: Handle, node: int, service: str, pad: str, show_user: bool) -> None:
        self._handle = handle
        self._node = node
        self._service = service
        self._pad = pad
        self._show_user = show_user
        self._told = False

    def send(self, seq: int) -> Rpc:
        now = time.monotonic_ns()
        request = {"seq": seq, "time.tv_sec": now // 10**9, "time.tv_nsec": now % 10**9, "pad": self._pad}
        return self._handle.rpc(f"{self._service}.ping", request, self._node)

    def receive(self, call: Rpc) -> None:
        rank = "any" if self._node == NODEID_ANY else self._node
        asked = f"{rank}!{self._service}.ping"
        try:
            answer = self._answer(call, asked)
        except OSError as exc:
            raise CommandError(f"{asked}: {exc.strerror}") from None
        sent = answer["time.tv_sec"] * 10**9 + answer["time.tv_nsec"]
        took = (time.monotonic_ns() - sent) / 1e6
        rank = answer.get("rank", self._node)
        user = f" userid={answer['userid']} rolemask={answer['rolemask']:#x}" if self._show_user else ""
        sys.stdout.write(
            f"{rank}!{self._service}.ping pad={len(answer['pad'])}{user} seq={answer['seq']} "
            f"time={took:.3f} ms ({answer['route']})\n"
        )
        sys.stdout.flush()

    def _answer(self, call: Rpc, asked: str) -> Any:
        """The answer; somebody at a terminal is told once that it does not come."""
        if self._told or not sys.stderr.isatty():
            return call.get()
        try:
            return call.get(_PATIENCE)
        except TimeoutError:
            if call.done:
                raise
        self._told = True
        sys.stderr.write(f"{PREFIX}waiting for {asked}, `flux overlay status` shows who is there\n")
        return call.get()
