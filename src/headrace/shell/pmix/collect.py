"""Collective operations of PMIx between some of a job's tasks: each of their nodes gives a part, and gets all. Pure.

The lowest node that takes part gathers the parts and deals them out. Nodes enter operations on the same tasks in the
same order (PMIx demands that), so the n-th of a key at one node is the n-th at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]


class Collector:
    """Of node `nodeid` of a job. `to_node(node, message)` sends to another; `done(token, parts)` ends an operation."""

    def __init__(
        self, nodeid: int, to_node: Callable[[int, Message], None], done: Callable[[int, list[str]], None]
    ) -> None:
        self._nodeid = nodeid
        self._to_node = to_node
        self._done = done
        # How often this node has entered an operation, by its key.
        self._entered: dict[str, int] = {}
        # Tokens of operations that this node waits in.
        self._tokens: dict[str, int] = {}
        # As the lowest node of an operation: who takes part, and the parts so far.
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
        """A part of `source`'s, or what all have given."""
        name = message["name"]
        if message["op"] == "whole":
            self._done(self._tokens.pop(name), message["parts"])
            return
        nodes, parts = self._parts.setdefault(name, (message["nodes"], {}))
        parts[source] = message["part"]
        if len(parts) < len(nodes):
            return
        del self._parts[name]
        whole = {"op": "whole", "name": name, "parts": [parts[node] for node in sorted(parts)]}
        for node in nodes:
            if node == self._nodeid:
                self.from_node(node, whole)
            else:
                self._to_node(node, whole)
