"""The config service: the configuration of the instance, changed on the leader.

All followers apply each change.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.formats.config import files as configuration
from headrace.formats.spec.message import ROLE_OWNER, Message, MessageError
from headrace.formats.spec.requests import broker as forms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.broker.module.process import ModuleProcess
    from headrace.engine.broker.parts import BrokerBase

# Tables that place a broker in the instance: they may differ between brokers, and each broker keeps its own.
_PLACING = ("bootstrap",)


def register(broker: BrokerBase, ctx: ModuleContext, modules: Mapping[str, ModuleContext | ModuleProcess]) -> None:
    """Register `config.get`, `warnings`, `reload` and `load`.

    A follower applies `config.update` events. When it joins, it applies its parent's configuration with
    `broker.follow_config`.
    """
    service = _Config(broker, ctx, modules)
    service.log_warnings(broker.config)
    # config.get responds with the object itself (recorded from Flux), so an empty configuration is `{}`.
    methods = {
        "get": lambda _msg: broker.config,
        "warnings": lambda _msg: {"lines": service.warnings(broker.config, known_only=True)},
        "reload": service.reload,
        "load": service.load,
    }
    ctx.service("config", methods, open=("get", "warnings"), requests=forms.CONFIG)
    broker.follow_config = service.follow
    if broker.rank != 0:
        broker.events.take_at_once("config.update", service.updated)


class _Config:
    def __init__(
        self, broker: BrokerBase, ctx: ModuleContext, modules: Mapping[str, ModuleContext | ModuleProcess]
    ) -> None:
        self._broker = broker
        self._modules = modules
        self._ctx = ctx
        # Warnings that were logged already, so that a change of a single key does not repeat them.
        self._logged: list[str] = []
        self._changing = asyncio.Lock()

    async def reload(self, _msg: Message) -> Empty:
        self._check_leader()
        path = self._broker.config_path
        if not path:
            raise RpcError(errno.EINVAL, "no configuration path was given when the broker was started")
        try:
            new = configuration.load(path)
        except configuration.ConfigError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        return await self._take(new, path)

    async def load(self, msg: Message) -> Empty:
        self._check_leader()
        if msg.obj is None:
            # A missing body is an error: an empty configuration is an empty object.
            raise RpcError(errno.EPROTO, "config.load: a configuration is needed")
        return await self._take(msg.obj)

    def updated(self, msg: Message) -> None:
        """Apply the leader's `config.update`, which has the whole configuration."""
        with contextlib.suppress(MessageError):
            if msg.rolemask & ROLE_OWNER and isinstance(msg.obj, dict):
                self._broker.leaders_config = msg.obj
                self._broker.spawn(self.follow(msg.obj))

    def warnings(self, config: dict[str, Any], known_only: bool = False) -> list[str]:
        """Lines about keys of `config` that have no effect.

        With `known_only`, tables without a similar known table are skipped.
        """
        if not config:
            return []
        # Imported here, so that brokers without a configuration do not keep the tables in memory.
        from headrace.formats.config.keys import warnings

        return warnings(config, self._broker.config_path, known_only)

    def log_warnings(self, config: dict[str, Any]) -> None:
        if self._broker.rank == 0:
            lines = self.warnings(config)
            for line in lines:
                if line not in self._logged:
                    self._broker.log(logging.WARNING, "config", line)
            self._logged = lines

    def _check_leader(self) -> None:
        if self._broker.rank != 0:
            raise RpcError(errno.EINVAL, "change the configuration on the leader, rank 0, which informs the others")

    async def follow(self, new: dict[str, Any]) -> None:
        """Apply the leader's configuration, except for the tables that place this broker."""
        config = self._broker.config
        own = {name: config[name] for name in _PLACING if name in config}
        try:
            await self._take({**new, **own})
        except RpcError as exc:
            self._broker.log(logging.ERROR, "config", f"cannot apply the leader's configuration: {exc}")

    async def _take(self, new: dict[str, Any], path: str = "") -> Empty:
        """Configure the broker and all modules with `new`, read from `path`.

        Raises RpcError on failure, after restoring the old configuration. Changes are applied one at a time, in the
        order of their requests: reverting a change would also revert another that was made in the meantime.
        """
        async with self._changing:
            _check(new, path, self._broker.owner)
            await self._reconfigure_modules(new)
            self._broker.log(logging.INFO, "config", "configuration was reloaded")
            self.log_warnings(new)
            if self._broker.rank == 0:
                # Followers apply the new configuration from this event, which is sent before the request is answered.
                # Brokers that join later get it in the response to their hello.
                self._broker.leaders_config = new
                self._ctx.publish("config.update", new)
        return EMPTY

    async def _reconfigure_modules(self, new: dict[str, Any]) -> None:
        """Apply the new configuration in every module. If one refuses it, all return to the old one."""
        broker = self._broker
        old, reconfigured = broker.config, []
        broker.config = new
        for name, module in list(self._modules.items()):
            try:
                reconfigured.append(module)
                await module.reconfigure(new)
            except RpcError as exc:
                broker.config = old
                for other in reconfigured:
                    with contextlib.suppress(RpcError):
                        await other.reconfigure(old)
                raise RpcError(exc.errnum, f"error updating {name}: {exc}") from None


def _check(new: dict[str, Any], path: str, owner: int) -> None:
    from headrace.formats.config.keys import RefusedTable, check

    try:
        check(new, path, owner)
    except RefusedTable as exc:
        raise RpcError(errno.EINVAL, f"error updating {exc.module}: {exc}") from None
    except configuration.ConfigError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
