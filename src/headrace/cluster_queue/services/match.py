"""The program `headrace fluxqueue match`: the services on a graph sent by a client, until a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from msgspec import Struct

from .backend import Unanswerable
from .given_graph import GivenGraph
from .server import Tls, start

# Seconds that calls have to end when the program stops.
_GRACE = 1.0


class Matching(Struct, frozen=True, kw_only=True):
    """The options of the program.

    `address` is HOST:PORT, `graph` the text of an initial graph (JGF), `policy` the default match policy of graphs.
    """

    address: str
    policy: str = "first"
    graph: str | None = None
    tls: Tls | None = None


def run(matching: Matching, listens: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `listens` is called with the port. Raises OSError, ValueError."""
    graph = GivenGraph(matching.policy)
    if matching.graph is not None:
        # Outside the event loop, SIGINT ends the program at once.
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
