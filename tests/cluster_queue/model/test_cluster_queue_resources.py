from __future__ import annotations

from typing import Any

import pytest

from headrace.cluster_queue.model import nodes, resources
from headrace.sched.graph import Scheduler, parse_jobspec


def container(name: str = "a", restart: str = "", limits: Any = None, **asks: str) -> dict[str, Any]:
    resources = {"requests": {key.replace("_", "-"): text for key, text in asks.items()}, "limits": limits or {}}
    return {"name": name, "resources": resources, **({"restartPolicy": restart} if restart else {})}


def cpu(spec: dict[str, Any], status: Any = None) -> int:
    return resources.amounts_of(spec, status).get("cpu", 0)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("100m", 100), ("1.5", 1500), ("2", 2000), ("1e1", 10000), ("0.1m", 1), ("1500u", 2), (".5", 500), ("+1", 1000)],
)
def test_cpu_is_counted_in_thousandths_and_rounded_up(text, milli):
    assert resources.amounts_of({"containers": [container(cpu=text)]}) == {"pod": 1, "cpu": milli}


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        *[("1Gi", 1024), ("1G", 954), ("1e3", 1), ("500k", 1), ("1Mi", 1), ("1Ti", 2**20), ("1.5Mi", 2)],
        *[("128974848", 123), ("129e6", 124), ("129M", 124), ("2E6", 2), ("1Ki", 1), ("0", 0), ("100m", 1)],
    ],
)
def test_bytes_are_counted_in_mebibytes_and_rounded_up(text, mib):
    found = resources.amounts_of({"containers": [container(memory=text, ephemeral_storage=text)]})
    assert found == {"pod": 1, **({"memory": mib, "ephemeral-storage": mib} if mib else {})}


def test_a_pod_takes_the_sum_of_its_containers_rounded_once():
    assert resources.amounts_of({"containers": [container(cpu="500m"), container(cpu="500m")]}) == {
        "pod": 1,
        "cpu": 1000,
    }
    assert cpu({"containers": [container(cpu="0.5m"), container(cpu="0.5m")]}) == 1
    assert resources.amounts_of({"containers": [{"name": "a"}]}) == {"pod": 1}


def test_a_container_with_a_limit_alone_asks_for_that():
    assert cpu({"containers": [container(limits={"cpu": "3"})]}) == 3000
    assert cpu({"containers": [container(limits={"cpu": "3"}, cpu="1")]}) == 1000


def test_init_containers_run_one_by_one_before_the_others():
    main = [container(cpu="2"), container(cpu="1")]
    assert cpu({"containers": main, "initContainers": [container(cpu="1"), container(cpu="2")]}) == 3000
    assert cpu({"containers": main, "initContainers": [container(cpu="1"), container(cpu="5")]}) == 5000


def test_sidecars_run_with_all_that_come_after_them():
    main = [container(cpu="2")]
    side = container(restart="Always", cpu="1")
    assert cpu({"containers": main, "initContainers": [side]}) == 3000
    assert cpu({"containers": main, "initContainers": [side, container(cpu="4")]}) == 5000
    assert cpu({"containers": main, "initContainers": [container(cpu="4"), side]}) == 4000
    assert cpu({"containers": main, "initContainers": [side, container(cpu="4"), side, container(cpu="1")]}) == 5000


def test_the_overhead_of_its_runtime_comes_to_what_a_pod_takes():
    spec = {"containers": [container(cpu="1", memory="1Gi")], "overhead": {"cpu": "250m", "memory": "120Mi"}}
    assert resources.amounts_of(spec) == {"pod": 1, "cpu": 1250, "memory": 1144}


