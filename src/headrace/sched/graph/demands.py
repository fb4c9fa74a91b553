"""Translates a request into its demand on each node, for the index of free resources.

The index can answer these requests; for any other, the functions here return None:

- slots of single resources (such as 2 cores and a GPU), in total or a number per node
- such slots inside their holders (sockets), or slots that consist of whole holders
- slots of units of pools (such as 4 GB of memory)
- whole nodes that contain at least given resources
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.sched.graph.layout import Demand, Layout, Parts
from headrace.sched.graph.request import Request

_MAX_KNOWN = 1000


class WholeNodes(NamedTuple):
    """A number of whole nodes, each of which must satisfy `inside`; None for nodes with any contents."""

    amount: int
    inside: Demand | None


class Demands:
    """Translates requests into demands on the nodes of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._policy = layout.policy
        # A cache, because most requests repeat an earlier demand.
        self._known: dict[tuple[Parts, int, bool], Demand] = {}

    def whole(self, requests: Sequence[Request]) -> WholeNodes | None:
        """The whole nodes that are requested; None if anything else is requested."""
        top = requests[0]
        count, inner = top.count.low, top.with_
        if len(requests) > 1 or count != top.count.high:
            return None
        if top.type == "slot":
            if len(inner) != 1 or inner[0].type != "node":
                return None
            node = inner[0]
            return None if node.with_ or node.count.low != 1 or node.count.high != 1 else WholeNodes(count, None)
        if top.type != "node" or not (top.exclusive or self._policy.whole):
            return None
        if not inner:
            return WholeNodes(count, None)
        demand = self.of_node(inner)
        return None if demand is None else WholeNodes(count, demand)

    def of_node(self, inner: Sequence[Request]) -> Demand | None:
        """The demand on each node, given the requests inside it; None if the index cannot answer."""
        if len(inner) != 1:
            return None
        item = inner[0]
        count = item.count.low
        if item.type != "slot":
            # The request is for slots inside vertices that hold resources, such as sockets.
            slot = item.with_[0] if len(item.with_) == 1 else None
            parts = self.parts(slot) if slot is not None and count == item.count.high else None
            if slot is None or not parts or not self._hold(item.type, parts):
                return None
            return Demand(parts, slot.count.low, count, bool(item.exclusive), bool(item.exclusive))
        if len(item.with_) == 1 and item.with_[0].with_:
            return self._of_holders(item.with_[0], count) if count == item.count.high else None
        parts = self.parts(item)
        if parts:
            return self.of_slots(parts, count)
        units = self.units(item)
        return self.of_slots(units, count, True) if units else None

    def of_slots(self, parts: Parts, slots: int, units: bool = False) -> Demand:
        """The demand for slots of single resources, or with `units` of units of pools.

        `slots` is their number on each node. With 0, slots are placed one by one on the best nodes.
        """
        known = self._known.get((parts, slots, units))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[parts, slots, units] = Demand(parts, slots, units=units)
        return known

    def _of_holders(self, holder: Request, slots: int) -> Demand | None:
        """The demand for slots of vertices such as sockets, which belong to the slot with their contents."""
        parts = self._counted(holder.with_) if holder.count.low == holder.count.high else None
        if not parts or not self._hold(holder.type, parts):
            return None
        return Demand(parts, 1, holder.count.low * slots, True, bool(holder.exclusive))

    def _hold(self, kind: str, parts: Parts) -> bool:
        """True if the holders of a slot's resources are the vertices of type `kind`."""
        return self._layout.held_by.get(parts[0][0]) == kind

    def parts(self, slot: Request) -> Parts | None:
        """The types and counts of a slot of single resources with common holders; None for any other slot."""
        if slot.type != "slot" or slot.count.low != slot.count.high:
            return None
        return self._counted(slot.with_)

    def units(self, slot: Request) -> Parts | None:
        """The types and units of a slot that consists only of units of pools; None for any other slot."""
        if slot.type != "slot" or slot.count.low != slot.count.high:
            return None
        for part in slot.with_:
            if not part.takes_units or part.type not in self._layout.pools or part.count.low != part.count.high:
                return None
        parts = tuple([(part.type, part.count.low) for part in slot.with_])
        return parts if len(dict(parts)) == len(parts) else None

    def _counted(self, items: Sequence[Request]) -> Parts | None:
        parts = []
        holding = None
        for part in items:
            found = self._layout.types.get(part.type)
            if found is None or part.with_ or part.count.low != part.count.high:
                return None
            if holding is None:
                holding = found
            elif holding is not found:
                return None
            parts.append((part.type, part.count.low))
        if len(parts) > 1 and len({kind for kind, _ in parts}) != len(parts):
            return None
        return tuple(parts)
