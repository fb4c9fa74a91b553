"""The resource service of rank 0: the instance's resources and their state (RFC 28, RFC 44).

It keeps the inventory; service.py has the service of the other ranks. A scheduler acquires all resources and is then
notified of changes to ranks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.resource import source
from headrace.engine.modules.resource.acquirers import Acquirers, adopt, leave
from headrace.engine.modules.resource.counted import CountedNodes, modes_of
from headrace.engine.modules.resource.drains import Drains
from headrace.engine.modules.resource.inventory import Event, Inventory, TargetError, ids
from headrace.engine.modules.resource.log import ResourceLog
from headrace.engine.modules.resource.own_node import count_node, send_topology
from headrace.engine.modules.resource.resize import Resizer
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.os_error import text_of
from headrace.formats.spec.requests.resource import LEADER
from headrace.formats.spec.rset import ResourceSet, RsetError

# Seconds that a request waits for R if R is about to be defined, because counts are on their way.
_SOON = 5.0


class Leader:
    """The inventory of rank 0 and the `resource` service."""

    def __init__(self, ctx: ModuleContext, args: list[str]) -> None:
        self.ctx = ctx
        self.args = args
        self.forced_down = 0
        hosts = list(Hostlist.parse(ctx.attrs.get("hostlist")))
        self.inventory = Inventory(ctx.size, hosts or [ctx.attrs.get("hostname")] * ctx.size)
        self.found: dict[int, source.Found] = {}
        self.method = ""
        # The method by which an earlier load of this module defined the R in the KVS.
        self.origin = ""
        self.ready = False
        # Set when R is defined.
        self.defined = asyncio.Event()
        # True once it is known which brokers are online.
        self.following = False
        self.usable = 0
        self.muted = False
        self.acquirers = ctx.streams("acquire")
        # The acquirers of an earlier load, until it is known which brokers are online.
        self.inherited: Acquirers | None = None
        self.journal = ctx.streams("journal")
        self.waiting_up: list[tuple[int, Message]] = []
        self.log = ResourceLog(ctx, lambda: self.inventory.rset)
        # Serialises requests that change which ranks may be used.
        self.changing = asyncio.Lock()
        self.table = self._table(ctx.config)
        self.counted = CountedNodes(self)
        self.drains = Drains(self)
        self.resizer = Resizer(self)
        self._serve()
        # In recovery mode, a single broker loads the configuration of a whole system, which cannot match its host.
        recovers = ctx.attrs.get("broker.recovery-mode", "0") == "1"
        bootstrapped = ctx.attrs.get("broker.boot-method") == "config" and not recovers
        self.configured = self.inventory.rset = source.configured(ctx.config, self.inventory.hostlist, bootstrapped)
        if not recovers:
            try:
                self._excluded(self.table)
            except TargetError as exc:
                raise RpcError(errno.EINVAL, f"resource.exclude: {exc}") from None
        ctx.spawn(self._start())

    def _serve(self) -> None:
        ctx = self.ctx
        ctx.service(
            "resource",
            {
                "status": self._status,
                "sched-status": self._sched_status,
                "get": self._get,
                "acquire": self._acquire,
                "acquire-mute": self._mute,
                "journal": self._journal,
                "drain": self.drains.drain,
                "undrain": self.drains.undrain,
                "reload": self._reload,
                "monitor-waitup": self._wait_up,
                "monitor-force-down": self._force_down,
                "gather": self.counted.gather,
                "topo-get": lambda msg: send_topology(ctx, msg),
                **self.resizer.methods(),
            },
            open=("status", "sched-status", "get", "topo-get"),
            requests=LEADER,
        )
        ctx.on_config(self._configure)
        ctx.subscribe("config.update", lambda _msg: self._undrain_excluded())
        ctx.on_stats(self._stats)
        ctx.on_unload(self._unload)
        ctx.on_growth(self.resizer.grown)

    def _table(self, config: dict[str, Any]) -> dict[str, Any]:
        table = config.get("resource", {})
        if not isinstance(table, dict):
            raise RpcError(errno.EINVAL, "resource: must be a table")
        for key in ("no-update-watch", "norestrict", "noverify"):
            if not isinstance(table.get(key, False), bool):
                raise RpcError(errno.EINVAL, f"resource.{key}: must be true or false")
        exclude = table.get("exclude", "")
        if not isinstance(exclude, str):
            raise RpcError(errno.EINVAL, "resource.exclude: must be an idset or a hostlist")
        modes_of(table)
        return table

    async def _start(self) -> None:
        """Restore the eventlog of an earlier run, determine R, then follow the brokers."""
        events = await self.log.read()
        # Must precede the replay, because drains name hosts of this R.
        stored = self.inventory.rset = await self._stored_r(events) if self.configured is None else self.configured
        self.inventory.replay(events)
        self.record(self.inventory.restart(self.ctx.now()))
        if self.configured is not None:
            self.define(self.configured, "configuration")
        elif stored is not None:
            self.define(stored, "kvs")
            await self._inherit()
        else:
            await self._inherit()
        # Other nodes may have reported before R was known. Their counts are verified now.
        self.counted.add([*self.found.values(), count_node(self.ctx)])
        self._follow("broker.torpid", self._torpid)
        # In recovery mode (`flux start --recovery`), no rank is online, so that restored jobs are not started.
        if "monitor-force-up" in self.args:
            self._online((1 << self.ctx.size) - 1)
        elif self.ctx.attrs.get("broker.recovery-mode", "0") != "1":
            self._follow("broker.online", self._online)

    async def _stored_r(self, events: list[Event]) -> ResourceSet | None:
        """R from the KVS, if an earlier load of this module has defined it since the broker's start.

        The other ranks sent their counts only to that load. A start script may also store R before it loads this
        module, as test scripts do.
        """
        started = float(self.ctx.attrs.get("broker.starttime", "") or "inf")
        defined = [event for event in events if event["name"] == "resource-define" and event["timestamp"] >= started]
        methods = [(event.get("context") or {}).get("method", "") for event in defined]
        self.origin = next((method for method in reversed(methods) if method != "kvs"), "")
        if not defined and "broker.rc1_path" not in self.ctx.attrs:
            return None
        try:
            reply = await self.ctx.rpc("kvs.lookup", {"key": "resource.R", "namespace": "primary", "flags": 0})
            return ResourceSet.from_obj(msgspec.json.decode(base64.b64decode(reply["val"]["data"])))
        except (RpcError, RsetError, KeyError, TypeError, ValueError) as exc:
            self.ctx.log(logging.WARNING, f"resource.R cannot be read: {exc}")
            return None

    async def _inherit(self) -> None:
        """Use R of the enclosing job, unless R is already defined, and follow the job's expiration."""
        uri, job = self.ctx.attrs.get("parent-uri"), self.ctx.attrs.get("jobid")
        if not uri or not job:
            return
        watch = not self.table.get("no-update-watch", False)
        states = source.inherited(
            uri, job, self.inventory.hostlist, watch, lambda text: self.ctx.log(logging.DEBUG, f"job {job}: {text}")
        )
        try:
            rset = await states.__anext__()
        except StopAsyncIteration:
            return
        except (RpcError, RsetError, OSError, ValueError) as exc:
            self.ctx.log(
                logging.WARNING, f"R of job {job} in the enclosing instance: {text_of(exc)}; counting nodes instead"
            )
            return
        if not self.method:
            self.define(rset, "job-info")
        self._expire_at(rset.expiration)
        self.ctx.spawn(self._follow_parent(states))

    async def _follow_parent(self, states: AsyncIterator[ResourceSet]) -> None:
        # An error means that the enclosing instance has ended, so there are no more changes.
        with contextlib.suppress(RpcError, RsetError, OSError):
            async for rset in states:
                self._expire_at(rset.expiration)

    def _expire_at(self, expiration: float) -> None:
        """Set a new expiration of the instance, and report it to the scheduler (RFC 28) and job manager."""
        event = self.inventory.expire_at(expiration, self.ctx.now())
        if event is not None:
            self.log.save_r = True
            self.acquirers.send(event["context"])
            self.ctx.publish("resource-expiration", event["context"])
            self.record(event)

    def define(self, rset: ResourceSet, method: str) -> None:
        """Set R and send it to acquirers. `method` names its source."""
        self.method = method
        self.log.save_r = True
        self.record(self.inventory.define(rset, method, self.ctx.now()))
        try:
            self._exclude(self._excluded(self.table))
        except TargetError as exc:
            self.ctx.log(logging.ERROR, f"resource.exclude: {exc}")
        self._warn_of_queues_without_hosts(self.ctx.config)
        self.ready = True
        self.defined.set()
        self.inherited = adopt(self.ctx, self.acquirers, self.inventory.schedulable())
        if self.inherited is not None:
            self.usable = self.inherited.usable
            self.acquirers.send({"expiration": rset.expiration})
        else:
            self.usable = self.inventory.usable()
            for msg in self.acquirers:
                self._offer(msg)
        self.resizer.defined()

    def learn_hosts(self) -> None:
        """Read the current size and hosts of the instance, since hosts may have been added."""
        self.inventory.learn_hosts(list(Hostlist.parse(self.ctx.attrs.get("hostlist"))))

    def _excluded(self, table: dict[str, Any]) -> int:
        text = table.get("exclude", "")
        return self.inventory.targets(text) if text else 0

    def _exclude(self, ranks: int) -> None:
        """Set the excluded ranks, and undrain them."""
        self.inventory.exclude = ranks
        self._undrain_excluded()

    def _undrain_excluded(self) -> None:
        """Undrain excluded ranks. They stay undrained when they are no longer excluded."""
        drained = self.inventory.exclude & self.inventory.drained_bits()
        if drained:
            self.record(self.inventory.undrain(drained, "excluded", "force", self.ctx.now()))

    def _configure(self, config: dict[str, Any]) -> None:
        """Apply a reloaded configuration: `exclude` changes at once, the resources only at the next start.

        Excluded ranks are not undrained yet: if another module refuses the configuration, the old one is applied again,
        which could not restore the drains. They are undrained at the event `config.update`, which is sent after all
        modules have accepted the configuration.
        """
        table = self._table(config)
        try:
            self.inventory.exclude = self._excluded(table)
        except TargetError as exc:
            raise RpcError(errno.EINVAL, f"resource.exclude: {exc}") from None
        self.table = table
        self._warn_of_queues_without_hosts(config)
        self.changed()

    def _warn_of_queues_without_hosts(self, config: dict[str, Any]) -> None:
        """Warn of queues without a host in R, whose jobs can never run."""
        # In recovery mode, a single broker loads the configuration of a whole system, which cannot match its host.
        if self.inventory.rset is None or self.ctx.attrs.get("broker.recovery-mode", "0") == "1":
            return
        for name, hosts in source.queues_without_hosts(config, self.inventory.rset):
            self.ctx.log(logging.WARNING, f"queues.{name}.hosts: no host of {hosts} is among the resources")

    # -- online brokers

    def _follow(self, group: str, update: Callable[[int], None]) -> None:
        def changed(reply: Message) -> None:
            if reply.errnum:
                if reply.errnum != errno.ENODATA:
                    self.ctx.log(logging.ERROR, f"groups.get {group}: {reply.text or os.strerror(reply.errnum)}")
                return
            update(Idset.parse(reply.obj["members"]).bits)

        self.ctx.call("groups.get", {"name": group}, changed, nodeid=0, streaming=True)

    def _online(self, ranks: int) -> None:
        self.following = True
        ranks &= ~self.forced_down
        came, went = ranks & ~self.inventory.online, self.inventory.online & ~ranks
        for event in self.inventory.set_online(ranks, self.ctx.now()):
            self.record(event)
        self.drains.follow_brokers(came, went)
        self.inherited = None
        self.changed()
        self.counted.at_quorum(ranks)
        for entry in list(self.waiting_up):
            if ranks.bit_count() >= entry[0]:
                self.waiting_up.remove(entry)
                self.ctx.respond(entry[1])

    def _torpid(self, ranks: int) -> None:
        for event in self.inventory.set_torpid(ranks, self.ctx.now()):
            self.record(event)

    # -- events

    def record(self, event: Event | None, kept: bool = False) -> None:
        """Publish an event in the journal, write it to the KVS, and send its effects to the scheduler.

        With `kept`, the event is already in the KVS.
        """
        if event is None:
            return
        body: dict[str, Any] = {"events": [event]}
        if event["name"] == "resource-define":
            body["R"] = self.inventory.status()["R"]
        self.journal.send(body)
        if event["name"] in ("drain", "undrain"):
            context = " ".join(f"{key}={value}" for key, value in event["context"].items())
            self.ctx.log(logging.INFO, f"{event['name']} {context}")
        if not kept:
            self.log.add(event)
        self.changed()

    def changed(self) -> None:
        if not self.ready or self.inherited is not None:
            return
        usable = self.inventory.usable()
        up, down = usable & ~self.usable, self.usable & ~usable
        self.usable = usable
        if (up or down) and not self.muted:
            body = {}
            if up:
                body["up"] = ids(up)
            if down:
                body["down"] = ids(down)
            self.acquirers.send(body)

    def _unload(self) -> None:
        self.log.close()
        if self.ready:
            leave(self.ctx, self.acquirers, self.inventory.schedulable(), self.usable)

    # -- requests

    def _acquire(self, msg: Message) -> None:
        if len(self.acquirers):
            raise RpcError(errno.EBUSY, "resources are already acquired by another scheduler")
        self.acquirers.add(msg)
        if self.ready:
            self._offer(msg)

    def _offer(self, msg: Message) -> None:
        inventory = self.inventory
        self.ctx.respond(msg, {"resources": inventory.schedulable().to_obj(), "up": ids(self.usable)})

    def _mute(self, msg: Message) -> Any:
        self.muted = True
        return EMPTY

    def _journal(self, msg: Message) -> None:
        self.journal.add(msg)
        body: dict[str, Any] = {"events": list(self.inventory.events)}
        if self.inventory.rset is not None:
            body["R"] = self.inventory.rset.to_obj()
        if body["events"]:
            self.ctx.respond(msg, body)
        self.ctx.respond(msg, {"events": []})

    async def _known(self) -> None:
        """Wait for R if it is about to be defined.

        The initial program runs as soon as the brokers of the quorum are online. At that time, this module may not have
        received their counts, or not have read the eventlog of an earlier run.
        """
        quorum = int(self.ctx.attrs.get("broker.quorum"))
        if not self.ready and (not self.following or self.inventory.online.bit_count() >= quorum):
            # On CPython 3.10, asyncio.TimeoutError is not the built-in TimeoutError.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.defined.wait(), _SOON)

    async def _status(self, msg: Message) -> dict[str, Any]:
        await self._known()
        return self.inventory.status()

    async def _get(self, msg: Message) -> dict[str, Any]:
        await self._known()
        if self.inventory.rset is None:
            raise RpcError(errno.EAGAIN, "resources are not known yet")
        return {"R": self.inventory.rset.to_obj()}

    def _reload(self, msg: Message) -> Any:
        """Load R from a file, for tests and disaster recovery. Refused while a scheduler holds resources."""
        path = msg.obj["path"]
        rset = source.from_xml_folder(path) if msg.obj.get("xml") else source.from_file(path)
        if len(self.acquirers):
            raise RpcError(errno.EBUSY, "resources are busy (unload scheduler?)")
        foreign = rset.ranks - Idset(range(self.ctx.size))
        if foreign and not msg.obj.get("force"):
            raise RpcError(errno.EINVAL, f"{path}: ranks {foreign} are not in this instance of {self.ctx.size}")
        self.define(rset, "resource-reload")
        return EMPTY

    def _wait_up(self, msg: Message) -> Any:
        need = msg.obj["up"]
        if not 0 <= need <= self.ctx.size:
            raise RpcError(errno.EINVAL, f"up must be 0 to {self.ctx.size} brokers")
        if self.inventory.online.bit_count() >= need:
            return EMPTY
        self.waiting_up.append((need, msg))
        return None

    def _force_down(self, msg: Message) -> Any:
        """Treat ranks as lost, regardless of the state of their brokers."""
        try:
            ranks = Idset.parse(msg.obj["ranks"]).bits
        except ValueError as exc:
            raise RpcError(errno.EPROTO, f"ranks must be an idset: {exc}") from None
        self.forced_down |= ranks
        self._online(self.inventory.online)
        return EMPTY

    async def _sched_status(self, msg: Message) -> dict[str, Any]:
        """All, down and allocated resources as R. The scheduler provides the allocated resources."""
        await self._known()
        inventory = self.inventory
        rset = inventory.schedulable()
        down = rset.select_ranks(Idset.from_bits(rset.ranks.bits & ~inventory.usable()))
        try:
            allocated = (await self.ctx.rpc("sched.resource-status", {}))["allocated"]
        except RpcError:
            allocated = ResourceSet().to_obj()
        return {"all": rset.to_obj(), "down": down.to_obj(), "allocated": allocated}

    def _stats(self) -> dict[str, Any]:
        rset = self.inventory.rset or ResourceSet()
        return {"method": self.method, "nodes": rset.nnodes, "acquired": len(self.acquirers), "muted": self.muted}