def test_resources_of_the_whole_pod_stand_in_the_place_of_its_containers():
    spec = {"containers": [container(cpu="1", memory="1Gi"), container(cpu="1")], "overhead": {"cpu": "100m"}}
    assert resources.amounts_of({**spec, "resources": {"requests": {"cpu": "3"}}}) == {
        **{"pod": 1, "cpu": 3100, "memory": 1024}
    }
    # A limit alone counts where no container asks for any.
    assert cpu({**spec, "resources": {"limits": {"cpu": "8"}}}) == 2100
    assert cpu({"containers": [container()], "resources": {"limits": {"cpu": "8"}}}) == 8000


def test_while_a_pod_is_resized_it_takes_the_larger_of_what_it_asks_for_and_has():
    spec = {"containers": [container(cpu="2")]}

    def status(reason: str = "", **has: Any) -> dict[str, Any]:
        conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
        return {"containerStatuses": [{"name": "a", **has}], "conditions": conditions}

    assert cpu(spec, status(allocatedResources={"cpu": "3"})) == 3000
    assert cpu(spec, status(allocatedResources={"cpu": "1"})) == 2000
    assert cpu(spec, status(resources={"requests": {"cpu": "4"}}, allocatedResources={"cpu": "1"})) == 4000
    assert cpu(spec, status("Deferred", allocatedResources={"cpu": "1"})) == 2000
    assert cpu(spec, status("Infeasible", allocatedResources={"cpu": "1"})) == 1000
    assert cpu(spec, status()) == 2000


def test_extended_resources_have_types_of_their_own():
    asks = {"nvidia.com/gpu": "2", "amd.com/gpu": "1", "hugepages-2Mi": "64Mi", "storage": "1Gi"}
    spec = {"containers": [{"name": "a", "resources": {"limits": asks}}]}
    assert resources.amounts_of(spec) == {"pod": 1, "gpu": 2, "amd.com~gpu": 1, "hugepages-2Mi": 64}


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("cpu", "-1", "must not be negative, it is -1"),
        ("memory", "-1Gi", "must not be negative, it is -1Gi"),
        ("nvidia.com/gpu", "500m", "must be a whole number, not 500m"),
        ("nvidia.com/gpu", "-2", "must not be negative, it is -2"),
        ("example.com/lease", "1.5", "must be a whole number, not 1.5"),
        ("cpu", "many", "must be a quantity such as 500m, 1Gi or 2e3, not 'many'"),
    ],
)
def test_amounts_that_the_api_server_takes_of_no_pod_are_refused_by_name(name, text, rule):
    spec = {"containers": [{"name": "a", "resources": {"requests": {name: text}}}]}
    for one in (spec, {"containers": [], "initContainers": spec["containers"]}, {"overhead": {name: text}}):
        with pytest.raises(resources.Malformed) as caught:
            resources.amounts_of(one)
        assert str(caught.value) == f"resources of its pods: {name}: {rule}"


def test_whole_numbers_of_devices_may_be_spelt_as_any_quantity():
    spec = {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2000m", "example.com/a": "1k"}}}]}
    assert resources.amounts_of(spec) == {"pod": 1, "gpu": 2, "example.com~a": 1000}


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "example.com/a.b_c", "cpu", "hugepages-1Gi"])
def test_the_spelling_of_a_resource_is_reversible(name):
    assert resources.resource_of(resources.type_of(name)) == name


def test_pods_that_keep_apart_ask_for_a_node_each_and_share_it_with_others():
    scheduler = Scheduler(nodes.empty(), "lonode", nodes.FILTERS)
    for rank, name in enumerate("ab"):
        node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}
        scheduler.grow(nodes.part_of(node, rank))
    for jobid in (1, 2):
        request = parse_jobspec(resources.jobspec("a", "ns", 2, {"pod": 1, "cpu": 1000}, is_apart=True))
        found = scheduler.allocate(jobid, request, 0).allocation
        assert found is not None
        assert nodes.names_in(found.selection) == ["a", "b"]
    assert (
        scheduler.allocate(3, parse_jobspec(resources.jobspec("a", "ns", 3, {"pod": 1}, is_apart=True)), 0)[0] is None
    )
