"""Loading and removal of modules, and the service module.* (RFC 5).

A module is a service of `headrace.engine.modules`, or a .py file given by path. Each rank loads its own list: rank 0
holds the instance's state, and the other ranks run only modules that must be where the jobs run.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.engine.broker import flux_commands
from headrace.engine.broker.kept import data_path, forget_data
from headrace.engine.broker.module import placeholders
from headrace.engine.broker.module import process as module_process
from headrace.engine.broker.module.context import EMPTY, FINALIZING, Empty, ModuleContext, RpcError
from headrace.engine.broker.module.process import Forked, ModuleProcess
from headrace.engine.broker.module.search import find, name_of
from headrace.engine.broker.module.suspended import SuspendedModule
from headrace.engine.broker.module.trace import ModuleTrace
from headrace.formats.spec.message import Message
from headrace.formats.spec.os_error import text_of, with_class
from headrace.formats.spec.requests.broker import MODULE

if TYPE_CHECKING:
    from headrace.engine.broker.attrs import AttrTable
    from headrace.engine.broker.parts import BrokerBase

# Scripts for Flux use the name of Flux's default scheduler, whichever scheduler is loaded.
_DEFAULT_SCHEDULER, _FLUX_SCHEDULER = "sched-graph", "sched-simple"
LEADER_MODULES = (
    "content",
    "kvs",
    "kvs-watch",
    "resource",
    "job-manager",
    "job-ingest",
    "job-info",
    "job-list",
    _DEFAULT_SCHEDULER,
    "job-exec",
    "rexec",
    "heartbeat",
    "cron",
)
FOLLOWER_MODULES = ("resource", "job-exec", "rexec", "heartbeat")
# The service for scripts and browsers, loaded if the table [headrace.api] exists.
_SERVICE = "api"
# Keeps the books of users and banks, loaded if the configuration asks for it (`_keeps_accounts`).
_ACCOUNTING = "accounting"
# The modules that the leader and a follower load before a user's own rc1 script. The script may load some of them
# itself, since they are modules in Flux. They are not listed until it does. Scripts expect content in the broker, and
# scripts that load job-exec only on the leader need it on followers.
_BEFORE_OWN_RC1 = (("content", "rexec"), ("job-exec", "rexec"))
_UNLISTED = frozenset({"content", "job-exec"})
# Modules that may compute for longer than a broker may be blocked. Each runs in its own process.
EXEC_MODULES = frozenset({_DEFAULT_SCHEDULER, _FLUX_SCHEDULER})
# Limit for reloading such a module after its process has ended: _RESTARTS times within _RESTARTS_IN seconds. A module
# that always ends at once would otherwise keep the broker busy.
_RESTARTS, _RESTARTS_IN = 3, 60.0
# Modules that must run in the broker: they use its sockets, or exchange objects that JSON cannot represent.
_BOUND_MODULES = frozenset({"job-exec", "job-ingest", "job-manager", "rexec"})


class _Load(NamedTuple):
    """The arguments of one `ModuleHost.load`."""

    path: str
    name: str
    args: list[str]
    as_process: bool

    @classmethod
    def of(cls, body: dict[str, Any]) -> _Load:
        """Create from the payload of `module.load`."""
        return cls(body["path"], body.get("name") or "", list(body.get("args") or ()), body.get("exec") is True)


def names_for(rank: int, attrs: AttrTable, config: dict[str, Any]) -> list[str]:
    """The modules that the broker of `rank` loads, in order.

    Raises RpcError(EINVAL) for an unknown scheduler.
    """
    if has_own_rc1(attrs):
        return list(_BEFORE_OWN_RC1[rank > 0])
    names = LEADER_MODULES if rank == 0 else FOLLOWER_MODULES
    if rank == 0 and "api" in config.get("headrace", {}):
        names = (*names, _SERVICE)
    if rank == 0 and _keeps_accounts(config):
        names = (*names, _ACCOUNTING)
    skip = _listed(config, "skip-modules")
    return [_scheduler(attrs, config) if name == _DEFAULT_SCHEDULER else name for name in names if name not in skip]


def _keeps_accounts(config: dict[str, Any]) -> bool:
    """True if the table [accounting] has settings of the module, or the policy mf_priority is configured."""
    table, manager = config.get("accounting"), config.get("job-manager")
    # flux-accounting's older configuration has this table with the weights of factors alone.
    if isinstance(table, dict) and table.keys() - {"factor-weights"}:
        return True
    plugins = manager.get("plugins") if isinstance(manager, dict) else None
    # The job manager refuses a list that is none.
    entries = plugins if isinstance(plugins, list) else []
    return any(isinstance(entry, dict) and str(entry.get("load")).endswith("mf_priority.so") for entry in entries)


def has_own_rc1(attrs: AttrTable) -> bool:
    """True if a user's script loads the modules. An empty name stands for a script that loads none."""
    return "broker.rc1_path" in attrs


