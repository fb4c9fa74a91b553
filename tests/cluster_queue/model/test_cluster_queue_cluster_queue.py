"""A FluxQueue at work against a reference that counts for each node by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.cluster_queue.crd import Settings
from headrace.cluster_queue.model import constraints, resources
from headrace.cluster_queue.model.cluster_queue import ClusterQueue
from headrace.sched.graph import parse_jobspec
from headrace.sched.graph.request import together
from headrace.sched.queueing.queue import Started

Object = dict[str, Any]
ZONE, RACK = Settings().topology
NOW = 1_800_000_000


def node(name: str, rng: random.Random) -> Object:
    labels = {"disk": rng.choice("ab"), **({ZONE: rng.choice("xy")} if rng.random() < 0.7 else {})}
    if rng.random() < 0.5:
        labels[RACK] = rng.choice("12")
    offered = {"cpu": f"{rng.randint(0, 8)}", "memory": f"{rng.randint(0, 8)}Gi", "pods": str(rng.randint(1, 6))}
    if rng.random() < 0.4:
        offered["nvidia.com/gpu"] = str(rng.randint(0, 4))
    taints = [{"key": "t", "value": rng.choice("12"), "effect": "NoSchedule"}] if rng.random() < 0.2 else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": rng.random() < 0.1},
        "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(rng: random.Random) -> Object:
    asks = {"cpu": rng.choice(("0", "500m", "1", "1.5", "3")), "memory": rng.choice(("0", "512Mi", "2Gi", "1G"))}
    if rng.random() < 0.2:
        asks["nvidia.com/gpu"] = "1"
    return {
        "containers": [{"name": "a", "resources": {"requests": asks}}],
        "nodeSelector": {"disk": rng.choice("ab")} if rng.random() < 0.3 else {},
        "tolerations": [{"key": "t", "value": "1"}] if rng.random() < 0.3 else [],
    }


class Reference:
    """What each node has, in the words of Kubernetes, and what pods have of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.held: dict[int, tuple[str, resources.Amounts]] = {}

    def may(self, name: str, spec: Object) -> bool:
        """Whether a pod may be on a node, whatever is free of it."""
        item = self.nodes[name]
        tolerated = [(one["key"], one["value"]) for one in spec["tolerations"]]
        return (
            not item["spec"]["unschedulable"]
            and all(item["metadata"]["labels"].get(key) == value for key, value in spec["nodeSelector"].items())
            and all((one["key"], one["value"]) in tolerated for one in item["spec"]["taints"])
        )

    def fits(self, name: str, spec: Object, amounts: resources.Amounts) -> int:
        """How many such pods a node could take."""
        if not self.may(name, spec):
            return 0
        item = self.nodes[name]
        offered = item["status"]["allocatable"]
        has = {"cpu": int(offered["cpu"]) * 1000, "memory": int(offered["memory"][:-2]) * 1024}
        has |= {"pod": int(offered["pods"]), "gpu": int(offered.get("nvidia.com/gpu", 0))}
        free = {
            kind: has[kind] - sum(taken.get(kind, 0) for on, taken in self.held.values() if on == name)
            for kind in amounts
        }
        return max(min(free[kind] // amount for kind, amount in amounts.items()), 0)


@pytest.mark.parametrize("policy", ["first", "lonode", "low", "hinode"])
@pytest.mark.parametrize("seed", range(25))
def test_pods_get_a_node_if_and_only_if_one_has_room_whatever_becomes_of_nodes(policy, seed):
    rng = random.Random(seed)
    queue = ClusterQueue(Settings(policy="fcfs", match_policy=policy))
    reference = Reference()
    for turn in range(120):
        choice = rng.random()
        name = f"n{rng.randrange(5)}"
        if choice < 0.25:
            reference.nodes[name] = node(name, rng)
            queue.put_node(reference.nodes[name], NOW)
        elif choice < 0.3:
            reference.nodes.pop(name, None)
            queue.drop_node(name)
        elif choice < 0.4:
            # Pods of others are on their nodes whether there is room or not.
            amounts = resources.amounts_of(pod(rng))
            reference.held[queue.hold(name, amounts, NOW)] = name, amounts
        elif choice < 0.6 and reference.held:
            gone = rng.choice(list(reference.held))
            del reference.held[gone]
            queue.release(gone)
        else:
            spec, pods = pod(rng), rng.randint(1, 5)
            amounts, constraint = resources.amounts_of(spec), constraints.constraint_of(spec)
            room = {one: reference.fits(one, spec, amounts) for one in reference.nodes}
            one = queue.another_node(amounts, constraint, NOW, 0)
            assert bool(one) == (sum(room.values()) > 0), (seed, turn, spec, room)
            assert not one or room[one]
            queue.submit(turn + 1, parse_jobspec(resources.jobspec("a", "ns", pods, amounts, 0, constraint)), 0, turn)
            started = [given[0] for decision, given in queue.schedule(NOW) if isinstance(decision, Started)]
            queue.withdraw(turn + 1)
            assert bool(started) == (sum(room.values()) >= pods), (seed, turn, spec, room)
            for given in started:
                assert len(given) == pods
                assert all(given.count(one) <= room[one] for one in given)
                for one in given:
                    reference.held[queue.hold(one, amounts, NOW)] = one, amounts
            for one in reference.nodes:
                assert queue.is_usable(one, constraint) is reference.may(one, spec)


def test_pods_that_ask_for_one_level_are_in_one_of_it():
    queue = ClusterQueue(Settings(match_policy="lonode"))
    for index, zone in enumerate("xyyx"):
        item = node(f"n{index}", random.Random(1))
        item["metadata"]["labels"] = {ZONE: zone, RACK: "1"}
        item["status"]["allocatable"] = {"cpu": "2" if zone == "x" and index else "4", "pods": "10"}
        item["spec"] = {}
        queue.put_node(item, NOW)
    asked = resources.jobspec("a", "ns", 2, {"pod": 1, "cpu": 3000}, 0, None, within="zone")
    queue.submit(1, parse_jobspec(asked), 0, 0)
    found = [given for decision, given in queue.schedule(NOW) if isinstance(decision, Started)]
    assert found == [[["n1", "n2"]]]
    assert queue.beside(["n1", "gone"], ZONE) == {"properties": [f"{ZONE}=y"]}
    assert queue.beside(["gone"], ZONE) is None


def test_levels_go_with_their_last_node_and_follow_their_labels():
    queue = ClusterQueue(Settings())
    item = node("n0", random.Random(1))
    item["metadata"]["labels"] = {ZONE: "x", RACK: "1"}
    graph = queue.scheduler.graph
    for labels, path in [({ZONE: "x", RACK: "1"}, "/x/1"), ({ZONE: "y"}, "/y"), ({}, "")]:
        queue.put_node({**item, "metadata": {"name": "n0", "labels": labels}}, NOW)
        found = [graph.path(v) for v in graph.vertices() if graph.type[v] in ("zone", "rack", "node")]
        assert f"/cluster0{path}/n0" in found
        assert len(found) == len(labels) + 1
    queue.drop_node("n0")
    assert [graph.path(v) for v in graph.vertices()] == ["/cluster0"]


def test_of_tests_that_users_write_those_of_jobs_that_wait_are_kept_and_no_more_than_some():
    rng = random.Random(1)
    queue = ClusterQueue(Settings())
    item = node("n0", rng)
    item["spec"], item["status"]["allocatable"] = {}, {"cpu": "8", "pods": "9"}
    item["metadata"]["labels"]["size"] = "5"
    queue.put_node(item, NOW)

    def request(*bounds: int) -> Any:
        found = [parse_jobspec(resources.jobspec("a", "ns", 1, {"pod": 1}, 0, larger(one))) for one in bounds]
        return together(found) if len(found) > 1 else found[0]

    hold = queue.hold("n0", {"pod": 9}, NOW)
    queue.submit(1, request(3, 4), 0, NOW)
    for bound in range(1000, 1300):
        queue.submit(bound, request(bound), 0, NOW)
        queue.withdraw(bound)
        assert len(queue._tests) <= 102
        assert not queue.is_usable("n0", larger(bound))
    assert {"size>3", "size>4"} <= queue._tests.keys()
    assert not [one for one, _ in queue.schedule(NOW) if isinstance(one, Started)]
    queue.release(hold)
    queue.submit(2, request(2), 0, NOW)
    assert [one.jobid for one, _ in queue.schedule(NOW) if isinstance(one, Started)] == [1, 2]


def larger(bound: int) -> Object:
    """The constraint on nodes with a larger size."""
    return {"properties": [f"size>{bound}"]}
