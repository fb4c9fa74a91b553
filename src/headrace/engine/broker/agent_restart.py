"""Restart of the exec agent.

If the agent is killed, its jobs are lost, and the broker starts another agent. The link and its listeners stay: the
listeners get the operation "gone" at once. The new agent starts when all processes of the dead one have ended, or five
seconds after the remaining ones were killed.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.formats.spec.os_error import text_of

from ..agent import reaper

if TYPE_CHECKING:
    from .agentlink import AgentLink
    from .parts import BrokerBase

# A broker that loses more than _MOST agents within _SECONDS seconds starts no other, which would die as well.
_MOST, _SECONDS = 5, 60.0


class AgentRestarts:
    """The agents of `broker` after its first.

    `spawn()` starts an agent and returns its pid and our end of its socket. `give_up(why)` is called when no other
    agent will be started.
    """

    def __init__(
        self,
        broker: BrokerBase,
        agent: AgentLink,
        spawn: Callable[[], tuple[int, socket.socket]],
        give_up: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._agent = agent
        self._spawn = spawn
        self._give_up = give_up
        # The reapers of the first agent. Each later agent has its own reaper.
        self._reapers = reaper.reapers()
        self._deaths: list[float] = []
        # True while processes of a dead agent may remain.
        self._remains = False

    def lost(self) -> None:
        """Handle an agent that closed its end of the socket although the broker had not asked it to end."""
        now = time.monotonic()
        self._remains = True
        self._deaths = [*(death for death in self._deaths if death > now - _SECONDS), now]
        if self._broker.stopping:
            self._give_up("the exec agent ended: no job can be run any more")
        elif len(self._deaths) > _MOST:
            self._give_up(f"{len(self._deaths)} exec agents ended within {_SECONDS:g} seconds; this broker shuts down")
        else:
            why = "the exec agent was killed: its jobs are lost, starting another"
            if not self._agent.pid:
                why = "there is no exec agent and no zygote that forks one: starting one"
            self._broker.log(logging.ERROR, "broker", why)
            self._broker.spawn(self._replace())

    def _kill_remains(self, agent_or_reaper: int) -> None:
        reaper.kill_remains(agent_or_reaper, self._reapers, self._broker.attrs.get("local-uri"))
        self._remains = False

    def end(self) -> None:
        """Kill the remaining processes of a dead agent when the broker ends before another agent was started."""
        if self._remains:
            self._kill_remains(self._agent.pid)

    def _link_is_closed(self) -> bool:
        return self._agent.closed

    async def _replace(self) -> None:
        broker, agent = self._broker, self._agent
        await broker.loop.run_in_executor(None, self._kill_remains, agent.pid)
        if self._link_is_closed():
            return
        try:
            agent.pid, sock = await broker.loop.run_in_executor(None, self._spawn)
        except OSError as exc:
            why = f"the exec agent ended, and another cannot be started: {text_of(exc)}; this broker shuts down"
            self._give_up(why)
            return
        self._reapers = ()
        if self._link_is_closed():
            sock.close()
            return
        agent.start(sock)
        if broker.program is not None:
            broker.program.tell_agent()
