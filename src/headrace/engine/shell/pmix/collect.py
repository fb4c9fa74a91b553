"""Collective operations of PMIx between some tasks of a job. No I/O.

Each participating node contributes a part and gets all parts. The lowest participating node gathers the parts and sends
all of them to each node. PMIx requires that nodes enter operations on the same tasks in the same order, so the n-th
operation with a key is the same operation on all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]


class Collector:
    """The collective operations on node `nodeid`.

    `to_node(node, message)` sends a message, `done(token, parts)` is called when an operation has completed.
    """

    def __init__(
        self, nodeid: int, to_node: Callable[[int, Message], None], done: Callable[[int, list[str]], None]
    ) -> None:
        self._nodeid = nodeid
        self._to_node = to_node
        self._done = done
        # How often this node has entered an operation, by key.
        self._entered: dict[str, int] = {}
        # The tokens of the operations that this node waits for, by name.
        self._tokens: dict[str, int] = {}
        # For operations with this node as their lowest: the participating nodes, and the parts so far, by name.
        self._parts: dict[str, tuple[list[int], dict[int, str]]] = {}

    def enter(self, key: str, token: int, nodes: Sequence[int], part: str) -> None:
        """Enter the operation `key` of `nodes` with this node's `part`."""
        number = self._entered[key] = self._entered.get(key, 0) + 1
        name = f"{number} {key}"
        self._tokens[name] = token
        message = {"op": "part", "name": name, "nodes": list(nodes), "part": part}
        root = min(nodes)
        if root == self._nodeid:
            self.from_node(self._nodeid, message)
        else:
            self._to_node(root, message)

    def from_node(self, source: int, message: Message) -> None:
        """Handle a part of node `source`, or the parts of all nodes."""
        name = message["name"]
        if message["op"] == "whole":
            self._done(self._tokens.pop(name), message["parts"])
            return
        nodes, parts = self._parts.setdefault(name, (message["nodes"], {}))
        parts[source] = message["part"]
        if len(parts) < len(nodes):
            return
        del self._parts[name]
        result = {"op": "whole", "name": name, "parts": [parts[node] for node in sorted(parts)]}
        for node in nodes:
            if node == self._nodeid:
                self.from_node(node, result)
            else:
                self._to_node(node, result)
