"""The allocator of sched-simple: which cores of which nodes a request gets. Pure: no messages, no clock.

Nodes that are up are in buckets by their number of free cores; each bucket is a bit set of ranks. The emptiest node
that satisfies a constraint is found by one AND and the lowest set bit, whatever the size of the system, and a job of
one core costs a few microseconds. Worst fit (emptiest node first, lowest rank among equals, lowest cores of a node) is
the default of flux-core's scheduler, so node lists are the same; slots without a node count may also be placed on the
fullest nodes, or on the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace.engine.modules.sched.common.r import Share, Shares, each, job_r
from headrace.formats.spec.rset import ResourceSet

ALLOC_MODES = ("worst-fit", "best-fit", "first-fit")

# The beginning of every reason.
_SHORT = "insufficient resources: "


class Request(NamedTuple):
    """The resources of a job. With `nnodes` > 0, `nslots` is the number on each node; otherwise it is the total."""

    nnodes: int
    nslots: int
    cores: int
    gpus: int
    exclusive: bool


class Unsatisfiable(ValueError):
    """The whole system is too small for the request; the text becomes the note of the job's exception."""


class Node:
    """One rank's resources: all ids and free ids, as bit sets."""

    __slots__ = ("cores", "free", "free_gpus", "gpus", "host", "up")

    def __init__(self, host: str, cores: int, gpus: int) -> None:
        self.host = host
        self.cores = self.free = cores
        self.gpus = self.free_gpus = gpus
        self.up = False


