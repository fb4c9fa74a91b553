"""The resource eventlog and R in the KVS. A restarted instance restores drains from the eventlog.

Events are written in order, one commit at a time. If no request waits for an event, it is retried until the KVS accepts
it. A change that was requested is applied only after its event has been written, and refused if that fails.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.resource.inventory import Event
from headrace.formats.spec.message import Message
from headrace.formats.spec.rset import ResourceSet

_APPEND = 32  # kvs.commit: append to the value
# Seconds between attempts while the KVS is not loaded, and the number of attempts.
_RETRY = 0.2
_RETRIES = 50
# Seconds between attempts after a disk error.
_RETRY_DISK = 2.0
# Seconds for which online and offline events are collected for one commit.
_SAVE_SOON = 0.1

Waiter = asyncio.Future[None]


class ResourceLog:
    """Writes `resource.eventlog` and `resource.R`.

    R, which is returned by `rset`, is written with the next event if `save_r` is set.
    """

    def __init__(self, ctx: ModuleContext, rset: Callable[[], ResourceSet | None]) -> None:
        self.ctx = ctx
        self.save_r = False
        self._rset = rset
        self._pending: list[tuple[Event, Waiter | None]] = []
        self._writing = False
        self._timer = False
        self._tries = 0

    async def read(self) -> list[Event]:
        """The events of an earlier run; empty for a new instance."""
        try:
            reply = await self.ctx.rpc("kvs.lookup", {"key": "resource.eventlog", "namespace": "primary", "flags": 0})
            lines = base64.b64decode(reply["val"]["data"]).splitlines()
            return [msgspec.json.decode(line) for line in lines]
        except RpcError:
            return []
        except (KeyError, TypeError, ValueError) as exc:
            self.ctx.log(logging.WARNING, f"resource.eventlog cannot be read, so drains are lost: {exc}")
            return []

    def add(self, event: Event) -> None:
        """Queue `event` to be written soon."""
        self._pending.append((event, None))
        if event["name"] in ("online", "offline"):
            # At the start of an instance, these events arrive one by one. They are collected, because every commit
            # sends an event to every broker.
            self._later(_SAVE_SOON)
        else:
            self.ctx.at_flush(self.write)

    async def keep(self, event: Event) -> None:
        """Write `event`, and return when it is written.

        If that fails, drops the event and raises RpcError with the KVS's error.
        """
        kept: Waiter = self.ctx.loop.create_future()
        self._pending.append((event, kept))
        self.write()
        await kept

    def close(self) -> None:
        """Write the queued events, without waiting for the response."""
        self._writing = False
        self.write()

    def _later(self, seconds: float) -> None:
        if not self._timer:
            self._timer = True
            self.ctx.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = False
        self.write()

    def write(self) -> None:
        """Write the queued events, unless a commit is in progress."""
        if self._writing or not self._pending:
            return
        batch, self._pending = self._pending, []
        text = b"".join(msgspec.json.encode(event) + b"\n" for event, _ in batch)
        ops = [_put("resource.eventlog", text, _APPEND)]
        rset = self._rset() if self.save_r else None
        if rset is not None:
            ops.append(_put("resource.R", rset.encode().encode(), 0))

        def done(reply: Message) -> None:
            self._writing = False
            if not reply.errnum:
                self.save_r = self.save_r and rset is None
                self._tries = 0
                _settle(batch, None)
                self.write()
            elif reply.errnum == errno.ENOSYS:
                # The KVS is not loaded, or not yet, so changes by request are applied without being stored.
                _settle(batch, None)
                self._tries += 1
                if self._tries <= _RETRIES:
                    self._pending[:0] = [(event, None) for event, _ in batch]
                    self._later(_RETRY)
            else:
                _settle(batch, RpcError(reply.errnum, reply.text))
                self._pending[:0] = [(event, None) for event, waiter in batch if waiter is None]
                if any(waiter is not None for _, waiter in self._pending):
                    # Queued changes by request are written at once, so that each gets its error without delay.
                    self.write()
                elif self._pending:
                    self._later(_RETRY_DISK)

        self._writing = True
        self.ctx.call("kvs.commit", {"namespace": "primary", "flags": 0, "ops": ops}, done)


def _settle(batch: list[tuple[Event, Waiter | None]], error: RpcError | None) -> None:
    for _, waiter in batch:
        if waiter is None or waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _put(key: str, data: bytes, flags: int) -> dict[str, Any]:
    dirent = {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}
    return {"key": key, "flags": flags, "dirent": dirent}
