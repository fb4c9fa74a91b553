"""The HTTP service for scripts and browsers, run as a child of the instance on rank 0.

The module runs `headrace api start` with the options in the table `[headrace.api]`, if the configuration has it.
`api.url` responds with an address that opens the page once. The service prints such an address on SIGUSR1.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import signal
from typing import Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.supervisor import Supervisor
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.execution import API

NAME = "api"
# Seconds for the service to print an address.
_ANSWER_TIMEOUT = 10.0


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Start the service. Raises RpcError(EINVAL) for any argument."""
    if args:
        raise RpcError(errno.EINVAL, f"api: unknown argument {args[0]!r}: the table [headrace.api] has the options")
    _Api(ctx)


def options(config: dict[str, Any]) -> list[str]:
    """The options of `headrace api start` from a configuration that was checked by `keys`."""
    found = []
    for key, value in config.get("headrace", {}).get("api", {}).items():
        if value is True:
            found.append(f"--{key}")
        elif value is not False:
            found += [f"--{key}={one}" for one in (value if isinstance(value, list) else [value])]
    return found


class _Api:
    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self._options = options(ctx.config)
        # The addresses that the service printed when it was ready, without tokens. None until then.
        self._ready: dict[str, str] | None = None
        self._waiting: list[asyncio.Future[dict[str, str]]] = []
        ctx.service(NAME, {"url": self._url}, requests=API)
        ctx.on_config(self._reconfigure)
        ctx.on_stats(self._stats)
        self._service = Supervisor(ctx, self._command(), lambda line: self._printed(json.loads(line)), self._ended)

    def _command(self) -> list[str]:
        return ["headrace", "api", "start", "--json", *self._options]

    def _stats(self) -> dict[str, Any]:
        return {"pid": self._service.pid, "starts": self._service.starts, "url": (self._ready or {}).get("url", "")}

    def _printed(self, addresses: dict[str, str]) -> None:
        """Handle addresses from the service. A login address is passed to one waiting request only."""
        if self._ready is None:
            self.ctx.log(logging.INFO, f"the service is at {addresses.get('socket') or addresses['url']}")
            self._ready = {name: addresses[name] for name in ("url", "socket") if name in addresses}
        while self._waiting:
            asked = self._waiting.pop(0)
            if not asked.done():
                asked.set_result({name: addresses[name] for name in ("url", "socket", "login") if name in addresses})
                break
        if self._waiting:
            self._service.kill(signal.SIGUSR1)

    async def _url(self, msg: Message) -> dict[str, str]:
        if self._ready is None:
            raise RpcError(errno.EAGAIN, "the service is not up yet: try again, or look for errors in flux dmesg")
        asked: asyncio.Future[dict[str, str]] = self.ctx.loop.create_future()
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            self._service.kill(signal.SIGUSR1)
        try:
            return {"uri": self.ctx.attrs.get("local-uri"), **await asyncio.wait_for(asked, _ANSWER_TIMEOUT)}
        except asyncio.TimeoutError:
            self._waiting.remove(asked)
            raise RpcError(errno.ETIMEDOUT, f"the service has not answered within {_ANSWER_TIMEOUT:.0f} s") from None

    def _ended(self) -> None:
        self._ready = None
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if not asked.done():
                asked.set_exception(RpcError(errno.EAGAIN, "the service has ended and is being restarted: try again"))

    def _reconfigure(self, config: dict[str, Any]) -> None:
        """Restart the service if its options have changed. If the table was removed, the service continues."""
        wanted = options(config)
        if wanted == self._options or "api" not in config.get("headrace", {}):
            return
        self._options = wanted
        self._service.restart(self._command())
