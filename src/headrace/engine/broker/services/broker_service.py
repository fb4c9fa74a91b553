"""The built-in services: attr, config, event, log, service, state-machine, shutdown, overlay."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.engine.broker.services import config, dmesg, drain, growth
from headrace.engine.broker.state import machine
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests import broker as forms

if TYPE_CHECKING:
    from headrace.engine.broker.local import LocalServer
    from headrace.engine.broker.module.host import ModuleHost
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon.child import Child
    from headrace.engine.broker.tbon.overlay import Overlay


def register(broker: BrokerBase, modules: ModuleHost, overlay: Overlay, local: LocalServer) -> ModuleContext:
    """Register the built-in services of `broker`.

    Returns the context with which the broker calls services.
    """
    ctx = modules.builtin("broker")
    modules.register(ctx)
    _attrs(broker, ctx)
    dmesg.register(broker, ctx)
    _states(broker, ctx)
    _services(broker, ctx)
    ctx.service(
        "event",
        {
            "publish": broker.events.handle_publish,
            "subscribe": broker.events.handle_subscribe,
            "unsubscribe": broker.events.handle_subscribe,
        },
        open=("publish", "subscribe", "unsubscribe"),
        requests=forms.EVENT,
    )

    def heartbeat_lost(_msg: Message) -> Empty:
        broker.leave_lost("no heartbeat")
        return EMPTY

    methods = {"getenv": _getenv, "setenv": _setenv, "heartbeat-lost": heartbeat_lost}
    ctx.service("broker", {**methods, "disconnect": lambda _msg: EMPTY}, requests=forms.BROKER)
    ctx.on_stats(lambda: {"loop": broker.router.stats(), "clients": len(local.clients)})
    config.register(broker, modules.builtin("config"), modules.loaded)
    _overlay(broker, overlay, modules.builtin("overlay"))
    _connector(broker, local, modules.builtin("connector-local"))
    return ctx


def _connector(broker: BrokerBase, local: LocalServer, ctx: ModuleContext) -> None:
    ctx.service("connector-local", {})
    local.connector = ctx
    _access(ctx)
    broker.budget.configure(ctx.config)
    ctx.on_config(broker.budget.configure)
    ctx.on_stats(local.stats)
    ctx.on_stats(lambda: {"guests": broker.budget.stats()})
    ctx.on_stats_clear(local.clear_stats)


def _access(connector: ModuleContext) -> None:
    """Log which users may connect, now and after each change (`LocalServer.role_of`)."""
    logged: list[str] = []

    def log_access(config: dict[str, Any]) -> None:
        access = config.get("access", {})
        lines = [f"{key}={str(access.get(key) is True).lower()}" for key in ("allow-guest-user", "allow-root-owner")]
        if lines != logged:
            for line in lines:
                connector.log(logging.DEBUG, line)
            logged[:] = lines

    connector.on_config(log_access)
    # Logged from the loop, so that the broker's own first state is the first line in the log.
    connector.call_soon(log_access, connector.config)


def _attrs(broker: BrokerBase, ctx: ModuleContext) -> None:
    attrs = broker.attrs

    def set_(msg: Message) -> Empty:
        attrs.update(msg.obj["name"], msg.obj["value"], msg.obj.get("force", False))
        return EMPTY

    def remove(msg: Message) -> Empty:
        attrs.remove(msg.obj["name"])
        return EMPTY

    ctx.service(
        "attr",
        {
            "get": lambda msg: attrs.lookup(msg.obj["name"]),
            "set": set_,
            "rm": remove,
            "list": lambda _msg: {"names": attrs.names()},
        },
        open=("get", "list"),
        requests=forms.ATTR,
    )


def _states(broker: BrokerBase, ctx: ModuleContext) -> None:
    def wait(msg: Message) -> dict[str, Any] | None:
        if broker.state == "run":
            return {}
        if broker.past("run"):
            raise RpcError(errno.ENODEV, f"broker is in state {broker.state} and will not run again")
        broker.run_waiters.append(msg)
        return None

    def monitor(msg: Message) -> None:
        if msg.streaming:
            ctx.streams("monitor").add(msg)
        ctx.respond(msg, {"state": machine.STATES.index(broker.state)})

    def shutdown(msg: Message) -> None:
        if broker.rank != 0:
            raise RpcError(errno.EINVAL, "shutdown: only rank 0 can shut an instance down")
        if broker.stopping:
            raise RpcError(errno.EINVAL, f"shutdown: already in state {broker.state}")
        if msg.streaming:
            broker.shutdown_watchers.append(msg)
        broker.begin_shutdown()
        if not msg.streaming:
            ctx.respond(msg)

    ctx.service(
        "state-machine",
        {
            "get": lambda _msg: {"state": broker.state, "duration": ctx.monotonic() - broker.state_since},
            "wait": wait,
            "monitor": monitor,
        },
        open=("get", "wait", "monitor"),
        requests=forms.STATE_MACHINE,
    )
    ctx.service("shutdown", {"start": shutdown}, requests=forms.SHUTDOWN)


def _services(broker: BrokerBase, ctx: ModuleContext) -> None:
    """Register service.add and service.remove.

    With them, a client or a module in a process provides a service.
    """

    def add(msg: Message) -> Empty:
        name = msg.obj["service"]
        peer = broker.router.local_peer(msg)
        if peer is None or not name:
            raise RpcError(errno.EPROTO, "service.add: only clients and modules of this broker can provide a service")
        if "." in name:
            raise RpcError(errno.EINVAL, f"service.add: '{name}' must not contain a dot, which separates the method")
        if name in broker.router.services:
            raise RpcError(errno.EEXIST, f"service {name} is already registered")
        broker.router.services[name] = peer
        return EMPTY

    def remove(msg: Message) -> Empty:
        name = msg.obj["service"]
        peer = broker.router.local_peer(msg)
        if peer is None or broker.router.services.get(name) is not peer:
            raise RpcError(errno.ENOENT)
        del broker.router.services[name]
        return EMPTY

    ctx.service("service", {"add": add, "remove": remove}, requests=forms.SERVICE)


def _getenv(msg: Message) -> dict[str, Any]:
    return {"env": {name: os.environ[name] for name in msg.obj["names"] if name in os.environ}}


def _setenv(msg: Message) -> Empty:
    """Handle `broker.setenv {env: {name: value or null}}`: set all variables, or none if one is invalid."""
    env = msg.obj["env"]
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise RpcError(errno.EPROTO, f"broker.setenv: '{name}' cannot be the name of a variable")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise RpcError(errno.EPROTO, f"broker.setenv: {name} must be a string without NUL, or null")
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return EMPTY


def _overlay(broker: BrokerBase, overlay: Overlay, ctx: ModuleContext) -> None:
    def topology(msg: Message) -> dict[str, Any]:
        rank = msg.obj["rank"]
        if rank not in overlay.topology.subtree(broker.rank):
            raise RpcError(errno.ENOENT, "requested rank is not this broker or its descendant")
        return overlay.shape(rank)

    def disconnect(msg: Message) -> Empty:
        rank = msg.obj["rank"]
        if not overlay.disconnect(rank):
            raise RpcError(errno.ENOENT, f"rank {rank} is not a connected child of rank {broker.rank}")
        return EMPTY

    watchers = ctx.streams("monitor")

    def report(child: Child) -> None:
        if len(watchers):
            watchers.send(child.monitored())

    overlay.on_child_changed = report
    for child in overlay.children.values():
        child.changed = report

    def monitor(msg: Message) -> None:
        """Stream all present and former children, then every change of a child: `{rank, status, torpid}`."""
        watchers.add(msg)
        for child in overlay.children.values():
            if child.status != "offline" or child.torpid:
                ctx.respond(msg, child.monitored())

    ctx.on_stats(overlay.stats)
    ctx.service(
        "overlay",
        {
            "health": lambda _msg: overlay.health(),
            "topology": topology,
            "disconnect-subtree": disconnect,
            "drained": drain.handler(broker, overlay, ctx),
            "monitor": monitor,
            "grow": growth.handler(broker, overlay, ctx),
        },
        open=("health", "topology"),
        requests=forms.OVERLAY,
    )
