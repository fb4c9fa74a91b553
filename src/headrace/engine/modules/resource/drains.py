"""Draining and undraining ranks: by request, and when their brokers are lost. A part of the leader."""

from __future__ import annotations

import errno
from typing import Any

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.resource.inventory import Event, TargetError
from headrace.engine.modules.resource.resize import Leader
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.formats.spec.message import Message

# The drain reason set by `drain-lost`.
_LOST = "broker was lost"


class Drains:
    """Handles `resource.drain` and `resource.undrain`."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._ctx = leader.ctx
        self._inventory = leader.inventory

    def _targets(self, msg: Message) -> tuple[int, str]:
        targets, mode = msg.obj["targets"], msg.obj.get("mode") or ""
        try:
            return self._inventory.targets(targets), mode
        except TargetError as exc:
            raise RpcError(errno.EINVAL, f"invalid targets: {exc}") from None

    async def drain(self, msg: Message) -> Any:
        async with self._leader.changing:
            ranks, mode = self._targets(msg)
            try:
                event = self._inventory.drain_event(ranks, msg.obj.get("reason"), mode, self._ctx.now())
            except TargetError as exc:
                raise RpcError(errno.EEXIST if "already" in str(exc) else errno.EINVAL, str(exc)) from None
            return await self._change(msg, event)

    async def undrain(self, msg: Message) -> Any:
        async with self._leader.changing:
            ranks, mode = self._targets(msg)
            try:
                by_host = not _is_idset(msg.obj["targets"])
                event = self._inventory.undrain_event(ranks, msg.obj.get("reason"), mode, self._ctx.now(), by_host)
            except TargetError as exc:
                raise RpcError(errno.EINVAL, str(exc)) from None
            return await self._change(msg, event)

    async def _change(self, msg: Message, event: Event | None) -> Any:
        """Apply `event` once it is written to the KVS, or at once if the request wants no response."""
        if event is not None:
            if not msg.noresponse:
                await self._leader.log.keep(event)
            self._leader.record(self._inventory.take(event), kept=not msg.noresponse)
        return EMPTY

    def follow_brokers(self, came: int, went: int) -> None:
        """Undrain ranks whose lost broker is back. With `drain-lost` (table [headrace]), drain lost ranks."""
        table, inventory = self._ctx.config.get("headrace", {}), self._inventory
        if isinstance(table, dict) and table.get("drain-lost") is True:
            lost = went & self._ctx.lost.bits & ~inventory.drained_bits()
            self._leader.record(inventory.drain(lost, _LOST, "update", self._ctx.now()) if lost else None)
        back = [
            rank for rank in Idset.from_bits(came & inventory.drained_bits()) if inventory.drained[rank].reason == _LOST
        ]
        if back:
            self._leader.record(inventory.undrain(Idset(back).bits, "broker is back", "force", self._ctx.now()))


def _is_idset(text: str) -> bool:
    try:
        Idset.parse(text)
    except IdsetError:
        return False
    return True
