"""The program `headrace fluxqueue match`: the services on the graph that a client sends, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from msgspec import Struct

from .backend import Unanswerable
from .given_graph import GivenGraph
from .server import Tls, start

# Seconds that calls have to end when the program is told to stop.
_GRACE = 1.0


class Matching(Struct, frozen=True, kw_only=True):
    """The choices of the program. `address` is HOST:PORT, `graph` the text of a graph to begin with (JGF),
    `policy` the match policy of graphs that come without one.
    """

    address: str
    policy: str = "first"
    graph: str | None = None
    tls: Tls | None = None


def run(matching: Matching, listens: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `listens` is called with the port. Raises OSError, ValueError."""
    graph = GivenGraph(matching.policy)
    if matching.graph is not None:
        # Outside the event loop, where SIGINT ends it at once.
        try:
            graph.load("", matching.graph)
        except Unanswerable as exc:
            raise ValueError(f"--graph: {exc}") from None
    asyncio.run(_serve(graph, matching, listens))


async def _serve(graph: GivenGraph, matching: Matching, listens: Callable[[int], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server, port = await start(graph, matching.address, matching.tls)
    try:
        listens(port)
        await stop.wait()
    finally:
        await server.stop(_GRACE)
