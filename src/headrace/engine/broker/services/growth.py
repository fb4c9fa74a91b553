"""Hosts that are added to an instance while it runs.

`overlay.grow` is sent to the leader before the brokers of these hosts start. Running brokers learn of the hosts from an
event, and a broker that joins later with a shorter list of hosts from the response to its hello. Ranks are never
reassigned to other hosts, so stored ranks stay valid.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.own_attrs import set_size
from headrace.formats.spec import message as m
from headrace.formats.spec.hostlist import Hostlist, HostlistError
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.topology import TopologyError

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon.overlay import Overlay

_TOPIC = "overlay.grow"


def handler(broker: BrokerBase, overlay: Overlay, ctx: ModuleContext) -> Callable[[Message], dict[str, Any]]:
    """The method `overlay.grow {hosts}` of the leader: responds with the size and the ranks of `hosts`.

    Known hosts keep their rank.
    """

    def answer(msg: Message) -> dict[str, Any]:
        if broker.rank:
            raise RpcError(errno.EINVAL, "overlay.grow: add hosts on the leader, rank 0, which informs the others")
        if not broker.may_grow:
            text = "hosts can be added only if the brokers boot from a [bootstrap] table with curve_cert"
            raise RpcError(errno.EINVAL, f"overlay.grow: {text}")
        try:
            names = list(dict.fromkeys(Hostlist.parse(msg.obj["hosts"])))
        except HostlistError as exc:
            raise RpcError(errno.EINVAL, f"overlay.grow: hosts: {exc}") from None
        if not names:
            raise RpcError(errno.EINVAL, "overlay.grow: hosts: name at least one host")
        known = set(broker.boot.hosts)
        hosts = [*broker.boot.hosts, *(name for name in names if name not in known)]
        rank_of = {host: rank for rank, host in enumerate(hosts)}
        ranks = Idset(rank_of[name] for name in names)
        if len(hosts) > broker.size:
            _extend(broker, overlay, hosts)
            ctx.publish(_TOPIC, {"hosts": str(Hostlist(hosts))})
        for hook in list(broker.on_grown):
            hook(ranks)
        return {"size": broker.size, "ranks": str(ranks)}

    return answer


def _extend(broker: BrokerBase, overlay: Overlay, hosts: list[str]) -> None:
    """Add a rank to the tree for each of `hosts`. Raises RpcError without changes on failure."""
    # Imported here: few instances grow, and an instance of a single broker starts without zmq.
    import zmq

    boot, added = broker.boot, hosts[broker.size :]
    try:
        topology = boot.topology.grown(len(hosts))
        overlay.grow(topology)
    except TopologyError as exc:
        raise RpcError(errno.EINVAL, f"overlay.grow: {exc}") from None
    except zmq.ZMQError as exc:
        where = boot.bind or "bootstrap.default_bind, which is not set"
        raise RpcError(exc.errno or errno.EIO, f"overlay.grow: cannot listen at {where}: {exc.strerror}") from None
    boot.topology, boot.hosts, boot.hostlist = topology, hosts, ""
    boot.size = broker.size = len(hosts)
    broker.attrs.set("broker.mapping", "")
    set_size(broker)
    broker.log(logging.INFO, "overlay", f"the instance has {len(hosts)} hosts, {Hostlist(added)} may join")


def follow(broker: BrokerBase, overlay: Overlay, hosts: list[str]) -> None:
    """Apply the leader's list of hosts in a broker with a shorter list."""
    size = broker.size
    if not broker.may_grow or len(hosts) <= size:
        return
    if hosts[:size] != broker.boot.hosts:
        text = f"the leader's hosts of ranks 0 to {size - 1} differ from bootstrap.hosts: its added hosts are ignored"
        broker.log(logging.ERROR, "overlay", text)
        return
    try:
        _extend(broker, overlay, hosts)
    except RpcError as exc:
        broker.log(logging.ERROR, "overlay", str(exc))
        return
    for hook in list(broker.on_grown):
        hook(Idset(range(size, len(hosts))))


def follower(broker: BrokerBase, overlay: Overlay) -> Callable[[Message], None]:
    """A handler for the leader's events about added hosts."""

    def take(msg: Message) -> None:
        with contextlib.suppress(m.MessageError, HostlistError):
            if msg.rolemask & m.ROLE_OWNER:
                follow(broker, overlay, list(Hostlist.parse((msg.obj or {})["hosts"])))

    return take
