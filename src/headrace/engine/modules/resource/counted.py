"""Nodes as counted by their brokers: they define R, or are verified against it. A part of the leader.

The table `resource.verify` configures how a node may differ from R. flux-config-resource(5) describes the modes of each
type and their defaults.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.resource import resize, source
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.rset import ResourceSet, RsetError

# Sources of R that are not verified against the nodes: another instance, or a file that a user loaded.
_UNCHECKED = ("job-info", "resource-reload")
# Seconds to wait for reports of further nodes once the quorum is reached. After that, their resources are assumed.
_LATE = 1.0


class Leader(resize.Leader, Protocol):
    """The parts of the service of rank 0 (`leader.Leader`) that this file uses."""

    # The arguments of the module, and the table `resource` of the configuration.
    args: list[str]
    table: dict[str, Any]
    # The method by which an earlier load of the module defined the R in the KVS.
    origin: str

    def define(self, rset: ResourceSet, method: str) -> None: ...


class CountedNodes:
    """Handles `resource.gather`."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._ctx = leader.ctx
        # True once the timer for nodes beyond the quorum has been started.
        self._hurried = False

    def gather(self, msg: Message) -> Any:
        self.add(msg.obj["nodes"])
        return EMPTY

    def add(self, nodes: list[source.Found]) -> None:
        """Add the counts of nodes: define R once all nodes have reported, or verify them against R."""
        leader, inventory = self._leader, self._leader.inventory
        ours = leader.method in ("configuration", "kvs") and leader.origin not in _UNCHECKED
        asked = leader.method == "job-info" and "verify" in leader.table
        recovers = self._ctx.attrs.get("broker.recovery-mode", "0") == "1"
        excused = leader.table.get("noverify", "noverify" in leader.args) or recovers
        verified = (ours or asked) and not excused
        counted = []
        for found in nodes:
            self._leader.found[found[0]] = found
            if self._leader.method == "dynamic-discovery" or inventory.assumed >> found[0] & 1:
                counted.append(found)
            elif verified:
                self._verify(found)
        if counted:
            resize.reshape(leader, counted)
            inventory.assumed &= ~sum(1 << found[0] for found in counted)
            self._leader.changed()
        if not self._leader.method and len(self._leader.found) == self._ctx.size:
            self._discovered(list(self._leader.found.values()))
        elif self._hurried:
            # Brokers of the quorum may be online before their counts arrive.
            self.at_quorum(self._leader.inventory.online)

    def _discovered(self, nodes: list[source.Found]) -> None:
        try:
            self._leader.define(source.gathered(nodes, self._leader.inventory.hosts.names), "dynamic-discovery")
        except RsetError as exc:
            self._ctx.log(logging.ERROR, f"discovered resources are inconsistent: {exc}")

    def at_quorum(self, online: int) -> None:
        """With a `broker.quorum` below the size, define R without waiting for brokers that may never start."""
        need = int(self._ctx.attrs.get("broker.quorum"))
        if self._leader.method or not online.bit_count() >= need < self._ctx.size:
            return
        if not self._expects_late_nodes() and not online & ~Idset(self._leader.found).bits:
            self._assume_missing()
        elif not self._hurried:
            self._hurried = True
            self._ctx.call_later(_LATE, self._assume_missing)

    def _expects_late_nodes(self) -> bool:
        """True if brokers beyond the quorum are expected to start at about the same time, as in one launch.

        False in a MiniCluster, where pods beyond the initial size do not exist yet.
        """
        table = self._ctx.config.get("headrace", {})
        return not isinstance(table, dict) or table.get("expects-late-nodes") is not False

    def _assume_missing(self) -> None:
        """Define R, including nodes that have not reported.

        Such a node is assumed to have the most frequent resources of the others until it is counted.
        """
        if self._leader.method:
            return
        assumed = Idset(range(self._ctx.size)) - Idset(self._leader.found)
        self._leader.inventory.assumed |= assumed.bits
        likely = source.like_most(self._leader.found.values(), assumed)
        self._ctx.log(logging.INFO, f"rank {assumed} has not reported yet: assumed to be like the others")
        self._discovered([*self._leader.found.values(), *likely])

    def _verify(self, found: source.Found) -> None:
        rset = self._leader.inventory.rset
        if rset is not None and found[0] not in rset.ranks:
            self._ctx.log(logging.WARNING, f"rank {found[0]} ({found[1]}) not found in expected ranks: it gets no jobs")
            return
        reason = mismatch(rset, found, modes_of(self._leader.table)) if rset is not None else ""
        if reason:
            self._ctx.log(logging.ERROR, f"draining: rank {found[0]} ({found[1]}) {reason}")
            self._leader.record(self._leader.inventory.drain(1 << found[0], reason, "update", self._ctx.now()))


STRICT, ALLOW_EXTRA, ALLOW_MISSING, IGNORE = MODES = ("strict", "allow-extra", "allow-missing", "ignore")
_TYPES = ("hostname", "core", "gpu")
_COUNTED = (("core", 2), ("gpu", 3))

Modes = dict[str, str]


def modes_of(table: dict[str, Any]) -> Modes:
    """The mode of each type, from the table `resource`. Raises RpcError(EINVAL) that names the field."""
    verify = table.get("verify")
    if verify is None:
        # By default, nodes may have more cores than configured. GPUs are ignored, as discovery may not find them.
        return {"hostname": STRICT, "core": ALLOW_EXTRA, "gpu": IGNORE}
    if isinstance(verify, bool):
        return dict.fromkeys(_TYPES, STRICT if verify else IGNORE)
    if not isinstance(verify, dict):
        raise RpcError(errno.EINVAL, "resource.verify: must be true, false or a table")
    for key, mode in verify.items():
        if key not in ("default", *_TYPES):
            raise RpcError(
                errno.EINVAL, f"resource.verify: unknown key {key!r}; known are default, {', '.join(_TYPES)}"
            )
        if mode not in MODES:
            raise RpcError(errno.EINVAL, f"resource.verify.{key}: must be one of {', '.join(MODES)}, not {mode!r}")
    default: str = verify.get("default", STRICT)
    return {kind: str(verify.get(kind, default)) for kind in _TYPES}


def mismatch(rset: ResourceSet, found: list[Any], modes: Modes) -> str:
    """The first difference between a counted node and its rank in R that `modes` forbid; "" if none.

    `found` is rank, host, cores and GPUs. The host name may be the first component of the name in R.
    """
    rank, host = found[0], found[1]
    expected = rset.host(rank)
    if modes["hostname"] == STRICT and expected and host not in (expected, expected.partition(".")[0]):
        return f"got hostname '{host}', expected '{expected}'"
    pairs = [(kind, rset.ids(rank, kind), Idset.parse(found[place])) for kind, place in _COUNTED]
    missing = _text((kind, ours - counted) for kind, ours, counted in pairs if modes[kind] in (STRICT, ALLOW_EXTRA))
    if missing:
        return f"missing resources: {missing}"
    extra = _text((kind, counted - ours) for kind, ours, counted in pairs if modes[kind] in (STRICT, ALLOW_MISSING))
    return f"has extra resources: {extra}" if extra else ""


def _text(differences: Iterable[tuple[str, Idset]]) -> str:
    return ",".join(f"{kind}[{ids}]" for kind, ids in differences if ids)
