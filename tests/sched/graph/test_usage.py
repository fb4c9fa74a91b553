"""Which job holds what, and when: entering checks nothing twice, and giving back undoes exactly what was entered.

Random histories are in test_histories.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sched.graph import Graph
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.selection import Selection, select
from headrace.sched.graph.usage import SpanConflictError, Usage, taken


def cluster() -> Graph:
    """Two nodes with two cores and a pool of eight units of memory each."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(2):
            graph.add("core", node, id=c)
        graph.add("memory", node, id=0, size=8)
    return graph.finish()


def shared_disk() -> Graph:
    """Two racks that both contain a disk, with a core each: no tree."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    racks = [graph.add("rack", root, id=n) for n in range(2)]
    for n, rack in enumerate(racks):
        graph.add("core", rack, id=n)
    disk = graph.add("ssd", racks[0], id=0, size=8)
    graph.place(disk, racks[1])
    return graph.finish()


def part(graph: Graph, *paths: str, units: int = 0) -> Selection:
    """The vertices of these paths, exclusively and whole, or `units` of a pool."""
    picks = []
    for path in paths:
        (v,) = graph.find_path(path)
        picks.append(Pick(v, units or graph.size[v], not units, bool(graph.children[v]), ()))
    return select(graph, picks)


def state(usage: Usage) -> Any:
    """All that the planners of a usage say."""
    planners: list[Any] = [usage.plans, usage.shared]
    planners += [by_type for busy in usage.aggregates.values() for by_type in busy.values()]
    return [{key: (p.times, list(p.used)) for key, p in each.items() if p.times} for each in planners if each]


@pytest.mark.parametrize("graph", [cluster(), shared_disk()], ids=["tree", "two parents"])
def test_a_canceled_job_leaves_no_trace(graph: Graph) -> None:
    usage, root = Usage(graph), graph.root
    cores = [graph.path(v) for v in graph.vertices() if graph.type[v] == "core"]
    empty = [usage.free(root, "core", at) for at in (0, 5, 10)]
    usage.add(1, part(graph, cores[0]), 0, 10, False)
    before = state(usage)
    usage.add(2, part(graph, cores[1]), 5, 15, True)
    assert [usage.free(root, "core", at) for at in (0, 5, 10)] == [empty[0] - 1, empty[0] - 2, empty[0] - 1]
    usage.cancel(2)
    assert state(usage) == before
    usage.cancel(1)
    assert not any(state(usage))
    assert [usage.free(root, "core", at) for at in (0, 5, 10)] == empty


def test_a_job_enters_once_and_for_some_time() -> None:
    graph = cluster()
    usage = Usage(graph)
    core = part(graph, "/cluster0/node0/core0")
    with pytest.raises(ValueError, match="job 1: holds nothing between 5 and 5; the end must come after the start"):
        usage.add(1, core, 5, 5, False)
    usage.add(1, core, 0, 5, False)
    with pytest.raises(ValueError, match="job 1: holds resources already; cancel it first"):
        usage.add(1, core, 6, 7, False)
    with pytest.raises(KeyError):
        usage.cancel(2)


def test_what_is_held_is_free_before_and_after_but_not_meanwhile() -> None:
    graph = cluster()
    usage = Usage(graph)
    core, node = part(graph, "/cluster0/node0/core0"), part(graph, "/cluster0/node0")
    usage.add(1, core, 10, 20, False)
    for selection in (core, node):
        usage.check(selection, 0, 10)
        usage.check(selection, 20, 30)
        for start, end in ((0, 11), (19, 30), (12, 13), (0, 30)):
            with pytest.raises(SpanConflictError, match=r"/cluster0/node0.*: not free during the time asked for"):
                usage.check(selection, start, end)
    usage.check(part(graph, "/cluster0/node0/core1"), 0, 30)


def test_a_pool_has_room_for_as_many_units_as_it_has() -> None:
    graph = cluster()
    usage = Usage(graph)
    path = "/cluster0/node1/memory0"
    usage.add(1, part(graph, path, units=5), 0, 10, False)
    usage.check(part(graph, path, units=3), 0, 10)
    usage.check(part(graph, path, units=8), 10, 20)
    with pytest.raises(SpanConflictError):
        usage.check(part(graph, path, units=4), 9, 20)
    assert usage.free(graph.root, "memory", 5) == 11


def test_a_disk_of_two_racks_is_busy_in_both() -> None:
    graph = shared_disk()
    usage = Usage(graph)
    usage.add(1, part(graph, "/cluster0/rack0/ssd0", units=6), 0, 10, False)
    racks = [v for v in graph.vertices() if graph.type[v] == "rack"]
    assert [usage.free(rack, "ssd", 0) for rack in (*racks, graph.root)] == [2, 2, 2]
    with pytest.raises(SpanConflictError):
        usage.check(part(graph, "/cluster0/rack1"), 5, 6)
    with pytest.raises(SpanConflictError):
        usage.check(part(graph, "/cluster0/rack1/ssd0", units=3), 5, 6)
    usage.check(part(graph, "/cluster0/rack1/ssd0", units=2), 5, 6)


def test_a_successor_holds_what_the_job_held() -> None:
    graph = cluster()
    usage = Usage(graph)
    held = usage.add(1, part(graph, "/cluster0/node0"), 0, 10, False)
    before = state(usage)
    assert usage.hand_over(1, 2) == held._replace(jobid=2) == usage.jobs[2]
    assert (state(usage), list(usage.jobs)) == (before, [2])
    usage.cancel(2)
    assert not any(state(usage))


# The rack that job 1 holds has the disk that is in the other rack, too.
@pytest.mark.parametrize(
    ("graph", "of_other"), [(cluster(), [2]), (shared_disk(), [1, 2])], ids=["tree", "two parents"]
)
def test_the_holders_of_a_vertex_are_the_jobs_with_a_part_of_it(graph: Graph, of_other: list[int]) -> None:
    usage = Usage(graph)
    one, other = graph.children[graph.root]
    usage.add(1, part(graph, graph.path(one)), 0, 10, False)
    usage.add(2, part(graph, graph.path(graph.children[other][0])), 0, 10, False)
    assert sorted(usage.holders([other])) == of_other
    assert sorted(usage.holders([one])) == [1]
    assert sorted(usage.holders([graph.children[one][0]])) == [1]
    assert sorted(usage.holders([graph.root])) == [1, 2]


def test_taken_are_whole_contents_and_units_of_pools() -> None:
    graph = cluster()
    (node,), (pool,) = graph.find_path("/cluster0/node0"), graph.find_path("/cluster0/node1/memory0")
    whole = {v: graph.size[v] for v in graph.preorder(node)}
    assert taken(part(graph, "/cluster0/node0")) == whole
    assert taken(part(graph, "/cluster0/node1/memory0", units=3)) == {pool: 3}
