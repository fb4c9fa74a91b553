"""The graph, its jobs and its queues, without messages: R in and out, graphs of R, and nothing lost or given twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.engine.modules.sched.graph_of_r import Nodes, graph_of
from headrace.engine.modules.sched.pool import Pool
from headrace.engine.modules.sched.r import Share, shares_of_r, summary
from headrace.engine.modules.sched.settings import read
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph import Scheduler, parse_jobspec
from headrace.sched.graph.formats.writers import graph_object, short_graph_object
from headrace.sched.graph.model import GraphError
from headrace.sched.graph.request import JobRequest
from headrace.sched.queueing.pending import UNLIMITED
from headrace.sched.queueing.queue import Refused, Started

POLICIES = ["fcfs", "easy", "conservative", "hybrid"]
NOW = 1_700_000_000


def request(pool: Pool, jobspec: dict[str, Any]) -> JobRequest:
    """As the module reads the request of a job that is submitted."""
    system = jobspec["attributes"]["system"]
    resources, constraints = (json.dumps(part).encode() for part in (jobspec["resources"], system.get("constraints")))
    return pool.requests.of_parts(resources, system.get("duration") or 0, constraints)


def r_of(nodes: int, cores: int = 4, gpus: int = 0, hosts: str = "") -> dict[str, Any]:
    def upto(count: int) -> str:
        return f"0-{count - 1}" if count > 1 else "0"

    children = {"core": upto(cores), "gpu": upto(gpus)} if gpus else {"core": upto(cores)}
    execution = {
        "R_lite": [{"rank": upto(nodes), "children": children}],
        "starttime": 0.0,
        "expiration": 0.0,
        "nodelist": [hosts or f"node[{upto(nodes)}]"],
    }
    return {"version": 1, "execution": execution}


def slots(count: int, cores: int = 1, duration: float = 0, constraint: Any = None) -> dict[str, Any]:
    slot = {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": cores}]}
    system = {"duration": duration, **({"constraints": constraint} if constraint else {})}
    return {"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": system}}


def pool_of(nodes: int, *args: str, cores: int = 4, gpus: int = 0) -> Pool:
    pool = Pool(r_of(nodes, cores, gpus), read({}, args))
    pool.set_up((1 << nodes) - 1)
    return pool


def run(pool: Pool, now: int = NOW) -> list[int]:
    """Jobs that a complete pass starts."""
    started = []
    while True:
        for decision in pool.schedule(now):
            if isinstance(decision, Started):
                pool.started(decision.jobid, decision.allocation, 0.0)
                started.append(decision.jobid)
            elif isinstance(decision, Refused):
                pool.forget(decision.jobid)
        if not pool.unfinished:
            return started


class TestR:
    def test_what_is_written_is_read_back_as_the_same_vertices(self) -> None:
        pool = pool_of(4, cores=4, gpus=1)
        shares = (Share(0, 0b1010, 0b1), Share(2, 0b1111, 0b1), Share(3, 0b1, 0))
        r = pool.nodes.write(shares, 1.5, 2.5)
        assert r["execution"]["R_lite"] == [
            {"rank": "0", "children": {"core": "1,3", "gpu": "0"}},
            {"rank": "2", "children": {"core": "0-3", "gpu": "0"}},
            {"rank": "3", "children": {"core": "0"}},
        ]
        assert r["execution"]["nodelist"] == ["node[0,2-3]"]
        assert summary(r) == "rank0/core[1,3],gpu0 rank2/core[0-3],gpu0 rank3/core0"
        assert shares_of_r(r) == shares
        allocation = pool.scheduler.add(1, pool.nodes.selection(shares), NOW, NOW + 1, False)
        assert pool.nodes.shares(allocation) == shares

    def test_resources_that_are_not_there_are_named(self) -> None:
        nodes = pool_of(2).nodes
        with pytest.raises(GraphError, match="rank 7 is not part of this instance"):
            nodes.selection([Share(7, 1, 0)])
        with pytest.raises(GraphError, match="node1: has no core9"):
            nodes.selection([Share(1, 1 << 9, 0)])

    def test_ranks_that_do_not_tell_nodes_apart_are_refused(self) -> None:
        graph = graph_of(r_of(2), ResourceSet.from_obj(r_of(2)))
        graph.rank[next(v for v, kind in enumerate(graph.type) if kind == "node")] = 1
        with pytest.raises(GraphError, match="rank 1 is also that of"):
            Nodes(graph)


class TestGraphs:
    def allocated(self, hosts: str = "", write: Any = graph_object) -> dict[str, Any]:
        """R with a scheduling key of two nodes of four, as an instance that runs in a job gets it."""
        r = r_of(4, hosts=hosts)
        graph = graph_of(r, ResourceSet.from_obj(r))
        scheduler = Scheduler(graph, "hinode")
        request = parse_jobspec(
            {"resources": [{"type": "node", "count": 2, "exclusive": True, "with": slots(4)["resources"]}]}
        )
        allocation = scheduler.allocate(1, request, NOW).allocation
        assert allocation is not None
        inner = r_of(2)
        inner["execution"]["nodelist"] = [",".join(r["execution"]["nodelist"][0].split(",")[2:]) or "node[2-3]"]
        return {**inner, "scheduling": write(graph, allocation)}

    @pytest.mark.parametrize("hosts", ["", "here,here,here,here"])
    def test_an_instance_in_a_job_gives_the_graph_its_own_ranks(self, hosts: str) -> None:
        r = self.allocated(hosts)
        pool = Pool(r, read({}))
        assert sorted(pool.nodes.vertex) == [0, 1]
        pool.set_up(0b11)
        pool.submit(1, request(pool, slots(8)), 16, "")
        assert run(pool) == [1]
        assert pool.held[1].shares == (Share(0, 0b1111, 0), Share(1, 0b1111, 0))

    def test_a_graph_in_shorthand_that_leaves_out_what_nodes_have_is_not_used(self) -> None:
        r = self.allocated(write=short_graph_object)
        assert "core" not in str(r["scheduling"])
        pool = Pool(r, read({}))
        pool.set_up(0b11)
        pool.submit(1, request(pool, slots(8)), 16, "")
        assert run(pool) == [1]

    def test_nodes_that_r_leaves_out_are_left_out_of_its_graph(self) -> None:
        r = self.allocated()
        r["execution"]["R_lite"][0]["rank"] = "1"
        r["execution"]["nodelist"] = ["node3"]
        pool = Pool(r, read({}))
        assert list(pool.nodes.vertex) == [1]
        assert pool.graph.totals[pool.graph.root]["core"] == 4

    def test_a_scheduling_key_of_other_nodes_is_refused(self) -> None:
        r = self.allocated()
        r["execution"]["R_lite"][0]["rank"] = "0-2"
        r["execution"]["nodelist"] = ["other[0-2]"]
        with pytest.raises(GraphError, match="2 nodes in the scheduling key but 3 ranks"):
            Pool(r, read({}))

    def test_hosts_that_share_a_name_are_preferred_by_rank(self) -> None:
        pool = Pool(r_of(3, hosts="here,here,here"), read({}))
        pool.set_up(0b111)
        for job in range(3):
            pool.submit(job, request(pool, slots(4)), 16, "")
        run(pool)
        assert [pool.held[job].shares[0].rank for job in range(3)] == [0, 1, 2]


class TestRequests:
    def test_equal_requests_are_one_object(self) -> None:
        pool = pool_of(1)
        assert request(pool, slots(2, duration=10)) is request(pool, slots(2, duration=10))
        assert request(pool, slots(2, duration=10)) is not request(pool, slots(2))

    def test_parts_of_a_second_are_a_time_limit_too(self) -> None:
        pool = pool_of(1)
        assert request(pool, slots(1, duration=0.5)).duration == 1
        assert request(pool, slots(1, duration=2.5)).duration == 3
        assert request(pool, slots(1)).duration == UNLIMITED


actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 6), st.integers(1, 4), st.sampled_from([0, 5, 60, 600])),
        st.tuples(st.just("free"), st.integers(0, 50), st.just(0), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 50), st.just(0), st.just(0)),
        st.tuples(st.just("inherit"), st.integers(0, 50), st.integers(0, 50), st.integers(1, 100)),
        st.tuples(st.just("priority"), st.integers(0, 50), st.integers(0, 31), st.just(0)),
        st.tuples(st.just("down"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("up"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("release"), st.integers(0, 50), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("expiration"), st.integers(0, 50), st.integers(1, 900), st.just(0)),
        st.tuples(st.just("configure"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 100), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(actions=actions)
# The second job has no start while a node is down, and waits among the promised ones without a promise.
@example(
    actions=[("submit", 1, 1, 0), ("down", 0, 0, 0), ("submit", 4, 3, 0), ("configure", 2, 0, 0), ("free", 0, 0, 0)]
)
def test_whatever_happens_nothing_is_given_twice_or_lost(policy: str, actions: list[tuple[str, int, int, int]]) -> None:
    pool = pool_of(4, f"queue-policy={policy}")
    now, job = NOW, 0
    for name, a, b, c in actions:
        held, waiting = sorted(pool.held), sorted(pool.where)
        if name == "submit":
            job += 1
            pool.submit(job, request(pool, slots(a, cores=b, duration=c)), 16, ("", "batch")[a % 2])
        elif name == "free" and held:
            assert pool.free(held[a % len(held)])
        elif name == "inherit" and held:
            # The successor may have been started meanwhile.
            others = [*waiting, *(one for one in held if one != held[a % len(held)])]
            if others:
                successor, ended = others[b % len(others)], pool.held[held[a % len(held)]]
                taken = ended.shares
                expiration = ended.expiration if c % 2 else float(now + c)
                assert pool.inherit(held[a % len(held)], successor, now, expiration) or not taken
                assert not taken or pool.held[successor].shares == taken
        elif name == "cancel" and waiting:
            assert pool.cancel(waiting[a % len(waiting)])
        elif name == "priority" and waiting:
            pool.reprioritize([(waiting[a % len(waiting)], b)])
        elif name in ("up", "down"):
            (pool.set_up if name == "up" else pool.set_down)(1 << a)
        elif name == "release" and held:
            assert pool.release(held[a % len(held)], 1 << b)
        elif name == "expiration" and held:
            pool.set_expiration(held[a % len(held)], float(now + b))
        elif name == "configure":
            pool.configure(
                read({}, [f"queue-policy={POLICIES[a]}", f"match-policy={('first', 'lonode', 'high', 'low')[a]}"])
            )
        elif name == "remove" and pool.nodes.all & (pool.nodes.all - 1) and pool.nodes.all >> a & 1:
            pool.remove(1 << a)
        elif name == "wait":
            now += a
        down = pool.nodes.all & ~pool.up
        for started in run(pool, now):
            assert not any(down >> share.rank & 1 for share in pool.held[started].shares)
        seen: dict[int, int] = {}
        for one in pool.held.values():
            for rank, cores, _ in one.shares:
                assert not seen.get(rank, 0) & cores
                seen[rank] = seen.get(rank, 0) | cores
    for one_job in list(pool.held):
        pool.free(one_job)
    for one_job in list(pool.where):
        pool.cancel(one_job)
    assert pool.scheduler.jobs == {}
    pool.set_up(pool.nodes.all)
    everything = 4 * pool.nodes.all.bit_count()
    pool.submit(job + 1, request(pool, slots(everything)), 16, "")
    assert run(pool, now) == [job + 1]
