"""The HTTP service for scripts and browsers, run as a child of the instance on rank 0.

The module runs `headrace api start` with the options in the table `[headrace.api]`, if the configuration has it. The
service is an ordinary subprocess (rexec): it uses only the broker's socket, and it ends with the instance, even if the
broker is killed. If it ends by itself, it is restarted after a pause that doubles up to a minute. `api.url` responds
with an address that opens the page once. The service prints such an address on SIGUSR1.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import os
import signal
from typing import Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.execution import API
from headrace.formats.spec.wait_status import how_ended

NAME = "api"
_STDOUT, _STDERR = 1, 2
_LONGEST_LINE = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# If the service has run for this many seconds, the next pause is short again.
_LONG_RUN = 60.0
# Seconds for the service to end its streams and workflow tools.
_GRACE = 20.0
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
        self._pid = 0
        self._starts = 0
        self._began = 0.0
        self._pause = _FIRST_PAUSE
        self._timer: Any = None
        # The addresses that the service printed when it was ready, without tokens. None until then.
        self._ready: dict[str, str] | None = None
        self._waiting: list[asyncio.Future[dict[str, str]]] = []
        # Created when the module is unloaded, and set when the service has ended.
        self._exited: asyncio.Event | None = None
        ctx.service(NAME, {"url": self._url}, requests=API)
        ctx.on_config(self._reconfigure)
        ctx.on_stats(lambda: {"pid": self._pid, "starts": self._starts, "url": (self._ready or {}).get("url", "")})
        ctx.on_unload(self._end)
        self._start()

    def _start(self) -> None:
        self._timer = None
        self._starts += 1
        self._began = self.ctx.monotonic()
        lines = {"stdout": LineReader(_LONGEST_LINE), "stderr": LineReader(_LONGEST_LINE)}

        def answered(reply: Message) -> None:
            if reply.errnum:
                self._ended(reply.errnum)
                return
            body = reply.obj
            if body["type"] == "started":
                self._pid = body["pid"]
                end = {"stream": "stdin", "rank": str(self.ctx.rank), "eof": True}
                self.ctx.call("rexec.write", {"matchtag": reply.matchtag, "io": end})
                if self._exited is not None:
                    self._signal(signal.SIGTERM)
            elif body["type"] == "output":
                self._output(body["io"], lines[body["io"]["stream"]])
            elif body["type"] == "finished" and self._exited is None:
                self.ctx.log(logging.ERROR, f"the service has ended: {how_ended(body['status'])}")

        cmd = {
            "cmdline": ["headrace", "api", "start", "--json", *self._options],
            "cwd": os.getcwd(),
            "env": dict(os.environ),
            "opts": {},
            "channels": [],
        }
        self.ctx.call("rexec.exec", {"cmd": cmd, "flags": _STDOUT | _STDERR}, answered, streaming=True)

    def _output(self, io: dict[str, Any], reader: LineReader) -> None:
        data = io.get("data", "")
        lines = reader.feed(base64.b64decode(data) if io.get("encoding") == "base64" else data.encode())
        for line in lines:
            if io["stream"] == "stdout":
                self._printed(json.loads(line))
            else:
                self.ctx.log(logging.ERROR, line.decode("utf-8", "replace"))

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
            self._signal(signal.SIGUSR1)

    async def _url(self, msg: Message) -> dict[str, str]:
        if self._ready is None:
            raise RpcError(errno.EAGAIN, "the service is not up yet: try again, or look for errors in flux dmesg")
        asked: asyncio.Future[dict[str, str]] = self.ctx.loop.create_future()
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            self._signal(signal.SIGUSR1)
        try:
            return {"uri": self.ctx.attrs.get("local-uri"), **await asyncio.wait_for(asked, _ANSWER_TIMEOUT)}
        except asyncio.TimeoutError:
            self._waiting.remove(asked)
            raise RpcError(errno.ETIMEDOUT, f"the service has not answered within {_ANSWER_TIMEOUT:.0f} s") from None

    def _signal(self, number: int) -> None:
        if self._pid:
            self.ctx.call("rexec.kill", {"pid": self._pid, "signum": int(number)})

    def _ended(self, errnum: int) -> None:
        """Handle the end of the service (ENODATA), or a failure to start it: start it again after a pause."""
        self._pid, self._ready = 0, None
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if not asked.done():
                asked.set_exception(RpcError(errno.EAGAIN, "the service has ended and is being restarted: try again"))
        if self._exited is not None:
            self._exited.set()
            return
        if errnum != errno.ENODATA:
            self.ctx.log(logging.ERROR, f"the service cannot be started: {os.strerror(errnum)}")
        if self.ctx.monotonic() - self._began >= _LONG_RUN:
            self._pause = _FIRST_PAUSE
        self._timer = self.ctx.call_later(self._pause, self._start)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _reconfigure(self, config: dict[str, Any]) -> None:
        """Restart the service if its options have changed. If the table was removed, the service continues."""
        wanted = options(config)
        if wanted == self._options or "api" not in config.get("headrace", {}):
            return
        self._options, self._pause = wanted, _FIRST_PAUSE
        self._signal(signal.SIGTERM)

    async def _end(self) -> None:
        self._exited = asyncio.Event()
        if self._timer is not None:
            self._timer.cancel()
        elif self._pid:
            self._signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._exited.wait(), _GRACE)
            except asyncio.TimeoutError:
                self.ctx.log(logging.ERROR, f"the service has not ended within {_GRACE:.0f} s, and is killed")
                self._signal(signal.SIGKILL)
