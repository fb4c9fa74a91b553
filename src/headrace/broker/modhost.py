"""Loads and removes modules, and answers module.* (RFC 5).

A module is a file of `headrace.modules` (its name with dashes), or a .py file given by path. Each rank loads the list
of its part: rank 0 holds the instance's state, the others only what must run where the jobs run.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import inspect
import logging
import os
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..spec.message import Message
from .module import EMPTY, ModuleContext, RpcError, _Empty

if TYPE_CHECKING:
    from .broker import Broker

LEADER_MODULES = (
    "content",
    "kvs",
    "kvs-watch",
    "resource",
    "job-manager",
    "job-ingest",
    "job-info",
    "job-list",
    "sched-simple",
    "job-exec",
    "rexec",
    "heartbeat",
)
FOLLOWER_MODULES = ("resource", "job-exec", "rexec")

_RUNNING = 1


class ModuleHost:
    """The modules of one broker, in load order."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loaded: dict[str, ModuleContext] = {}
        self._builtin: set[str] = set()

    def builtin(self, name: str) -> ModuleContext:
        """A context for a service that is part of the broker itself; it cannot be removed."""
        ctx = ModuleContext(self.broker, name)
        self.loaded[name] = ctx
        self._builtin.add(name)
        return ctx

    async def load(self, path: str, name: str = "", args: list[str] | None = None) -> ModuleContext:
        """Load a module by name or .py file. Raises RpcError(ENOENT, EEXIST) and whatever the module's load raises."""
        found = _find(path)
        if found is None:
            raise RpcError(errno.ENOENT, "module not found in search path")
        name = name or getattr(found, "NAME", path)
        if name in self.loaded:
            raise RpcError(errno.EEXIST, f"module {name} is already loaded")
        ctx = ModuleContext(self.broker, name, getattr(found, "__file__", path) or path)
        self.loaded[name] = ctx
        try:
            result = found.load(ctx, args or [])
            if inspect.isawaitable(result):
                await result
        except Exception:
            del self.loaded[name]
            await ctx.unload()
            raise
        if name not in ctx.services and name not in self.broker.router.services:
            ctx.service(name, {})
        self.broker.log(logging.DEBUG, "broker", f"insmod {name}")
        return ctx

    async def remove(self, name: str) -> None:
        """Unload a module. Raises RpcError(ENOENT, EINVAL)."""
        ctx = self.loaded.get(name)
        if ctx is None:
            raise RpcError(errno.ENOENT, "No such file or directory")
        if name in self._builtin:
            raise RpcError(errno.EINVAL, f"{name} is part of the broker")
        await ctx.unload()
        self.loaded.pop(name, None)
        self.broker.log(logging.DEBUG, "broker", f"rmmod {name}")

    def begin_remove(self, name: str) -> None:
        self.broker.spawn(self.remove(name))

    async def remove_all(self) -> None:
        for name in reversed(list(self.loaded)):
            if name not in self._builtin:
                await self.remove(name)

    def register(self, ctx: ModuleContext) -> None:
        """Provide module.* through the broker's own context."""
        ctx.service(
            "module",
            {
                "load": self._load,
                "remove": self._remove,
                "list": self._list,
                "status": lambda _msg: EMPTY,
                "debug": self._debug,
                "trace": lambda _msg: EMPTY,
            },
            open=("list",),
        )

    async def _load(self, msg: Message) -> _Empty:
        body = msg.obj or {}
        args = body.get("args", [])
        if not isinstance(body.get("path"), str) or not isinstance(args, list):
            raise RpcError(errno.EPROTO, "module.load: path must be a string and args a list of strings")
        try:
            await self.load(body["path"], body.get("name") or "", [str(arg) for arg in args])
        except RpcError:
            raise
        except Exception as exc:
            raise RpcError(errno.EINVAL, f"{type(exc).__name__}: {exc}") from exc
        return EMPTY

    async def _remove(self, msg: Message) -> _Empty:
        await self.remove(str((msg.obj or {}).get("name")))
        return EMPTY

    def _debug(self, msg: Message) -> dict[str, Any]:
        body = dict(msg.obj or {})
        target = self.loaded.get(str(body.pop("name", "")))
        if target is None:
            raise RpcError(errno.ENOENT)
        return target._set_debug(body)

    def _list(self, _msg: Message) -> dict[str, Any]:
        now = time.monotonic()
        mods = [
            {
                "name": name,
                "path": ctx.path,
                "idle": int(now - ctx.last_used),
                "status": _RUNNING,
                "services": list(ctx.services),
                "sendqueue": 0,
                "recvqueue": 0,
            }
            for name, ctx in self.loaded.items()
        ]
        return {"mods": mods}


def _find(path: str) -> ModuleType | None:
    if path.endswith(".py"):
        if not os.path.exists(path):
            return None
        spec = importlib.util.spec_from_file_location("headrace_module_" + os.path.basename(path)[:-3], path)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    if not path.replace("-", "").replace("_", "").isalnum():
        return None
    full = "headrace.modules." + path.replace("-", "_")
    try:
        module = importlib.import_module(full)
    except ModuleNotFoundError as exc:
        if exc.name == full:
            return None
        raise
    return module if hasattr(module, "load") else None
