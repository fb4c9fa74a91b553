"""The division of nodes among queues. Pure.

Queues share no nodes, because each queue plans with the whole node. If two queues select the same node, the later one
is invalid and has no nodes; an invalid FluxQueue has none either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..crd import WrongQueueError, settings_of

Object = dict[str, Any]
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


class QueueNodes(Struct, frozen=True):
    """The names of a queue's nodes, or the reason why it has none."""

    nodes: frozenset[str] = frozenset()
    problem: str = ""

    def status(self) -> Object:
        """The status of the FluxQueue."""
        if self.problem:
            return {"state": "Invalid", "reason": self.problem, "nodes": 0}
        return {"state": "Active", "nodes": len(self.nodes)}


def divided(queues: Mapping[str, Object], nodes: Mapping[str, Object]) -> dict[str, QueueNodes]:
    """The nodes of each queue, by queue name.

    Older queues choose first. Creation times are whole seconds. Among queues of the same second, active ones choose
    first, so that they keep their nodes after a restart. Otherwise the order of `queues` decides: the order in which
    they were first seen.
    """
    owner: dict[str, str] = {}
    found: dict[str, QueueNodes] = {}
    for name in sorted(queues, key=lambda name: _age(queues[name])):
        try:
            selector = settings_of(queues[name]).node_selector
        except WrongQueueError as exc:
            found[name] = QueueNodes(problem=str(exc))
            continue
        mine = [node for node, item in nodes.items() if _selects(selector, item["metadata"].get("labels") or {})]
        shared = min((node for node in mine if node in owner), default="")
        if shared:
            found[name] = QueueNodes(problem=f"it shares node {shared} with the FluxQueue {owner[shared]}")
        else:
            found[name] = QueueNodes(frozenset(mine))
            owner.update(dict.fromkeys(mine, name))
    return found


def _age(queue: Object) -> tuple[str, bool]:
    is_active = (queue.get("status") or {}).get("state") == "Active"
    return queue["metadata"].get("creationTimestamp", ""), not is_active


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    if not selector:
        return not any(label in labels for label in _CONTROL_PLANE)
    return all(labels.get(key) == value for key, value in selector.items())
