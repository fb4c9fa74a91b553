"""The parts of a broker that its services, modules and connections work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..spec.idset import Idset
    from ..spec.message import Message
    from .attrs import AttrTable
    from .module.kept import Kept
    from .router import Peer, Router
    from .tbon.topology import Topology


class Agent(Protocol):
    """The exec agent, as services use it: operations to it, and listeners for what it says (`AgentLink`)."""

    def send(self, op: dict[str, Any]) -> None: ...
    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> None: ...
    def unsubscribe(self, listener: Callable[[dict[str, Any]], None]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Neighbour(Protocol):
    """A child in the tree. `alive`: it has joined and is not lost."""

    @property
    def alive(self) -> bool: ...


class Tree(Protocol):
    """The tree of brokers (TBON), as services use it (`Overlay`).

    `on_child_lost` is called with the rank of a child and the ranks of its subtree.
    """

    on_child_lost: list[Callable[[int, frozenset[int]], None]]

    @property
    def topology(self) -> Topology: ...
    @property
    def children(self) -> Mapping[int, Neighbour]: ...


class EventService(Protocol):
    """Subscriptions and publications (RFC 3), as modules use them (`Events`)."""

    def subscribe(self, peer: Peer, prefix: str) -> None: ...
    def unsubscribe(self, peer: Peer, prefix: str) -> object: ...
    def publish(self, msg: Message) -> int: ...


class BrokerParts:
    """What `Broker` is made of, as far as others use it; its subclasses assign all of it.

    A module in a process of its own has the same parts there, all but `agent` and `overlay` (`module/remote.py`).
    """

    rank: int
    # How many brokers the instance has; hosts may join if `may_grow`.
    size: int
    may_grow: bool
    # The uid that the instance runs as.
    owner: int
    attrs: AttrTable
    config: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    router: Router
    events: EventService
    # Appends to the broker's log: a level of syslog(3), a name of the source, lines of text.
    log: Callable[[int, str, str], None]
    # Called with the ranks that hosts were added for, when the tree has them.
    on_grown: list[Callable[[Idset], None]]
    # Ranks that were lost, and did not leave in order, until they are back.
    lost: Idset
    # What modules hand over to their next load, by module name; None where nothing outlives the module's process.
    kept: dict[str, Kept] | None
    # Unloads the module of that name, in time.
    remove_module: Callable[[str], object]
    # None where no jobs can run.
    agent: Agent | None
    overlay: Tree
