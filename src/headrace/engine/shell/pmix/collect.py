"""Collective operations of PMIx between some tasks of a job: each of their nodes gives a part and gets all. No I/O.

The lowest participating node gathers the parts and sends all of them to each node. PMIx demands that nodes enter
operations on the same tasks in the same order, so the n-th operation with a key is the same one at all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]


class Collector:
    """The part of node `nodeid`. `to_node(node, message)` sends a message; `done(token, parts)` ends an operation."""

    def __init__(
        self, nodeid: int, to_node: Callable[[int, Message], None], done: Callable[[int, list[str]], None]
    ) -> None:
        self._nodeid = nodeid
        self._to_node = to_node
        self._done = done
        # How often this node has entered an operation, by its key.
        self._entered: dict[str, int] = {}
        # The tokens of the operations that this node waits for, by name.
        self._tokens: dict[str, int] = {}
        # Where this is the lowest node of an operation: the participating nodes, and the parts so far.
        self._parts: dict[str, tuple[list[int], dict[int, str]]] = {}

    def enter(self, key: str, token: int, nodes: Sequence[int], part: str) -> None:
        """This node's `part` of the operation `key`, which all of `nodes` enter."""
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
        """A part of node `source`, or the parts of all nodes."""
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
