"""R while the instance runs: hosts are added and leave, and nodes turn out to be other than was assumed.

A scheduler hears of it by `resource.acquire`: `shrink` (RFC 28), and `grow`, beyond RFC 28, with R of what is new. Both
come before what is up of it, so that nothing is allocated on a node before what it has is known.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, Protocol

from headrace.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.broker.module.streams import StreamSet
from headrace.modules.resource import source
from headrace.modules.resource.inventory import Event, Inventory, TargetError, ids
from headrace.modules.resource.log import ResourceLog
from headrace.spec.idset import Idset
from headrace.spec.message import Message
from headrace.spec.rset import ResourceSet, RsetError

# Seconds between two looks at what is allocated, for those who follow it.
_LOOK_AGAIN = 0.5
# The events of a job with which what is allocated changes. The job manager tells the scheduler first: what that answers
# to a question that follows an event is of after the event.
_ALLOCATIONS = ["alloc", "free", "clean"]


class Leader(Protocol):
    """What is asked of the service of rank 0 (`leader.Leader`)."""

    ctx: ModuleContext
    inventory: Inventory
    log: ResourceLog
    acquirers: StreamSet
    # Nodes as they were counted, by rank.
    found: dict[int, source.Found]
    # How R came to be known, "" before it is.
    method: str
    # Whether acquirers have been told what there is, and the ranks (a bit set) that they may use.
    ready: bool
    usable: int
    # Held by a request that changes which ranks may be used.
    changing: asyncio.Lock

    def record(self, event: Event | None) -> None: ...
    def changed(self) -> None: ...
    def learn_hosts(self) -> None: ...


def change(leader: Leader, gone: Idset, part: ResourceSet, how: str) -> None:
    """Let R lose the ranks of `gone`, and have those of `part` as they are there; `how` is told in the eventlog."""
    inventory, rset = leader.inventory, leader.inventory.rset
    assert rset is not None
    left = gone & rset.ranks
    try:
        new = rset.exclude_ranks(left | part.ranks).union(part)
    except RsetError as exc:
        leader.ctx.log(logging.ERROR, f"R stays as it is: {exc}")
        return
    body: dict[str, Any] = {}
    if left:
        body["shrink"] = str(left)
    offered = part.exclude_ranks(Idset.from_bits(inventory.exclude))
    if offered:
        body["grow"] = offered.to_obj()
    leader.usable &= ~(left | part.ranks).bits
    if leader.ready and body:
        leader.acquirers.send(body)
    leader.log.save_r = True
    leader.record(inventory.define(new, how, leader.ctx.now()))
    # Beyond RFC 28: those who keep a copy of R, as pods do, hear that it has changed.
    leader.ctx.publish("resource-define", {"method": how})


def reshape(leader: Leader, nodes: list[source.Found]) -> None:
    """Take nodes as they were counted, where R has them otherwise."""
    rset = leader.inventory.rset
    if rset is None:
        return
    others = [found for found in nodes if found[0] in rset.ranks and not source.agrees(rset, found)]
    if others:
        part = source.gathered([rank, rset.host(rank), cores, gpus] for rank, _host, cores, gpus in others)
        names = rset.select_ranks(part.ranks).short_form()
        leader.ctx.log(logging.INFO, f"R has {part.short_form()} now, as counted, and not {names}")
        change(leader, part.ranks, part, "dynamic-discovery")


class Resizer:
    """Requests and news that change which ranks are in R, and the question which of them have jobs."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._ctx = leader.ctx
        self._watchers = leader.ctx.streams("busy")
        self._watchers.on_remove = self._left
        # Ranks that hosts were added for before R was known.
        self._early = Idset()
        # The matchtag of the journal of events, 0 while nobody follows.
        self._following = 0
        # Whether a task looks at what is allocated, and whether something has happened since its last look began.
        self._looking = self._news = False
        # What all streams were told last.
        self._told = ""

    def methods(self) -> dict[str, Any]:
        return {"shrink": self._shrink, "busy": self._busy}

    def grown(self, ranks: Idset) -> None:
        """Hosts of `ranks` were added, or named again: those that R has not are in it now, as far as can be known.

        A node that is not here is taken to be like most, and is not used before it has come and was counted.
        """
        leader, inventory = self._leader, self._leader.inventory
        leader.learn_hosts()
        rset = inventory.rset
        if rset is None or not leader.method:
            self._early |= ranks
            return
        fresh = ranks - rset.ranks
        here = {rank: leader.found[rank] for rank in fresh if rank in leader.found and inventory.online >> rank & 1}
        away = {rank: inventory.hosts[rank] for rank in fresh if rank not in here}
        counted = [[node.rank, node.host, str(node.cores), str(node.gpus)] for node in rset.nodes()]
        likely = source.like_most(counted, away)
        inventory.assumed |= Idset(away).bits
        if fresh:
            change(leader, Idset(), source.gathered([*here.values(), *likely]), "grow")

    def defined(self) -> None:
        """R is known: hosts that were added before are in it, too."""
        early, self._early = self._early, Idset()
        if early:
            self.grown(early)

    async def _shrink(self, msg: Message) -> Any:
        """`resource.shrink {targets}`: the ranks leave R. Raises RpcError(EBUSY) where jobs hold something of them."""
        leader, inventory = self._leader, self._leader.inventory
        async with leader.changing:
            try:
                ranks = inventory.targets(msg.obj["targets"])
            except TargetError as exc:
                raise RpcError(errno.EINVAL, f"invalid targets: {exc}") from None
            if inventory.rset is None:
                raise RpcError(errno.EAGAIN, "resources are not known yet")
            ranks &= inventory.rset.ranks.bits
            if not inventory.rset.ranks.bits & ~ranks:
                raise RpcError(errno.EINVAL, "invalid targets: nothing would be left")
            # Nothing new begins there while the scheduler is asked what is allocated.
            withheld, inventory.leaving = inventory.leaving, inventory.leaving | ranks
            leader.changed()
            try:
                busy = (await self._allocated()).bits & ranks
            finally:
                inventory.leaving = withheld
            if busy:
                leader.changed()
                raise RpcError(errno.EBUSY, f"rank {ids(busy)} has jobs: drain it and wait, or cancel them")
            self._leave(ranks)
        return EMPTY

    def _leave(self, ranks: int) -> None:
        leader, inventory = self._leader, self._leader.inventory
        for rank in Idset.from_bits(ranks & ~inventory.online):
            # Counted again when it comes. A broker that stays does not count its node again.
            leader.found.pop(rank, None)
        inventory.assumed &= ~ranks
        change(leader, Idset.from_bits(ranks), ResourceSet(), "shrink")
        drained = ranks & inventory.drained_bits()
        if drained:
            # It is no longer there to be drained, and may come back another time.
            leader.record(inventory.undrain(drained, "shrink", "force", self._ctx.now()))

    # -- which ranks have jobs

    async def _allocated(self) -> Idset:
        """The ranks that jobs hold something of. Raises RpcError without a scheduler."""
        reply = await self._ctx.rpc("sched.resource-status", {})
        try:
            return ResourceSet.from_obj(reply["allocated"]).ranks
        except (KeyError, RsetError) as exc:
            raise RpcError(errno.EPROTO, f"sched.resource-status: {exc}") from None

    async def _busy(self, msg: Message) -> None:
        """`resource.busy {}`: the ranks that jobs hold something of; as a stream, now and whenever they change."""
        ranks = str(await self._allocated())
        # The streams follow what anybody was answered: a job may begin and end between two looks, and who has asked
        # meanwhile whether it runs waits for its end.
        self._tell(ranks)
        if msg.streaming:
            self._watchers.add(msg)
        # At once, so that answers and streams come in the order in which the scheduler has answered.
        self._ctx.respond(msg, {"ranks": ranks})
        if msg.streaming and not self._following:
            # The journal begins with a message about no job: what has ended since the scheduler has answered is seen by
            # the look that follows it.
            wanted = {"allow": _ALLOCATIONS}
            self._following = self._ctx.call("job-manager.events-journal", wanted, self._happened, streaming=True)

    def _tell(self, ranks: str) -> None:
        if ranks != self._told:
            self._told = ranks
            self._watchers.send({"ranks": ranks})

    def _left(self, _msg: Message) -> None:
        if self._following and not len(self._watchers):
            self._ctx.cancel(self._following)
            self._ctx.forget(self._following)
            self._following = 0

    def _happened(self, reply: Message) -> None:
        if reply.errnum:
            self._following = 0
            for msg in self._watchers:
                self._watchers.remove(msg)
                self._ctx.respond_error(msg, reply.errnum, reply.text)
            return
        self._news = True
        if not self._looking:
            self._looking = True
            self._ctx.spawn(self._look())

    async def _look(self) -> None:
        """Tell of a change now, and of what has changed meanwhile a moment later."""
        try:
            while self._news and len(self._watchers):
                self._news = False
                try:
                    self._tell(str(await self._allocated()))
                except RpcError as exc:
                    # A scheduler that is being loaded again answers when it is there.
                    self._ctx.log(logging.DEBUG, f"busy: {exc}")
                    self._news = True
                await asyncio.sleep(_LOOK_AGAIN)
        finally:
            self._looking = False