def exec_modules(config: dict[str, Any]) -> frozenset[str]:
    """The modules that run in their own processes: the defaults, and `headrace.exec-modules`."""
    return EXEC_MODULES | _listed(config, "exec-modules")


def _listed(config: dict[str, Any], key: str) -> frozenset[str]:
    table = config.get("headrace")
    names = table.get(key) if isinstance(table, dict) else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _scheduler(attrs: AttrTable, config: dict[str, Any]) -> str:
    """The scheduler's module: from attribute `sched.module`, or `module` of the table `[sched]`."""
    table = config.get("sched", {})
    name = attrs.get("sched.module", "") or (table.get("module") if isinstance(table, dict) else table)
    if name not in (None, "simple", "graph"):
        raise RpcError(errno.EINVAL, f"sched.module: must be simple or graph, not {name!r}")
    return f"sched-{name or 'graph'}"


class ModuleHost:
    """The modules of one broker, in load order."""

    def __init__(self, broker: BrokerBase, forked: dict[str, Forked] | None = None) -> None:
        """`forked` has processes that were forked to run modules, by module name."""
        self.broker = broker
        self._forked = forked or {}
        self.loaded: dict[str, ModuleContext | ModuleProcess] = {}
        # The arguments with which each module was loaded, by name, so that it can be loaded again.
        self._loads: dict[str, _Load] = {}
        broker.kept = {}
        broker.remove_module = self._begin_remove
        # Removed modules that can be resumed, by name (suspended.py).
        self._suspended: dict[str, ModuleContext] = {}
        # The times when modules were loaded again after their processes had ended, by path.
        self._restarts: dict[str, list[float]] = {}
        self._ending = False
        self._builtin: set[str] = set()
        # Modules that are loaded but not listed; see _UNLISTED.
        self._unlisted: set[str] = set()
        # Modules that keep running after a failed reload. In Flux they would be removed, so a script loads them next.
        # This load is then a reload.
        self._spared: set[str] = set()
        self._trace: ModuleTrace

    def builtin(self, name: str) -> ModuleContext:
        """A context for a service of the broker itself, which cannot be removed."""
        ctx = ModuleContext(self.broker, name)
        self.loaded[name] = ctx
        self._builtin.add(name)
        return ctx

    async def load_first(self) -> None:
        """Load the broker's own modules.

        Raises RpcError or the exception of a module, after logging the module's name.
        """
        broker = self.broker
        # The name in the log if the list of modules is invalid.
        name = "list"
        try:
            for name in names_for(broker.rank, broker.attrs, broker.config):
                await self.load(name)
                if name == flux_commands.AFTER and await flux_commands.restore(broker):
                    raise RpcError(errno.EIO, f"{broker.attrs.get('content.restore')} cannot be restored")
        except Exception as exc:
            broker.log(logging.CRITICAL, "broker", f"rc1: module {name}: {text_of(exc)}")
            raise
        if has_own_rc1(broker.attrs):
            self._unlisted = set(_UNLISTED & self.loaded.keys())

    async def load(self, path: str, name: str = "", args: list[str] | None = None, as_process: bool = False) -> None:
        """Load a module by name or .py file, into this process or its own.

        Raises RpcError(ENOENT, EEXIST) and any exception of the module's load.
        """
        if path in self._unlisted and name in ("", path):
            self._unlisted.discard(path)
            if not args:
                return
            await self.remove(path)
        new = _Load(path, name, args or [], as_process)
        running = self._module_of(new)
        if running in self._spared and running in self.loaded:
            self._spared.discard(running)
            if new._replace(name=running) != self._loads[running]:
                await self.reload(new, force=False)
            return
        work_here = not placeholders.has(path, self.broker.rank)
        if work_here and (as_process or path in exec_modules(self.broker.config)):
            name = await self._load_process(path, name, args or [], path in EXEC_MODULES and not as_process)
        else:
            name = await self._load_here(path, name, args or [])
        self._loads[name] = _Load(path, name, args or [], as_process)
        self._trace.attach()
        self.broker.log(logging.DEBUG, "broker", f"insmod {name}")

    async def reload(self, new: _Load, force: bool) -> None:
        """Remove a module and load it with `new`, or with its former arguments if that fails.

        With `force`, it need not be loaded. If the module has a function `check(ctx, args)`, this is called before the
        old module is removed, and may refuse the arguments. Raises RpcError or any exception of the module's load. The
        old module then keeps running (`_spared`) until it is loaded again with other arguments, or removed.
        """
        name = self._module_of(new)
        try:
            await self._replace(name, new, force)
        except Exception:
            if name in self._loads and name in self.loaded:
                self._spared.add(name)
            raise

    async def _replace(self, name: str, new: _Load, force: bool) -> None:
        old = self._loads.get(name)
        running = self.loaded.get(name)
        # Importing a user's file runs it, which only the load may do.
        found = None if new.path.endswith(".py") else find(new.path)
        if isinstance(running, ModuleContext) and name not in self._builtin and found and hasattr(found, "check"):
            found.check(running, new.args)
        try:
            await self.remove(name)
        except RpcError as exc:
            if not (force and exc.errnum == errno.ENOENT):
                raise RpcError(exc.errnum, f"remove {name}: {text_of(exc)}") from None
            old = None
        try:
            await self.load(*new)
        except Exception:
            if old is not None:
                await self._restore_former(old)
            raise

    def _module_of(self, new: _Load) -> str:
        """The name of the module that `new` loads."""
        return self._loaded_name(new.name or new.path.rpartition("/")[2].partition(".")[0])

    async def _load_here(self, path: str, name: str, args: list[str]) -> str:
        found = placeholders if placeholders.has(path, self.broker.rank) else find(path)
        if found is None:
            raise _not_found()
        name = name or name_of(found, path)
        self._check_is_new(name)
        resumed = self._suspended.get(name)
        if resumed is not None and resumed.suspended is not None and resumed.path == getattr(found, "__file__", None):
            resumed.suspended.resume(args)
            self.loaded[name] = self._suspended.pop(name)
            return name
        ctx = ModuleContext(self.broker, name, getattr(found, "__file__", path) or path)
        self.loaded[name] = ctx
        try:
            if hasattr(found, "check"):
                found.check(ctx, args)
            result = found.load(ctx, args)
            if hasattr(result, "__await__"):
                await result
        except Exception:
            del self.loaded[name]
            await ctx.unload()
            raise
        provides = found is not placeholders and getattr(found, "PROVIDES_SERVICE", True)
        if provides and name not in ctx.services and name not in self.broker.router.services:
            ctx.service(name, {})
        return name

    async def _load_process(self, path: str, name: str, args: list[str], restart: bool) -> str:
        if path in _BOUND_MODULES:
            raise RpcError(errno.EINVAL, f"module {path} works in the broker's process only: load it without --exec")
        self._check_is_new(name or path)
        try:
            process = await module_process.start(self.broker, path, self._forked.pop(path, None))
        except OSError as exc:
            raise RpcError(exc.errno or errno.EAGAIN, f"no process for module {path}: {exc.strerror}") from None
        try:
            await process.found()
            name = name or process.name
            self._check_is_new(name)
            process.name = name
            self._save_kept_data(name)
            self.loaded[name] = process
            await process.start(args)
        except Exception:
            self._forget(process)
            await process.abandon()
            raise
        process.ended = partial(self._restart, path, args) if restart else self._forget
        if name not in self.broker.router.services:
            self.broker.router.provide(name, process)
        return name

    def _save_kept_data(self, name: str) -> None:
        """Save data that a module left in this process to the file where its own process reads it."""
        kept = self.broker.kept
        if kept and name in kept:
            kept[name].save(data_path(self.broker.attrs, name, apart=True))
            del kept[name]

    def _check_is_new(self, name: str) -> None:
        if name in self.loaded:
            raise RpcError(errno.EEXIST, f"module {name} is already loaded")

    def _forget(self, module: ModuleProcess) -> None:
        if self.loaded.get(module.name) is module:
            del self.loaded[module.name]

    def _restart(self, path: str, args: list[str], module: ModuleProcess) -> None:
        """Reload a module whose process ended: without a scheduler, for example, no job would start."""
        self._forget(module)
        if module.status == FINALIZING or self._ending:
            return
        now = self.broker.loop.time()
        recent = [then for then in self._restarts.get(path, []) if now - then < _RESTARTS_IN]
        if len(recent) < _RESTARTS:
            self._restarts[path] = [*recent, now]
            self.broker.spawn(self._reload_ended(path, module.name, args))
        else:
            why = f"it ended {_RESTARTS + 1} times in {_RESTARTS_IN:g} s"
            self.broker.log(logging.CRITICAL, "broker", f"module {module.name} is not loaded again: {why}")

    async def _restore_former(self, old: _Load) -> None:
        """Load a module as it was before its reload failed."""
        try:
            await self.load(*old)
        except Exception as exc:
            self.broker.log(logging.CRITICAL, "broker", f"module {old.name} cannot be loaded again: {text_of(exc)}")
        else:
            self.broker.log(logging.INFO, "broker", f"module {old.name} continues with its former arguments")

    async def _reload_ended(self, path: str, name: str, args: list[str]) -> None:
        try:
            await self.load(path, name, args)
        except Exception as exc:
            self.broker.log(logging.CRITICAL, "broker", f"module {name} cannot be loaded again: {text_of(exc)}")
        else:
            # Logged at the same level as the end of the process.
            self.broker.log(logging.ERROR, "broker", f"module {name} was loaded again")

    async def remove(self, name: str) -> None:
        """Unload a module. Accepts Flux's name of the default scheduler. Raises RpcError(ENOENT, EINVAL)."""
        name = self._loaded_name(name)
        ctx = self.loaded.get(name)
        if ctx is None or name in self._unlisted:
            raise RpcError(errno.ENOENT, "No such file or directory")
        if name in self._builtin:
            raise RpcError(errno.EINVAL, f"{name} is part of the broker")
        self._spared.discard(name)
        if isinstance(ctx, ModuleContext) and ctx.resumption is not None:
            ctx.suspended = SuspendedModule(ctx)
            self._suspended[name] = ctx
        else:
            await ctx.unload()
        if self.loaded.get(name) is ctx:
            del self.loaded[name]
        self.broker.log(logging.DEBUG, "broker", f"rmmod {name}")

    def _loaded_name(self, name: str) -> str:
        """The name of a loaded module: Flux's name of the default scheduler is mapped to ours."""
        if name == _FLUX_SCHEDULER and name not in self.loaded and _DEFAULT_SCHEDULER in self.loaded:
            return _DEFAULT_SCHEDULER
        return name

    def _begin_remove(self, name: str) -> None:
        self.broker.spawn(self.remove(name))

    def forgotten(self) -> list[str]:
        """The modules that users' scripts have loaded and not removed, which is an error in Flux."""
        if not has_own_rc1(self.broker.attrs):
            return []
        ours = self._builtin | self._unlisted | {"rexec"}
        return [name for name in self.loaded if name not in ours]

    async def remove_all(self) -> None:
        self._ending = True
        self._unlisted.clear()
        for name in reversed(list(self.loaded)):
            if name not in self._builtin:
                await self.remove(name)
        for ctx in self._suspended.values():
            if ctx.suspended is not None:
                ctx.suspended.deliver()
            await ctx.unload()
        forget_data(self.broker.attrs)

    def register(self, ctx: ModuleContext) -> None:
        """Provide module.* through the broker's own context."""
        self._trace = ModuleTrace(ctx, self.loaded)
        ctx.service(
            "module",
            {
                "load": self._load,
                "remove": self._remove,
                # An addition of Headrace: Flux's clients remove the module and then load it.
                "reload": self._reload,
                "list": self._list,
                "status": lambda _msg: EMPTY,
                "debug": self._debug,
                "trace": self._trace.start,
            },
            open=("list",),
            requests=MODULE,
        )

    async def _load(self, msg: Message) -> Empty:
        wanted = _Load.of(msg.obj)
        try:
            await self.load(*wanted)
        except Exception as exc:
            raise self._refusal(wanted, exc) from exc
        return EMPTY

    async def _reload(self, msg: Message) -> Empty:
        wanted = _Load.of(msg.obj)
        try:
            await self.reload(wanted, msg.obj.get("force") is True)
        except Exception as exc:
            raise self._refusal(wanted, exc) from exc
        return EMPTY

    def _refusal(self, wanted: _Load, exc: Exception) -> RpcError:
        # Logged, since the requester may be a script whose output is lost.
        self.broker.log(logging.WARNING, "broker", f"load {wanted.path}: {text_of(exc)}")
        return exc if isinstance(exc, RpcError) else RpcError(errno.EINVAL, with_class(exc))

    async def _remove(self, msg: Message) -> Empty:
        await self.remove(msg.obj["name"])
        return EMPTY

    def _debug(self, msg: Message) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        body = dict(msg.obj)
        target = self.loaded.get(body.pop("name"))
        if target is None:
            raise RpcError(errno.ENOENT)
        return target.set_debug(body)

    def _list(self, _msg: Message) -> dict[str, Any]:
        now = time.monotonic()
        mods = [
            {
                "name": name,
                "path": ctx.path,
                "idle": int(now - ctx.last_used),
                "status": ctx.status,
                "services": list(ctx.services),
                "sendqueue": 0,
                "recvqueue": 0,
                **({"pid": ctx.pid} if isinstance(ctx, ModuleProcess) else {}),
            }
            for name, ctx in self.loaded.items()
            if name not in self._unlisted
        ]
        return {"mods": mods}


def _not_found() -> RpcError:
    return RpcError(errno.ENOENT, "module not found in search path")