class Pool:
    """The resources of an instance and their use. Ranks start down; `set_up` makes them available.

    `mode` is one of ALLOC_MODES: on which nodes slots without a node count are placed first.
    """

    def __init__(self, rset: ResourceSet, mode: str = "worst-fit") -> None:
        self._mode = mode
        self.nodes: dict[int, Node] = {}
        # The ranks of each property.
        self.properties: dict[str, int] = {}
        self.all = self.up = 0
        # Ranks that are up, by their number of free cores.
        self._buckets = [0]
        self._kinds: dict[tuple[int, int], int] = {}
        self.add(rset)

    # -- availability

    def add(self, rset: ResourceSet) -> None:
        """Add the ranks of a set, with their properties; they start down."""
        for name, ranks in rset.properties.items():
            self.properties[name] = self.properties.get(name, 0) | ranks.bits
        for found in rset.nodes():
            node = self.nodes[found.rank] = Node(found.host, found.cores.bits, found.gpus.bits)
            kind = (node.cores.bit_count(), node.gpus.bit_count())
            self._kinds[kind] = self._kinds.get(kind, 0) | 1 << found.rank
            self.all |= 1 << found.rank
            self._buckets += [0] * (1 + kind[0] - len(self._buckets))

    def set_up(self, ranks: int) -> None:
        """Mark ranks (a bit set) up; unknown ranks are ignored."""
        for rank in each(ranks & self.all & ~self.up):
            node = self.nodes[rank]
            node.up = True
            self._buckets[node.free.bit_count()] |= 1 << rank
        self.up |= ranks & self.all

    def set_down(self, ranks: int) -> None:
        """Mark ranks down: running jobs keep their resources there, pending jobs get none."""
        for rank in each(ranks & self.up):
            node = self.nodes[rank]
            node.up = False
            self._buckets[node.free.bit_count()] &= ~(1 << rank)
        self.up &= ~ranks

    def remove(self, ranks: int) -> None:
        """Remove ranks that left the instance (RFC 28 shrink)."""
        self.set_down(ranks)
        for rank in each(ranks & self.all):
            del self.nodes[rank]
        self.all &= ~ranks
        self.properties = {name: members & ~ranks for name, members in self.properties.items()}
        self._kinds = {kind: members & self.all for kind, members in self._kinds.items() if members & self.all}

    # -- allocation

    def allocate(self, request: Request, within: int = -1) -> Shares | None:
        """Allocate resources on ranks of the bit set `within`; None if they are not free now."""
        mask = self.up & within
        chosen = self._whole_nodes(request, mask) if request.exclusive else None
        if chosen is None:
            if request.exclusive:
                return None
            chosen = self._on_nodes(request, mask) if request.nnodes else self._anywhere(request, mask)
            if chosen is None:
                return None
        for share in chosen:
            self._take(share)
        return tuple(chosen)

    def _emptiest(self, mask: int, least: int) -> Iterator[tuple[int, int]]:
        """(free cores, rank) of nodes with at least `least` free cores: most first, lowest rank among equals."""
        for count in range(len(self._buckets) - 1, max(least, 1) - 1, -1):
            for rank in each(self._buckets[count] & mask):
                yield count, rank

    def _preferred(self, mask: int, least: int) -> Iterator[tuple[int, int]]:
        """As `_emptiest`, in the order of the mode."""
        if self._mode == "worst-fit":
            yield from self._emptiest(mask, least)
            return
        found = 0
        for count in range(max(least, 1), len(self._buckets)):
            if self._mode == "best-fit":
                for rank in each(self._buckets[count] & mask):
                    yield count, rank
            else:
                found |= self._buckets[count] & mask
        for rank in each(found):
            yield self.nodes[rank].free.bit_count(), rank

    def _anywhere(self, request: Request, mask: int) -> list[Share] | None:
        per_slot, gpus, need = request.cores, request.gpus, request.nslots
        chosen: list[Share] = []
        for count, rank in self._preferred(mask, per_slot):
            node = self.nodes[rank]
            slots = min(need, count // per_slot) if per_slot else need
            if gpus:
                slots = min(slots, node.free_gpus.bit_count() // gpus)
                if not slots:
                    continue
            chosen.append(Share(rank, _lowest(node.free, slots * per_slot), _lowest(node.free_gpus, slots * gpus)))
            need -= slots
            if not need:
                return chosen
        return None

    def _on_nodes(self, request: Request, mask: int) -> list[Share] | None:
        cores, gpus, need = request.nslots * request.cores, request.nslots * request.gpus, request.nnodes
        chosen: list[Share] = []
        for _, rank in self._emptiest(mask, cores):
            node = self.nodes[rank]
            if gpus > node.free_gpus.bit_count():
                continue
            chosen.append(Share(rank, _lowest(node.free, cores), _lowest(node.free_gpus, gpus)))
            need -= 1
            if not need:
                return chosen
        return None

    def _whole_nodes(self, request: Request, mask: int) -> list[Share] | None:
        """Allocate idle nodes, the largest first. Without a node count, slots fill node after node."""
        cores, gpus = request.nslots * request.cores, request.nslots * request.gpus
        need = request.nnodes or request.nslots
        chosen: list[Share] = []
        for count, rank in self._emptiest(mask, 1):
            node = self.nodes[rank]
            if node.free != node.cores or node.free_gpus != node.gpus:
                continue
            if request.nnodes:
                if cores > count or gpus > node.gpus.bit_count():
                    continue
                need -= 1
            else:
                slots = _slots(request, count, node.gpus.bit_count())
                if not slots:
                    continue
                need -= min(slots, need)
            chosen.append(Share(rank, node.cores, node.gpus))
            if not need:
                return chosen
        return None

    def _take(self, share: Share) -> None:
        node = self.nodes[share.rank]
        self._move(share.rank, node, node.free & ~share.cores)
        node.free_gpus &= ~share.gpus

    def _move(self, rank: int, node: Node, free: int) -> None:
        if node.up:
            bit = 1 << rank
            self._buckets[node.free.bit_count()] &= ~bit
            self._buckets[free.bit_count()] |= bit
        node.free = free

    def mark_allocated(self, shares: Iterable[Share]) -> Shares:
        """Allocate exactly these shares (of a running job); raises ValueError if a part is allocated or unknown."""
        wanted = tuple(shares)
        for rank, cores, gpus in wanted:
            node = self.nodes.get(rank)
            if node is None:
                raise ValueError(f"rank {rank} is not part of this instance")
            if cores & ~node.free or gpus & ~node.free_gpus:
                raise ValueError(f"rank {rank}: resources are already allocated or not configured")
        for share in wanted:
            self._take(share)
        return wanted

    def retake(self, shares: Iterable[Share]) -> None:
        """Undo `free` of the same shares; shares of removed ranks are ignored."""
        for share in shares:
            if share.rank in self.nodes:
                self._take(share)

    def free(self, shares: Iterable[Share]) -> None:
        """Release resources; shares of removed ranks are ignored."""
        for rank, cores, gpus in shares:
            node = self.nodes.get(rank)
            if node is not None:
                self._move(rank, node, node.free | (cores & node.cores))
                node.free_gpus |= gpus & node.gpus

    # -- feasibility

    def check(self, request: Request, within: int = -1) -> None:
        """Raise Unsatisfiable if the request could not run with every configured node up and idle."""
        total, slots, eligible = 0, 0, 0
        wanted = Request(0, request.nslots, request.cores, request.gpus, False)
        for (cores, gpus), members in self._kinds.items():
            count = (members & within).bit_count()
            fit = _slots(wanted, cores, gpus)
            total += count * cores
            slots += count * fit
            if fit >= (request.nslots if request.nnodes else 1):
                eligible += count
        if request.nnodes:
            if eligible < request.nnodes:
                kind = "exclusive " if request.exclusive else ""
                of = "" if request.exclusive else f" with {_slot_text(request)}"
                raise Unsatisfiable(
                    f"unsatisfiable request: need {request.nnodes} {kind}node(s){of}, only {eligible} eligible"
                )
        elif slots < request.nslots:
            raise Unsatisfiable(
                f"unsatisfiable request: need {_slot_text(request)}, "
                f"only {slots} such slot(s) available (total cores: {total})"
            )

    def shortage(self, request: Request, within: int = -1) -> str:
        """Why `allocate` returned None: the resource that is short now, for the job's `reason_pending`."""
        mask = self.up & within
        if not mask:
            return "all eligible nodes are down or drained"
        if request.exclusive or request.nnodes:
            cores, gpus = request.nslots * request.cores, request.nslots * request.gpus
            fits = 0
            for rank in each(mask):
                node = self.nodes[rank]
                idle = node.free == node.cores and node.free_gpus == node.gpus
                large = node.free.bit_count() >= cores and node.free_gpus.bit_count() >= gpus
                fits += (idle or not request.exclusive) and (large or not request.nnodes)
            what = "idle node(s)" if request.exclusive else f"node(s) with {_slot_text(request)}"
            return f"{_SHORT}need {request.nnodes or 1} {what}, {fits} free"
        free = sum(self.nodes[rank].free.bit_count() for rank in each(mask))
        gpus_free = sum(self.nodes[rank].free_gpus.bit_count() for rank in each(mask))
        if request.gpus and gpus_free < request.gpus * request.nslots:
            return f"{_SHORT}need {request.gpus * request.nslots} gpu(s), {gpus_free} free"
        return f"{_SHORT}need {request.cores * request.nslots} core(s), {free} free"

    def job_r(self, shares: Shares, starttime: float, expiration: float) -> dict[str, Any]:
        """R (RFC 20) of shares in any order."""
        return job_r(sorted(shares), self._host, self.properties, starttime, expiration)

    def _host(self, rank: int) -> str:
        return self.nodes[rank].host

    def free_set(self) -> dict[int, tuple[int, int]]:
        """Free cores and GPUs (bit sets) of every rank, up or not."""
        return {rank: (node.free, node.free_gpus) for rank, node in self.nodes.items()}


def _slots(request: Request, cores: int, gpus: int) -> int:
    """The number of slots that fit on a node with these cores and GPUs."""
    fit = cores // request.cores if request.cores else request.nslots
    return min(fit, gpus // request.gpus) if request.gpus else fit


def _slot_text(request: Request) -> str:
    gpus = f" and {request.gpus} gpu(s)" if request.gpus else ""
    return f"{request.nslots} slot(s) of {request.cores} core(s){gpus}"


def _lowest(bits: int, count: int) -> int:
    """The `count` lowest set bits."""
    if not count:
        return 0
    rest = bits
    for _ in range(count):
        rest &= rest - 1
    return bits ^ rest
