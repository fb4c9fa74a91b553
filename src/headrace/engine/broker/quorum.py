"""The members of the instance: which brokers are online, and whether they suffice for the state `run`.

Only rank 0 knows all members. The instance ends if a critical rank is lost, or if the quorum cannot be reached any
more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.engine.broker.tbon.join import all_have_met
from headrace.formats.spec import duration as durations
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.services.groups import Groups


def seconds(broker: BrokerBase, name: str) -> float | None:
    """The duration in the attribute `name`, or None for no limit."""
    text = broker.attrs.get(name, "none")
    return None if text == "none" else durations.parse(text)


def hosts_of(broker: BrokerBase, ranks: Iterable[int]) -> Hostlist:
    """The hosts of those `ranks` whose host names are known."""
    hosts = broker.boot.hosts
    return Hostlist([hosts[rank] for rank in ranks if rank < len(hosts)])


def log_delay(broker: BrokerBase, what: str, ranks: Idset) -> None:
    broker.log(logging.ERROR, "broker", f"{what} delayed: waiting for {hosts_of(broker, ranks)} (rank {ranks})")


class Quorum:
    """The members of the instance as this broker knows them. `members` is called for each change."""

    def __init__(self, broker: BrokerBase, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups
        self.online = Idset()
        self._was_slow = False

    def expect(self) -> None:
        """Warn periodically about the brokers that are not online, once the leader has entered `quorum`."""
        warn = seconds(self._broker, "broker.quorum-warn")
        if warn:
            self._broker.loop.call_later(warn, self._slow)

    def _slow(self) -> None:
        broker = self._broker
        if broker.state == "quorum":
            log_delay(broker, "quorum", Idset(range(broker.size)) - self.online)
            self._was_slow = True
            broker.loop.call_later(seconds(broker, "broker.quorum-warn") or 0.0, self._slow)

    def members(self, online: Idset, offline: Idset, lost: Idset) -> None:
        """Handle changes of the members. `lost` are the ranks in `offline` that did not leave in order."""
        broker = self._broker
        self.online = (self.online | online) - offline
        broker.lost = (broker.lost | lost) - online
        self._groups.change("broker.online", online)
        if offline:
            self._groups.lost(offline)
        critical = offline & broker.critical_ranks
        if critical and not broker.stopping:
            self._end(logging.ERROR, f"critical rank {critical} was lost, shutting down")
        quorum = int(broker.attrs.get("broker.quorum"))
        if lost and not broker.past("quorum") and broker.size - len(broker.lost) < quorum and all_have_met(broker):
            names = hosts_of(broker, broker.lost)
            who = f"{names} (rank {broker.lost})"
            self._end(
                logging.CRITICAL,
                f"{quorum} brokers are needed, and {who} cannot join any more: ending the instance",
            )
        if broker.state == "quorum" and len(self.online) >= quorum:
            if self._was_slow:
                broker.log(logging.ERROR, "broker", "quorum reached")
            text = f"online: {hosts_of(broker, self.online)} (ranks {self.online})"
            broker.log(logging.INFO, "broker", text)
            broker.advance("quorum-full")

    def _end(self, level: int, text: str) -> None:
        self._broker.log(level, "broker", text)
        self._broker.exit_code = self._broker.exit_code or 1
        self._broker.begin_shutdown()
