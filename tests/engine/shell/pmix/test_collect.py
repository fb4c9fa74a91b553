"""Collective operations between nodes: each of them gets all parts, whoever comes first."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.pmix.collect import Collector, Message


class Nodes:
    """Collectors with messages on their way between them, delivered in any order but that of each pair."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.results: dict[int, dict[int, list[str]]] = {node: {} for node in range(size)}
        self._wires: dict[tuple[int, int], deque[Message]] = {}
        self._random = Random(seed)
        self.nodes = [self._node(node) for node in range(size)]

    def _node(self, node: int) -> Collector:
        def send(to: int, message: Message) -> None:
            self._wires.setdefault((node, to), deque()).append(message)

        def done(token: int, parts: list[str]) -> None:
            assert token not in self.results[node]
            self.results[node][token] = parts

        return Collector(node, send, done)

    def deliver(self) -> None:
        while ready := [ends for ends, wire in self._wires.items() if wire]:
            source, to = self._random.choice(ready)
            self.nodes[to].from_node(source, self._wires[source, to].popleft())


def test_only_those_who_take_part_are_asked() -> None:
    world = Nodes(4)
    world.nodes[3].enter("fence 2,6", 7, [1, 3], "three")
    world.deliver()
    assert world.results[3] == {}
    world.nodes[1].enter("fence 2,6", 8, [1, 3], "one")
    world.deliver()
    assert world.results == {0: {}, 1: {8: ["one", "three"]}, 2: {}, 3: {7: ["one", "three"]}}


@given(st.integers(0, 1000), st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=8))
def test_operations_on_the_same_tasks_keep_their_order(seed: int, operations: list[set[int]]) -> None:
    world = Nodes(5, seed)
    for number, members in enumerate(operations):
        for node in sorted(members):
            nodes = sorted(members)
            world.nodes[node].enter(f"fence {nodes}", number, nodes, f"{number}.{node}")
    world.deliver()
    for node in range(5):
        want: dict[int, Any] = {
            number: [f"{number}.{each}" for each in sorted(members)]
            for number, members in enumerate(operations)
            if node in members
        }
        assert world.results[node] == want
