"""The attributes that a broker sets itself at startup: rank, size, place in the tree, quorum."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from headrace import FLUX_VERSION
from headrace.engine.broker.state import machine
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset

if TYPE_CHECKING:
    from .parts import BrokerBase


def set_own(broker: BrokerBase) -> None:
    """Complete the attributes of `broker`. Raises ValueError for an invalid quorum."""
    attrs, boot = broker.attrs, broker.boot
    rundir = attrs.get("rundir")
    for name, value in boot.attrs.items():
        attrs.set(name, value)
    attrs.set("rank", broker.rank)
    attrs.set("version", FLUX_VERSION)
    given = attrs.get("hostlist")
    if given:
        stated = list(Hostlist.parse(given))
        if len(stated) == broker.size:
            # Host names from the brokers' command line: resources use these names.
            boot.hosts, boot.hostlist, boot.hostname = stated, "", stated[broker.rank]
    attrs.set("hostname", boot.hostname)
    attrs.set("security.owner", broker.owner)
    attrs.set("broker.pid", os.getpid())
    attrs.set("broker.uuid", broker.uuid)
    if "broker.boot-method" not in boot.attrs:
        attrs.set("broker.boot-method", boot.method)
    attrs.set("broker.starttime", f"{time.time():.2f}")
    attrs.set("tbon.level", boot.topology.level(broker.rank))
    attrs.set("tbon.topo", boot.topology.uri)
    if "broker.mapping" not in attrs:
        attrs.set("broker.mapping", f"[[0,1,{broker.size},1]]" if len(set(boot.hosts)) == 1 else "")
    for name, value in (("instance-level", "0"), ("jobid-path", "/")):
        if name not in attrs:
            attrs.set(name, value)
    if "local-uri" not in attrs:
        attrs.set("local-uri", f"local://{rundir}/local-{broker.rank}")
    given = attrs.get("broker.quorum")
    quorum = machine.quorum_size(given, broker.size)
    broker.log.rank = broker.rank
    if given and given != str(quorum) and broker.rank == 0:
        broker.log(logging.ERROR, "broker", f"broker.quorum is a number of brokers - assuming {quorum}")
    attrs.set("broker.quorum", quorum)
    critical = attrs.get("broker.critical-ranks")
    if critical:
        _check_critical_ranks(critical, broker.size)
        broker.critical_ranks = Idset.parse(critical)
    set_size(broker)


def set_size(broker: BrokerBase) -> None:
    """Set the attributes that depend on the tree, which may grow."""
    attrs, boot = broker.attrs, broker.boot
    attrs.set("size", broker.size)
    if boot.hosts:
        attrs.set("hostlist", boot.hostlist or str(Hostlist(boot.hosts)))
    attrs.set("tbon.maxlevel", boot.topology.max_level)
    attrs.set("tbon.descendants", len(boot.topology.subtree(broker.rank)) - 1)
    if not broker.critical_ranks:
        # An enclosing instance treats these ranks as critical: their loss cuts off other ranks. This instance itself
        # continues, and the ranks may rejoin.
        attrs.set("broker.critical-ranks", str(Idset(boot.topology.routers)))


def _check_critical_ranks(text: str, size: int) -> None:
    """Raise ValueError unless the text is a set of ranks in the instance."""
    try:
        ranks = Idset.parse(text)
    except ValueError as exc:
        raise ValueError(f"Error parsing broker.critical-ranks attribute: {exc}") from None
    beyond = ranks - Idset(range(size))
    if beyond:
        raise ValueError(
            f"Error parsing broker.critical-ranks attribute: there is no rank {beyond}, the size is {size}"
        )
