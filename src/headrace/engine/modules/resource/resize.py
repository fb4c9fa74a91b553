"""Changes of R in a running instance: hosts are added or removed, or counts differ from assumptions.

A scheduler is notified by responses to `resource.acquire`: `shrink` (RFC 28), and `grow`, an extension, which has R of
the new ranks. Both are sent before the ranks are reported up, so that no resources of a node are allocated before they
are known.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, Protocol

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.module.streams import StreamSet
from headrace.engine.modules.resource import source
from headrace.engine.modules.resource.inventory import Event, Inventory, TargetError, ids
from headrace.engine.modules.resource.log import ResourceLog
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.rset import ResourceSet, RsetError

# Seconds between two requests to the scheduler for the allocated ranks, for streams of `resource.busy`.
_LOOK_AGAIN = 0.5
# Job events that change allocations. The job manager notifies the scheduler before it publishes the event. So if a
# request is sent to the scheduler after the event, its response includes the change.
_ALLOCATIONS = ["alloc", "free", "clean"]


class Leader(Protocol):
    """The parts of the service of rank 0 (`leader.Leader`) that this file uses."""

    ctx: ModuleContext
    inventory: Inventory
    log: ResourceLog
    acquirers: StreamSet
    # The counted nodes by rank.
    found: dict[int, source.Found]
    # The source of R; "" before R is known.
    method: str
    # True once acquirers have received R, and the ranks (a bit set) that were reported to them as usable.
    ready: bool
    usable: int
    # Held by a request that changes which ranks may be used.
    changing: asyncio.Lock

    def record(self, event: Event | None, kept: bool = False) -> None: ...
    def changed(self) -> None: ...
    def learn_hosts(self) -> None: ...


def change(leader: Leader, gone: Idset, part: ResourceSet, how: str) -> None:
    """Remove the ranks `gone` from R, and replace or add the ranks in `part`.

    `how` is the method in the resource-define event.
    """
    inventory, rset = leader.inventory, leader.inventory.rset
    assert rset is not None
    present = gone & rset.ranks
    try:
        new = rset.exclude_ranks(present | part.ranks).union(part)
    except RsetError as exc:
        leader.ctx.log(logging.ERROR, f"R is not changed: {exc}")
        return
    body: dict[str, Any] = {}
    if present:
        body["shrink"] = str(present)
    offered = part.exclude_ranks(Idset.from_bits(inventory.exclude))
    if offered:
        body["grow"] = offered.to_obj()
    leader.usable &= ~(present | part.ranks).bits
    if leader.ready and body:
        leader.acquirers.send(body)
    leader.log.save_r = True
    leader.record(inventory.define(new, how, leader.ctx.now()))
    # This event is an extension of RFC 28 for programs that keep a copy of R, such as the runner in a pod.
    leader.ctx.publish("resource-define", {"method": how})


def reshape(leader: Leader, nodes: list[source.Found]) -> None:
    """Correct R for nodes whose counted resources differ from it."""
    rset = leader.inventory.rset
    if rset is None:
        return
    others = [found for found in nodes if found[0] in rset.ranks and not source.agrees(rset, found)]
    if others:
        part = source.gathered(others, leader.inventory.hosts.names)
        names = rset.select_ranks(part.ranks).short_form()
        leader.ctx.log(logging.INFO, f"R is changed from {names} to {part.short_form()}, as counted")
        change(leader, part.ranks, part, "dynamic-discovery")


class Resizer:
    """Requests that change or concern the ranks of R: shrink, grow, and which ranks are allocated."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._ctx = leader.ctx
        self._watchers = leader.ctx.streams("busy")
        self._watchers.on_remove = self._watcher_left
        # Ranks of hosts that were added before R was defined.
        self._early = Idset()
        # The matchtag of the request for the journal of job events; 0 if there is no such request.
        self._following = 0
        # True while a task is requesting the allocated ranks, and if a job event has arrived since its last request.
        self._looking = self._job_event_arrived = False
        # The ranks that were last sent to all streams.
        self._published = ""

    def methods(self) -> dict[str, Any]:
        return {"shrink": self._shrink, "busy": self._busy}

    def grown(self, ranks: Idset) -> None:
        """Add ranks to R whose hosts were added to the instance, as far as R lacks them.

        A node that has not reported is assumed to have the most frequent resources of the others. It is not used until
        it is counted.
        """
        leader, inventory = self._leader, self._leader.inventory
        leader.learn_hosts()
        rset = inventory.rset
        if rset is None or not leader.method:
            self._early |= ranks
            return
        fresh = ranks - rset.ranks
        here = {rank: leader.found[rank] for rank in fresh if rank in leader.found and inventory.online >> rank & 1}
        away = fresh - Idset(here)
        counted = [[node.rank, node.host, str(node.cores), str(node.gpus)] for node in rset.nodes()]
        likely = source.like_most(counted, away)
        inventory.assumed |= away.bits
        if fresh:
            change(leader, Idset(), source.gathered([*here.values(), *likely], inventory.hosts.names), "grow")

    def defined(self) -> None:
        """Add the ranks of hosts that were added before R was defined."""
        early, self._early = self._early, Idset()
        if early:
            self.grown(early)

    async def _shrink(self, msg: Message) -> Any:
        """`resource.shrink {targets}`: remove ranks from R.

        Raises RpcError(EBUSY) if jobs hold resources on these ranks.
        """
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
            # The ranks are withheld, so that no job starts on them between the scheduler's response and their removal.
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
            # An offline broker counts its node again when it is back. A running broker does not, so its count is kept.
            leader.found.pop(rank, None)
        inventory.assumed &= ~ranks
        change(leader, Idset.from_bits(ranks), ResourceSet(), "shrink")
        drained = ranks & inventory.drained_bits()
        if drained:
            # A rank outside R is not drained, because it may be added again later.
            leader.record(inventory.undrain(drained, "shrink", "force", self._ctx.now()))

    # -- allocated ranks

    async def _allocated(self) -> Idset:
        """The ranks with allocated resources. Raises RpcError without a scheduler."""
        reply = await self._ctx.rpc("sched.resource-status", {})
        try:
            return ResourceSet.from_obj(reply["allocated"]).ranks
        except (KeyError, RsetError) as exc:
            raise RpcError(errno.EPROTO, f"sched.resource-status: {exc}") from None

    async def _busy(self, msg: Message) -> None:
        """`resource.busy {}`: the allocated ranks. A streaming request gets them again after each change."""
        ranks = str(await self._allocated())
        # All streams get this result. Otherwise they could miss a job that starts and ends between two of their
        # results, while a client that has seen the job run waits for its end.
        self._publish(ranks)
        if msg.streaming:
            self._watchers.add(msg)
        # There is no `await` before this response, so that responses are in the order of the scheduler's responses.
        self._ctx.respond(msg, {"ranks": ranks})
        if msg.streaming and not self._following:
            # The journal's first response, which has no job, causes another request to the scheduler, so that changes
            # since the last response are not missed.
            wanted = {"allow": _ALLOCATIONS}
            self._following = self._ctx.call("job-manager.events-journal", wanted, self._job_event, streaming=True)

    def _publish(self, ranks: str) -> None:
        if ranks != self._published:
            self._published = ranks
            self._watchers.send({"ranks": ranks})

    def _watcher_left(self, _msg: Message) -> None:
        if self._following and not len(self._watchers):
            self._ctx.cancel(self._following)
            self._ctx.forget(self._following)
            self._following = 0

    def _job_event(self, reply: Message) -> None:
        if reply.errnum:
            self._following = 0
            for msg in self._watchers:
                self._watchers.remove(msg)
                self._ctx.respond_error(msg, reply.errnum, reply.text)
            return
        self._job_event_arrived = True
        if not self._looking:
            self._looking = True
            self._ctx.spawn(self._poll())

    async def _poll(self) -> None:
        """Send the allocated ranks to the streams now and after further job events, with pauses between."""
        try:
            while self._job_event_arrived and len(self._watchers):
                self._job_event_arrived = False
                try:
                    self._publish(str(await self._allocated()))
                except RpcError as exc:
                    # The scheduler may be reloading, so the request is repeated.
                    self._ctx.log(logging.DEBUG, f"busy: {exc}")
                    self._job_event_arrived = True
                await asyncio.sleep(_LOOK_AGAIN)
        finally:
            self._looking = False
