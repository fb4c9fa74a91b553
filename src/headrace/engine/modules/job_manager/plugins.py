"""The plugins of the job manager: `job-manager.jobtap` loads, removes and lists them, `jobtap-query` shows their state.

Flux loads shared objects here. Headrace has job policies of its own under the names of such plugins: the path of a
plugin stands for its file name, and no file is read. A loaded policy survives neither a restart nor a reload of the
module; the array `plugins` in the table [job-manager] of the configuration loads it again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Hashable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Durable
from headrace.engine.modules.job_manager.policy import DEFAULT, JobPolicy
from headrace.formats.spec.job_state import PRIORITY, SCHED
from headrace.formats.spec.message import Message, MessageError

if TYPE_CHECKING:
    from headrace.engine.modules.job_manager.mf_priority import MultiFactorPolicy
    from headrace.sched.accounting.multifactor import MultiFactor

_POLICY = "mf_priority"
_MULTI_FACTOR = f"{_POLICY}.so"
# The services that change the tables of the policy, which are methods of MultiFactor.
_UPDATES = ("rec_update", "rec_q_update", "rec_proj_update", "rec_bank_update", "rec_fac_update", "rec_config_update")
_BUILTIN = "builtin"
# When limits are checked.
_ALWAYS, _AT_SUBMIT = "always", "at-submit"
# Seconds of processor time that a slice of new priorities may take. A slice has as many changed jobs as this time
# allowed for in the last one, from the computation until watchers have the events, and at least _FEWEST.
_SLICE = 0.008
_FEWEST = 50
# Jobs that are looked at until the time of the slice is looked at.
_STRIDE = 32
# Jobs that are sorted by account at once, which takes about 1 ms.
_SORTED = 1000


class Plugins:
    """The loaded plugins. `touch` is called after every input to the core."""

    def __init__(self, ctx: ModuleContext, core: Core, touch: Callable[[], None]) -> None:
        self.ctx = ctx
        self.core = core
        self.touch = touch
        # Path by name, in the order in which they were loaded.
        self._paths: dict[str, str] = {DEFAULT.name: _BUILTIN}
        # The multi-factor policy that was loaded last.
        self._multi: MultiFactorPolicy | None = None
        # Requests to compute all priorities anew, and how many of them are done or in progress.
        self._asked = self._begun = 0
        self._pass = asyncio.Lock()

    # -- load and remove

    def configure(self, config: dict[str, Any]) -> None:
        """Load and remove what `[job-manager] plugins` names, at the start of the module. Raises RpcError(EINVAL)."""
        table = config.get("job-manager", {})
        entries = table.get("plugins", []) if isinstance(table, dict) else []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RpcError(errno.EINVAL, "job-manager.plugins: must be an array of tables")
        for index, entry in enumerate(entries):
            if not entry.keys() & {"remove", "load"}:
                raise RpcError(errno.EINVAL, f"job-manager.plugins[{index}]: must have the key load or remove")
            for key in ("remove", "load"):
                name = entry.get(key)
                if name is None:
                    continue
                where = f"job-manager.plugins[{index}].{key}"
                if not isinstance(name, str):
                    raise RpcError(errno.EINVAL, f"{where}: must be a string, not {name!r}")
                try:
                    if key == "remove":
                        self._remove(name)
                    else:
                        self._load(name, entry.get("conf"), config)
                except RpcError as exc:
                    raise RpcError(errno.EINVAL, f"{where}: {exc.text}") from None

    def reset(self) -> None:
        """Have the plugins of a module that was just loaded."""
        self._use(DEFAULT)
        self._paths = {DEFAULT.name: _BUILTIN}
        self.configure(self.ctx.config)

    async def jobtap(self, msg: Message) -> Any:
        """`jobtap {query_only}`: {plugins}, or `jobtap {remove?, load?, conf?}`, in this order. Raises RpcError."""
        body = msg.obj or {}
        if body.get("query_only"):
            return {"plugins": list(self._paths)}
        if body.get("remove") is not None:
            self._remove(body["remove"])
        if body.get("load") is not None:
            self._load(body["load"], body.get("conf"), self.ctx.config)
            await self._reprioritize()
        return EMPTY

    def _load(self, path: str, conf: Any, config: dict[str, Any]) -> None:
        name = path.rpartition("/")[2]
        if name in self._paths:
            raise RpcError(errno.EEXIST, f"{name} already loaded")
        if conf is not None and not isinstance(conf, dict):
            raise RpcError(errno.EINVAL, f"{name}: the configuration of a plugin must be an object")
        if name == _MULTI_FACTOR:
            self._use(self._multi_factor((conf or {}).get("config"), config))
        elif path != DEFAULT.name:
            raise RpcError(errno.EINVAL, f"{path}: only built-in plugins can be loaded")
        self._paths[name] = path if name != DEFAULT.name else _BUILTIN
        # The service accounting fills a policy that was loaded.
        self.ctx.publish("jobtap-load", {"name": name}, private=True)

    def _multi_factor(self, data: Any, config: dict[str, Any]) -> MultiFactorPolicy:
        """The multi-factor policy with the tables `data`. Raises RpcError(EINVAL)."""
        # Most instances have no accounting; their start does not import it.
        from headrace.engine.modules.job_manager.mf_priority import MultiFactorPolicy
        from headrace.sched.accounting.multifactor import MultiFactor

        table = config.get("accounting", {})
        limits = table.get("limits", _ALWAYS)
        if limits not in (_ALWAYS, _AT_SUBMIT):
            raise RpcError(errno.EINVAL, f"accounting.limits: must be {_ALWAYS} or {_AT_SUBMIT}, not {limits!r}")
        at_submit = limits == _AT_SUBMIT
        factors = MultiFactor(self.ctx.owner, strict=bool(table.get("strict")), at_submit=at_submit)
        if data is not None:
            try:
                factors.load(data)
            except ValueError as exc:
                raise RpcError(errno.EINVAL, f"{_MULTI_FACTOR}: {exc}") from None
        self._multi = MultiFactorPolicy(factors, has_limits=not at_submit)
        return self._multi

    def _remove(self, pattern: str) -> None:
        names = [name for name in self._paths if _matches(pattern, name)]
        if not names and pattern != "all":
            raise RpcError(errno.ENOENT, "Failed to find plugin to remove")
        for name in names:
            del self._paths[name]
            if name == _MULTI_FACTOR:
                self._use(DEFAULT)

    def _use(self, policy: JobPolicy) -> None:
        if policy is not self.core.policy:
            self.core.now = self.ctx.now()
            self.core.steps.replace(policy)
            self.touch()

    # -- queries

    def query(self, msg: Message) -> dict[str, Any]:
        """`jobtap-query {name}`: {name, path} and the state of the plugin. Raises RpcError(EINVAL)."""
        name = msg.obj["name"]
        if name not in self._paths:
            raise RpcError(errno.EINVAL, f"{name}: plugin not found")
        state = self.core.policy.query() if name == _MULTI_FACTOR else {}
        return {"name": name, "path": self._paths[name], **state}

    # -- the services of mf_priority

    def services(self) -> dict[str, Callable[[Message], Any]]:
        """The methods of the policies, by their names within the service of the job manager."""
        methods = {f"{_POLICY}.{name}": self._updater(name) for name in _UPDATES}
        return {**methods, f"{_POLICY}.reprioritize": self.reprioritize}

    def _updater(self, name: str) -> Callable[[Message], Any]:
        """The handler of `NAME {data}`, which changes tables of the policy. Raises RpcError(EINVAL, ENOSYS, EPROTO).

        Errors are also logged: the programs that send tables run unattended. Scripts match the texts.
        """

        def handle(msg: Message) -> Any:
            factors = self._factors(name)
            try:
                data = msg.obj["data"]
            except (KeyError, TypeError, MessageError):
                self.ctx.log(logging.ERROR, "failed to unpack custom_priority.trigger msg: Protocol error")
                raise RpcError(errno.EPROTO, f"{msg.topic}: data: missing") from None
            try:
                getattr(factors, name)(data)
            except ValueError as exc:
                self.ctx.log(logging.ERROR, f"{_POLICY} unpack: {exc}")
                raise RpcError(errno.EINVAL, str(exc)) from None
            return EMPTY

        return handle

    def _factors(self, method: str) -> MultiFactor:
        if self._multi is None or self.core.policy is not self._multi:
            raise RpcError(errno.ENOSYS, f"Unknown service method '{method}'")
        return self._multi.factors

    async def reprioritize(self, _msg: Message) -> Any:
        """`reprioritize`: release the jobs for which there is room now, and compute all priorities anew."""
        factors = self._factors("reprioritize")
        self.core.now = self.ctx.now()
        self.core.steps.release(factors.reprioritize())
        self.touch()
        await self._reprioritize()
        return EMPTY

    async def _reprioritize(self) -> None:
        """Compute the priorities of all pending jobs, in slices. Returns when they are those of the present tables."""
        self._asked += 1
        mine = self._asked
        async with self._pass:
            if self._begun >= mine:
                # A pass that began after this request is complete.
                return
            self._begun = self._asked
            core = self.core
            core.allocations.collect_priorities()
            try:
                await self._slices(await self._by_account())
            finally:
                core.allocations.send_priorities()
                self.touch()
            await self._durable()

    async def _by_account(self) -> list[int]:
        """All pending jobs, account by account, and within an account the oldest last.

        Jobs of an account have equal priorities, so consecutive ones share the objects of their events.
        """
        core = self.core
        found: dict[Hashable, list[int]] = {}
        jobs = [job for job in core.active.values() if job.state & (PRIORITY | SCHED)]
        while jobs:
            for job in jobs[: -_SORTED - 1 : -1]:
                if job.id in core.active:
                    found.setdefault(core.policy.account(job), []).append(job.id)
            del jobs[-_SORTED:]
            await asyncio.sleep(0)
        return [id for ids in found.values() for id in ids]

    async def _slices(self, ids: list[int]) -> None:
        """Compute the priorities of jobs, from the last one on."""
        core, most = self.core, _FEWEST
        while ids:
            core.now = self.ctx.now()
            begun, before = self.ctx.thread_time(), len(core.dirty)
            used = 0.0
            while ids and len(core.dirty) - before < most and used < _SLICE:
                for id in ids[: -_STRIDE - 1 : -1]:
                    job = core.active.get(id)
                    if job is not None:
                        core.steps.reprioritize(job)
                del ids[-_STRIDE:]
                used = self.ctx.thread_time() - begun
            changed = len(core.dirty) - before
            await (self._durable() if core.dirty else asyncio.sleep(0))
            if changed > 0:
                each = (self.ctx.thread_time() - begun) / changed
                most = max(_FEWEST, int(_SLICE / each))

    async def _durable(self) -> None:
        """Wait until the changes so far are durable and watchers have them.

        Otherwise a slow disk would collect the events of many slices, and release them in one turn of the loop.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.core.effects.append(Durable(done))
        self.touch()
        await done


def _matches(pattern: str, name: str) -> bool:
    """True if `pattern` selects a plugin: its name, a glob, or `all`. Built-in plugins need a leading dot."""
    if pattern == "all":
        return name[:1] != "."
    return name == pattern or (fnmatchcase(name, pattern) and (name[:1] != "." or pattern[:1] == "."))
