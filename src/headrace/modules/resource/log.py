"""The resource eventlog in the KVS, where a restarted instance finds its drains, and R beside it.

Events wait here until they are written, in order, one commit at a time. What nobody waits for is tried again until
there is room for it; a change that somebody asked for is made only once its event is kept, and refused if it cannot be.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.broker.module.context import ModuleContext, RpcError
from headrace.modules.resource.inventory import Event
from headrace.spec.message import Message
from headrace.spec.rset import ResourceSet

_APPEND = 32  # kvs.commit: append to the value
# Seconds between attempts, and how many there are where there is no KVS: it may not be loaded yet.
_RETRY = 0.2
_RETRIES = 50
# Seconds between attempts where the disk is the trouble.
_RETRY_DISK = 2.0
# Seconds until what came and went is saved.
_SAVE_SOON = 0.1

Waiter = asyncio.Future[None]


class ResourceLog:
    """`resource.eventlog`, and `resource.R` with its next event where `save_r` is set; `rset` says what R is."""

    def __init__(self, ctx: ModuleContext, rset: Callable[[], ResourceSet | None]) -> None:
        self.ctx = ctx
        self.save_r = False
        self._rset = rset
        self._pending: list[tuple[Event, Waiter | None]] = []
        self._writing = False
        self._timer = False
        self._tries = 0

    async def read(self) -> list[Event]:
        """The events of an earlier life, none if there was none."""
        try:
            reply = await self.ctx.rpc("kvs.lookup", {"key": "resource.eventlog", "namespace": "primary", "flags": 0})
            lines = base64.b64decode(reply["val"]["data"]).splitlines()
            return [msgspec.json.decode(line) for line in lines]
        except RpcError:
            return []
        except (KeyError, TypeError, ValueError) as exc:
            self.ctx.log(logging.WARNING, f"resource.eventlog cannot be read, drains are forgotten: {exc}")
            return []

    def add(self, event: Event) -> None:
        """Have `event` written, soon."""
        self._pending.append((event, None))
        if event["name"] in ("online", "offline"):
            # Of an instance that starts there comes one after the other; every commit is an event to every broker.
            self._later(_SAVE_SOON)
        else:
            self.ctx.at_flush(self.write)

    async def keep(self, event: Event) -> None:
        """Return when `event` is written. Raises RpcError, as the KVS says it, when it is not, and will not be."""
        kept: Waiter = self.ctx.loop.create_future()
        self._pending.append((event, kept))
        self.write()
        await kept

    def close(self) -> None:
        """Write what is left; nobody is here for the answer."""
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
        """Write what waits, unless something is being written."""
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
                # Nothing is kept in such an instance, or not yet.
                _settle(batch, None)
                self._tries += 1
                if self._tries <= _RETRIES:
                    self._pending[:0] = [(event, None) for event, _ in batch]
                    self._later(_RETRY)
            else:
                _settle(batch, RpcError(reply.errnum, reply.text))
                self._pending[:0] = [(event, None) for event, waiter in batch if waiter is None]
                if any(waiter is not None for _, waiter in self._pending):
                    # To fail by themselves.
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
