"""The core of the resource module: an instance's resources and their state. No messages, no clock.

Every change is an event of the resource eventlog (RFC 44). The ranks that a scheduler may use depend only on the state:
they are configured, online, not drained, and not excluded. Sets of ranks are ints used as bit sets.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from headrace.formats.spec.hostlist import Hostlist, HostlistError
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.formats.spec.rset import ResourceSet
from headrace.formats.spec.rset_hosts import HostTable

# The most events that are kept for the journal. Older events are replaced by a `truncate` event (RFC 44).
_KEEP_EVENTS = 10_000

Event = dict[str, Any]


class TargetError(ValueError):
    """A drain, undrain or exclude request with unknown targets, or with targets in the wrong state."""


class Drain(NamedTuple):
    """The time (seconds) and the reason of a drain."""

    timestamp: float
    reason: str


class Inventory:
    """The ranks of one instance.

    `hostlist` has the hosts of the brokers in rank order (the attribute `hostlist`). `hosts` is the table for all
    look-ups between ranks and host names. It has the names in R for ranks of R, else the names in `hostlist`. The names
    differ only if the hosts in R do not exist, as in tests.
    """

    def __init__(self, size: int, hostlist: list[str]) -> None:
        self.size = size
        self.hostlist = hostlist
        self.rset = None
        self.online = 0
        self.torpid = 0
        self.exclude = 0
        # Ranks of R whose nodes are not counted yet, and ranks that are about to be removed from R.
        self.assumed = self.leaving = 0
        self.drained: dict[int, Drain] = {}
        self.events: list[Event] = []

    @property
    def rset(self) -> ResourceSet | None:
        return self._rset

    @rset.setter
    def rset(self, rset: ResourceSet | None) -> None:
        self._rset = rset
        names = dict(enumerate(self.hostlist))
        if rset is not None:
            names.update(zip(rset.ranks, rset.hosts))
        self.hosts = HostTable(names)

    def learn_hosts(self, hostlist: list[str]) -> None:
        """Set the current host list, to which hosts may have been added."""
        self.size, self.hostlist = len(hostlist), hostlist
        self.rset = self._rset

    # -- state

    def usable(self) -> int:
        """The ranks that a scheduler may allocate now."""
        if self.rset is None:
            return 0
        # Running jobs on a torpid node continue, but new jobs are not started there.
        withheld = self.torpid | self.drained_bits() | self.exclude | self.assumed | self.leaving
        return self.rset.ranks.bits & self.online & ~withheld

    def drained_bits(self) -> int:
        bits = 0
        for rank in self.drained:
            bits |= 1 << rank
        return bits

    def schedulable(self) -> ResourceSet:
        """R without excluded ranks, for `resource.acquire`."""
        rset = self.rset or ResourceSet()
        return rset.exclude_ranks(Idset.from_bits(self.exclude)) if self.exclude else rset

    def all_ranks(self) -> int:
        known = (1 << self.size) - 1
        return known | (self.rset.ranks.bits if self.rset is not None else 0)

    def status(self) -> dict[str, Any]:
        """The response of `resource.status`."""
        everyone = self.all_ranks()
        return {
            "R": (self.rset or ResourceSet()).to_obj(),
            "drain": self.drain_table(),
            "online": ids(self.online),
            "offline": ids(everyone & ~self.online),
            "exclude": ids(self.exclude),
            "torpid": ids(self.torpid),
        }

    def drain_table(self) -> dict[str, dict[str, Any]]:
        """The drained ranks. Ranks with the same time and reason share one idset."""
        groups: dict[Drain, int] = {}
        for rank, drain in self.drained.items():
            groups[drain] = groups.get(drain, 0) | 1 << rank
        return {
            ids(ranks): {"timestamp": drain.timestamp, "reason": drain.reason}
            for drain, ranks in sorted(groups.items(), key=lambda item: item[1] & -item[1])
        }

    # -- targets

    def targets(self, text: str) -> int:
        """The ranks in an idset or a hostlist; raises TargetError."""
        try:
            ranks = Idset.parse(text).bits
        except IdsetError:
            return self._host_targets(text)
        if not ranks:
            raise TargetError("idset is empty")
        if ranks & ~self.all_ranks():
            raise TargetError(f"idset is out of range: highest rank is {self.all_ranks().bit_length() - 1}")
        return ranks

    def _host_targets(self, text: str) -> int:
        try:
            names = list(Hostlist.parse(text))
        except HostlistError as exc:
            raise TargetError(str(exc)) from None
        if not names:
            raise TargetError("hostlist is empty")
        unknown_hosts = [name for name in names if not self.hosts.bits(name)]
        if unknown_hosts:
            raise TargetError(f"invalid hosts: {Hostlist(unknown_hosts)}")
        ranks = 0
        for name in names:
            ranks |= self.hosts.bits(name)
        return ranks

    def nodelist(self, ranks: int) -> str:
        """The hosts of ranks as a hostlist, for events."""
        names = self.hosts.names
        return str(Hostlist([names[rank] for rank in Idset.from_bits(ranks) if names.get(rank)]))

    # -- changes: each appends its event and returns it, or None without a change

    def restart(self, now: float) -> Event:
        everyone = (1 << self.size) - 1
        context = {"ranks": ids(everyone), "online": ids(self.online), "nodelist": self.nodelist(everyone)}
        return self._post(now, "restart", context)

    def define(self, rset: ResourceSet, method: str, now: float) -> Event:
        self.rset = rset
        return self._post(now, "resource-define", {"method": method})

    def expire_at(self, expiration: float, now: float) -> Event | None:
        """Set the expiration of the instance's resources in seconds since the epoch; 0 means never."""
        if self.rset is None or self.rset.expiration == expiration:
            return None
        self.rset = self.rset.replace(expiration=expiration)
        return self._post(now, "resource-update", {"expiration": expiration})

    def set_online(self, ranks: int, now: float) -> list[Event]:
        """Set the online ranks; returns the online and offline events for the difference."""
        joined, departed = ranks & ~self.online, self.online & ~ranks
        self.online = ranks
        events = []
        if joined:
            events.append(self._post(now, "online", {"idset": ids(joined)}))
        if departed:
            self.torpid &= ~departed
            events.append(self._post(now, "offline", {"idset": ids(departed)}))
        return events

    def set_torpid(self, ranks: int, now: float) -> list[Event]:
        slow, lively = ranks & ~self.torpid, self.torpid & ~ranks
        self.torpid = ranks
        events = []
        if slow:
            events.append(self._post(now, "torpid", {"idset": ids(slow)}))
        if lively:
            events.append(self._post(now, "lively", {"idset": ids(lively)}))
        return events

    def drain(self, ranks: int, reason: str | None, mode: str, now: float) -> Event | None:
        """Drain ranks; see `drain_event`."""
        event = self.drain_event(ranks, reason, mode, now)
        return None if event is None else self.take(event)

    def drain_event(self, ranks: int, reason: str | None, mode: str, now: float) -> Event | None:
        """The event of a drain; None if it would change nothing.

        Raises TargetError if `mode` is "" and a rank already has a drain reason, and, unless `mode` is "update", if a
        rank is excluded.

        Modes: "update" skips drained ranks (but sets a missing reason), "overwrite" replaces the reason,
        "force-overwrite" replaces reason and time.
        """
        already = ranks & self.drained_bits()
        unexplained = sum(1 << rank for rank in Idset.from_bits(already) if not self.drained[rank].reason)
        excluded = ranks & self.exclude
        refused = already & ~unexplained if reason else already
        if excluded and mode != "update":
            refused |= already | excluded
            raise TargetError(f"rank{_plural(refused)} {ids(refused)} already drained or excluded")
        if not mode and refused:
            raise TargetError(f"rank{_plural(refused)} {ids(refused)} already drained")
        overwrite = {"": 0, "update": 0, "overwrite": 1, "force-overwrite": 2}.get(mode)
        if overwrite is None:
            raise TargetError(f"unknown drain mode {mode!r}: use update, overwrite or force-overwrite")
        if mode == "update":
            ranks &= (~already | unexplained) & ~excluded
            if not ranks:
                return None
        context: dict[str, Any] = {"idset": ids(ranks), "nodelist": self.nodelist(ranks)}
        if reason:
            context["reason"] = reason
        context["overwrite"] = overwrite
        return {"timestamp": now, "name": "drain", "context": context}

    def take(self, event: Event) -> Event:
        """Apply an event of `drain_event` or `undrain_event`, and append it."""
        self._apply(event, Idset.parse(event["context"]["idset"]).bits)
        return self._posted(event)

    def _apply(self, event: Event, ranks: int) -> None:
        context = event["context"]
        if event["name"] == "drain":
            self._apply_drain(ranks, context.get("reason", ""), context.get("overwrite", 0), event["timestamp"])
        else:
            for rank in Idset.from_bits(ranks):
                self.drained.pop(rank, None)

    def _apply_drain(self, ranks: int, reason: str, overwrite: int, now: float) -> None:
        for rank in Idset.from_bits(ranks):
            old = self.drained.get(rank)
            if old is None or overwrite == 2:
                self.drained[rank] = Drain(now, reason)
            elif overwrite == 1 or not old.reason:
                self.drained[rank] = Drain(old.timestamp, reason)

    def undrain(self, ranks: int, reason: str | None, mode: str, now: float) -> Event | None:
        """Undrain ranks; see `undrain_event`."""
        event = self.undrain_event(ranks, reason, mode, now)
        return None if event is None else self.take(event)

    def undrain_event(
        self, ranks: int, reason: str | None, mode: str, now: float, by_host: bool = False
    ) -> Event | None:
        """The event of an undrain; None if it would change nothing.

        Raises TargetError for a rank that is not drained. With `by_host`, the error also names the host, because the
        request did.

        Modes: "force" and "force-overwrite" skip ranks that are not drained.
        """
        overwrite = {"": 0, "force": 1, "overwrite": 1, "force-overwrite": 2}.get(mode)
        if overwrite is None:
            raise TargetError(f"invalid undrain mode {mode!r}: use force or force-overwrite")
        drained = self.drained_bits()
        idle = ranks & ~drained
        if idle and not overwrite:
            hosts = f" ({self.nodelist(idle)})" if by_host else ""
            raise TargetError(f"rank{_plural(idle)} {ids(idle)}{hosts} not drained")
        ranks &= drained
        if not ranks:
            return None
        context: dict[str, Any] = {"idset": ids(ranks), "nodelist": self.nodelist(ranks)}
        if reason:
            context["reason"] = reason
        context["overwrite"] = overwrite
        return {"timestamp": now, "name": "undrain", "context": context}

    def replay(self, events: list[Event]) -> None:
        """Restore the drains of an earlier run of this instance.

        A drain applies to the current rank of its host.
        """
        for event in events:
            if event.get("name") not in ("drain", "undrain"):
                continue
            with contextlib.suppress(TargetError):
                self._apply(event, self._moved(event.get("context") or {}))
        self.events = events[-_KEEP_EVENTS:]

    def _moved(self, context: Event) -> int:
        """The current ranks of an event's hosts, without hosts that are no longer in the instance."""
        bits = 0
        hosts = list(Hostlist.parse(context.get("nodelist", "")))
        for place, rank in enumerate(Idset.parse(context.get("idset", ""))):
            if place >= len(hosts) or self.hosts.names.get(rank) == hosts[place]:
                bits |= 1 << rank
            else:
                # If the host has several brokers, use the first.
                ranks = self.hosts.bits(hosts[place])
                bits |= ranks & -ranks
        return bits & self.all_ranks()

    def _post(self, now: float, name: str, context: dict[str, Any]) -> Event:
        return self._posted({"timestamp": now, "name": name, "context": context})

    def _posted(self, event: Event) -> Event:
        self.events.append(event)
        if len(self.events) > _KEEP_EVENTS:
            self.events = self.events[_KEEP_EVENTS // 2 :]
            self.events.insert(0, self._truncated(event["timestamp"]))
        return event

    def _truncated(self, now: float) -> Event:
        context = {"online": ids(self.online), "torpid": ids(self.torpid), "drain": self.drain_table()}
        return {"timestamp": now, "name": "truncate", "context": context}


def ids(bits: int) -> str:
    """A bit set as an idset (RFC 22)."""
    return str(Idset.from_bits(bits))


def _plural(bits: int) -> str:
    return "s" if bits & (bits - 1) else ""
