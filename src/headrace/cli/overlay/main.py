"""`flux overlay`: the tree of brokers; its health has a file of its own (`status`)."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.cli.overlay.ranks import ranks_of
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

PREFIX = "flux-overlay: "

_TABLE = {
    "status": ("Show the tree of brokers and which of them are well", None),
    "errors": ("Print which brokers are lost and why", None),
    "lookup": ("Print the host of a rank, or the rank of a host", None),
    "parentof": ("Print the rank that this one is connected to", None),
    "disconnect": ("Cut off a broker, with all below it", None),
    "grow": ("Let further hosts join the instance", None),
}
_ERRORS = Command(
    "flux overlay errors",
    "[OPTIONS]",
    "Print which brokers are lost and why",
    (("t", "timeout", "FSD", "Wait so long for each broker's answer (default: 0.5s, 0: for ever)"),),
)
_LOOKUP = Command("flux overlay lookup", "TARGET", "Print the host of a rank, or the rank of a host")
_PARENTOF = Command("flux overlay parentof", "RANK", "Print the rank that this one is connected to")
_DISCONNECT = Command(
    "flux overlay disconnect",
    "[OPTIONS] TARGET",
    "Cut off the broker of a rank or host, with all below it",
    (("r", "parent", "NODEID", "The rank that it is connected to (default: found in the tree)"),),
)
_GROW = Command(
    "flux overlay grow", "HOSTS", "Let further hosts join the instance; their brokers are started after this"
)


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-overlay", argv, _TABLE)
    if name in ("status", "errors"):
        from headrace.cli.overlay import status

        return status.status(rest) if name == "status" else status.errors(_ERRORS.parse(rest))
    actions: Dict[str, Callable[[List[str]], int]] = {
        "lookup": _lookup,
        "parentof": _parentof,
        "disconnect": _disconnect,
        "grow": _grow,
    }
    return actions[name](rest)


def _hosts(handle: Handle) -> List[str]:
    return list(Hostlist.parse(handle.attr_get("hostlist")))


def _lookup(argv: List[str]) -> int:
    (target,) = _LOOKUP.parse(argv).need(1, 1)
    hosts = _hosts(Handle())
    ranks = ranks_of(hosts, target)
    try:
        Idset.parse(target)
    except ValueError:
        print(ranks)
    else:
        print(Hostlist([hosts[rank] for rank in ranks]))
    return 0


def _rank(hosts: List[str], target: str) -> int:
    try:
        (rank,) = ranks_of(hosts, target)
    except (CommandError, ValueError):
        if target.isdigit():
            raise CommandError(f"{target} is not a valid rank in this instance") from None
        raise CommandError(f"TARGET must be a valid rank or hostname, not '{target}'") from None
    return rank


def _parent_of(handle: Handle, rank: int) -> int:
    """The rank of a broker's parent, -1 for the root."""
    todo = [(handle.rpc("overlay.topology", {"rank": 0}, 0).get(), -1)]
    while todo:
        entry, parent = todo.pop()
        if entry["rank"] == rank:
            return int(parent)
        todo += [(child, entry["rank"]) for child in entry["children"]]
    raise CommandError(f"{rank}: no such rank")


def _parentof(argv: List[str]) -> int:
    (target,) = _PARENTOF.parse(argv).need(1, 1)
    handle = Handle()
    parent = _parent_of(handle, _rank(_hosts(handle), target))
    if parent < 0:
        raise CommandError(f"{target} has no parent")
    print(parent)
    return 0


def _disconnect(argv: List[str]) -> int:
    options = _DISCONNECT.parse(argv)
    (target,) = options.need(1, 1)
    handle = Handle()
    hosts = _hosts(handle)
    rank = _rank(hosts, target)
    parent = _rank(hosts, options.get("parent")) if options.has("parent") else _parent_of(handle, rank)
    if parent < 0:
        raise CommandError(f"{target} has no parent")
    sys.stderr.write(
        f"flux-overlay: asking {hosts[parent]} (rank {parent}) to disconnect child {hosts[rank]} (rank {rank})\n"
    )
    handle.rpc("overlay.disconnect-subtree", {"rank": rank}, parent).get()
    return 0


def _grow(argv: List[str]) -> int:
    (hosts,) = _GROW.parse(argv).need(1, 1)
    answer = Handle().rpc("overlay.grow", {"hosts": hosts}, 0).get()
    print(f"{hosts}: rank {answer['ranks']} of {answer['size']}")
    return 0
