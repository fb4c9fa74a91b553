"""`flux ping`: measures the round trip to a service and shows the route."""

from __future__ import annotations

import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec import duration
from headrace.formats.spec.message import NODEID_UPSTREAM
from headrace.wire.client.handle import NODEID_ANY, Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Tuple

    from headrace.wire.client.handle import Rpc

PREFIX = "flux-ping: "
# Seconds before a user at a terminal is told that there is no response.
_PATIENCE = 2.0
_COMMAND = Command(
    "flux-ping",
    "[OPTIONS] TARGET",
    "Measure the round trip of a message to a service",
    (
        ("r", "rank", "NODEID", "Ping the service at this rank or host"),
        ("p", "pad", "N", "Add N bytes to each message (suffixes K and M)"),
        ("i", "interval", "FSD", "Wait this time between two messages (default: 1s)"),
        ("c", "count", "N", "Stop after N responses"),
        ("b", "batch", "", "Send all messages before waiting for responses"),
        ("u", "userid", "", "Print the userid and roles of the request"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    pad = "z" * options.get_size("pad", 0)
    if options.has("rank"):
        if "!" in text:
            raise CommandError("--rank and TARGET both try to specify a nodeid")
        text = f"{options.get('rank')}!{text}"
    interval = _interval(options.get("interval", "1"))
    count = options.get_int("count", 0)
    if count < 0:
        raise CommandError("count must be >= 0")
    if options.has("batch") and not count:
        raise CommandError("--batch should only be used with --count")
    handle = Handle()
    node, service, shown = _target(handle, text)
    print(f"flux-ping {shown}", flush=True)
    pings = _Pings(handle, node, service, pad, options.has("userid"))
    if options.has("batch"):
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
    if text.startswith("-"):
        raise CommandError("interval must be >= 0")
    try:
        # An upper limit, because time.sleep raises OverflowError for very large numbers.
        return min(duration.parse(text), 1e6)
    except ValueError:
        raise CommandError(f"--interval: '{text}' is not a number of seconds") from None


def _target(handle: Handle, text: str) -> Tuple[int, str, str]:
    """Parse `SERVICE`, `NODE` or `NODE!SERVICE` into nodeid, service and the text to show.

    NODE alone means the service `broker` there. Raises CommandError.
    """
    name, bang, service = text.partition("!")
    node, suffix = _node(handle, name)
    if node is None:
        if bang:
            raise CommandError(f"invalid nodeid/host: '{name}'")
        return NODEID_ANY, text, f"any!{text}"
    service = service or "broker"
    return node, service, f"{name}!{service}{suffix}"


def _node(handle: Handle, text: str) -> Tuple[Optional[int], str]:
    """The nodeid of `any`, `upstream`, a host or a number, and the rank to show for a host.

    The nodeid of any other text is None.
    """
    if text == "any":
        return NODEID_ANY, ""
    if text == "upstream":
        return NODEID_UPSTREAM, ""
    if text.isascii() and text.isdigit() and int(text) < NODEID_UPSTREAM:
        return int(text), ""
    from headrace.formats.spec.hostlist import Hostlist

    rank = Hostlist.parse(handle.attr_get("hostlist")).find(text)
    return (rank, f" (rank {rank})") if rank >= 0 else (None, "")


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
        node = {NODEID_ANY: "", NODEID_UPSTREAM: "upstream!"}.get(self._node, f"{self._node}!")
        asked = f"{node}{self._service}.ping"
        try:
            answer = self._answer(call, asked)
        except OSError as exc:
            # The text of the errno only, which scripts rely on and which does not depend on the broker.
            raise CommandError(f"{asked}: {os.strerror(exc.errno or 0)}") from None
        if answer["pad"] != self._pad:
            raise CommandError(f"{asked}: padding contents invalid")
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
        """Wait for the response. At a terminal, print once that it is late."""
        if self._told or not sys.stderr.isatty():
            return call.get()
        try:
            return call.get(_PATIENCE)
        except TimeoutError:
            if call.done:
                raise
        self._told = True
        sys.stderr.write(f"{PREFIX}waiting for {asked} (`flux overlay status` shows which brokers are online)\n")
        return call.get()
