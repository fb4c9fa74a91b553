"""The interfaces of a broker's parts, for its services, modules and connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .state import machine

if TYPE_CHECKING:
    from headrace.formats.spec.idset import Idset
    from headrace.formats.spec.message import Message
    from headrace.formats.spec.topology import Topology

    from ..process.operations import FromAgent, ToAgent
    from .attrs import AttrTable
    from .boot.boot import BootInfo
    from .budget import Budget
    from .events import Events
    from .kept import Kept
    from .logbook import Logbook
    from .router import Peer, Router


class Agent(Protocol):
    """The exec agent: sends operations to it and passes its messages to listeners (`AgentLink`)."""

    def send(self, op: ToAgent) -> None: ...
    def flush(self) -> None: ...
    def keep_going(self) -> None: ...
    def subscribe(self, listener: Callable[[FromAgent], None]) -> None: ...
    def unsubscribe(self, listener: Callable[[FromAgent], None]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Neighbour(Protocol):
    """A child in the tree. `alive` is true from its join until it is lost."""

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
    """Subscriptions and publications (RFC 3) for modules (`Events`)."""

    def subscribe(self, peer: Peer, prefix: str) -> None: ...
    def unsubscribe(self, peer: Peer, prefix: str) -> object: ...
    def publish(self, msg: Message) -> int: ...


class Requester(Protocol):
    """The context with which the broker itself sends requests to services (`ModuleContext`)."""

    def call(
        self,
        topic: str,
        obj: dict[str, Any] | None = None,
        on_reply: Callable[[Message], Any] | None = None,
        nodeid: int = ...,
        streaming: bool = False,
        payload: bytes | None = None,
        flags: int = 0,
    ) -> int: ...
    async def rpc(self, topic: str, obj: dict[str, Any] | None = None) -> Any: ...


class RunningProgram(Protocol):
    """The initial program, or a script (`Program`)."""

    @property
    def running(self) -> bool: ...
    def interrupt(self) -> None: ...
    def stop(self) -> None: ...
    def tell_agent(self) -> None: ...


class BrokerParts:
    """The parts of `Broker` that other classes use. Subclasses assign all of them.

    A module in its own process has the same parts except `agent` and `overlay` (`module/remote.py`).
    """

    rank: int
    # The number of brokers in the instance; hosts may be added if `may_grow`.
    size: int
    may_grow: bool
    # The uid of the instance's owner.
    owner: int
    attrs: AttrTable
    config: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    router: Router
    events: EventService
    # Appends to the broker's log: a syslog(3) level, the name of the source, and lines of text.
    log: Callable[[int, str, str], None]
    # Called with the ranks of added hosts once the tree includes them.
    on_grown: list[Callable[[Idset], None]]
    # Ranks that were lost and have not rejoined. Ranks that left in order are not included.
    lost: Idset
    # Data that modules pass to their next load, by name; None in a module's own process, which ends with the module.
    kept: dict[str, Kept] | None
    # Schedules the removal of the module with the given name.
    remove_module: Callable[[str], object]
    # None if no jobs can run.
    agent: Agent | None
    overlay: Tree


class BrokerBase(BrokerParts):
    """A broker for its own services, links and programs; `Broker` assigns the parts and runs."""

    events: Events
    log: Logbook
    boot: BootInfo
    # The budget of guests at this broker.
    budget: Budget
    uuid: str
    env: dict[str, str]
    config_path: str
    # The leader's configuration if it has changed since the leader started, for brokers that join later; else None.
    leaders_config: dict[str, Any] | None
    # Applies a configuration to this follower and its modules.
    follow_config: Callable[[dict[str, Any]], Coroutine[Any, Any, None]]
    # One buffer for reads from all local sockets: allocating one per read costs more than the read.
    receive_buffer: memoryview
    context: Requester
    program: RunningProgram | None
    # Requests that wait for state `run`, and requests of clients that follow the log of a shutdown.
    run_waiters: list[Message]
    shutdown_watchers: list[Message]
    # Ranks whose loss ends the instance.
    critical_ranks: Idset
    # A state of `state.machine`, and when it was entered (time.monotonic).
    state: str
    state_since: float
    exit_code: int
    # The signal that ended this instance before its initial program ended. The leader sends it to followers.
    ended_by: int
    # True if the leader got a signal that ends an instance.
    shutdown_requested: bool

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.loop.create_task(coro)
        # The loop itself keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def past(self, other: str) -> bool:
        """True if the present state comes after `other`."""
        return machine.before(other, self.state)

    @property
    def stopping(self) -> bool:
        return self.past("run")

    def advance(self, event: str) -> None:
        """Pass `event` to the state machine, and start what the new state requires."""
        raise NotImplementedError

    def begin_shutdown(self) -> None:
        """Leave the state `run`.

        The initial program gets SIGHUP, and cleanup begins when it ends; without a program, at once.
        """
        raise NotImplementedError

    def signal_jobs(self, number: int) -> None:
        """Send signal `number` to all running jobs of this instance, of any user."""
        raise NotImplementedError

    def leave(self) -> None:
        """End this follower after its children, while the instance continues.

        In the state `init`, it ends once its modules are loaded.
        """
        raise NotImplementedError

    def leave_lost(self, why: str) -> None:
        """End with an error.

        On the leader, the whole instance ends. On a follower, this broker ends as if it had lost its parent.
        """
        raise NotImplementedError
