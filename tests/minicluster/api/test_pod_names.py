"""Names of pods in texts for brokers of one machine: which are replaced, which are reported, and which stay."""

from __future__ import annotations

import pytest

from headrace.minicluster.api.plan import make_plan
from headrace.minicluster.api.pod_names import ADDRESS, PodNames, of_minicluster, on_one_machine
from headrace.minicluster.api.validate import check

NAMES = PodNames("set-work-0", 2, "set", "", "set")
HOST = "set-work-0-1.set"


@pytest.mark.parametrize(
    "text",
    [
        "HOST",
        "HOST:29500",
        "tcp://HOST:29500",
        "http://me@HOST/a/b?c#d",
        "--master=HOST",
        "a:1,HOST:2;HOST:3 HOST",
        'torchrun --master_addr "HOST" x.py\nping HOST; ssh HOST&',
        "connect(('HOST', 1))",
        '{"host": "HOST"}',
        "1=HOST:2888:3888",
        "$(nc -z HOST 80)",
        "`nc HOST 80`",
    ],
)
def test_a_host_becomes_the_address(text: str) -> None:
    for rest in ("", ".", ".default", ".lab.svc", ".lab.svc.cluster.local", ".lab.svc.cluster.local."):
        given = text.replace("HOST", HOST + rest)
        assert NAMES.replaced(given) == text.replace("HOST", ADDRESS)
        assert NAMES.first_name_in(given, given) == HOST + rest


@pytest.mark.parametrize(
    "text",
    [
        "set-work-0-1",
        "/data/set-work-0-1.set/x",
        "set-work-0-1.set.log",
        "my-set-work-0-1.set",
        "set-work-0-1.settle",
        "set-work-0-1x.set",
        "set-work-0-01234567.set",
        "x.set-work-0-1.set",
        "image=set-work-0-1:latest",
        "",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert NAMES.replaced(text) == text


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("set-work-0-1:80", f"{ADDRESS}:80"),
        ("http://set-work-0-1/x", f"http://{ADDRESS}/x"),
        ("set-work-0-{{node.id}}.set:80", f"{ADDRESS}:80"),
    ],
)
def test_a_host_without_its_service_counts_where_a_host_must_be(text: str, after: str) -> None:
    assert NAMES.replaced(text) == after


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("set-work-0-2.set:80", "set-work-0-2.set"),
        ("ping -c 1 set-leader-0-0.set; true", "set-leader-0-0.set"),
        ("for i in 0 1; do ping set-work-0-$i.set; done", "set-work-0-$i.set"),
        ("f'set-work-{i}-0.set.lab.svc'", "set-work-{i}-0.set.lab.svc"),
    ],
)
def test_a_name_without_an_address_is_found(text: str, name: str) -> None:
    assert NAMES.replaced(text) == text
    assert NAMES.first_name_in(text, text) == name


@pytest.mark.parametrize(
    ("text", "given", "name"),
    [
        ("set-work-0-1", "set-work-0-1", "set-work-0-1"),
        ("ping set-work-0-1; true", "ping set-work-0-1; true", "set-work-0-1"),
        ("set-work-0-1", "$(POD)", ""),
        (ADDRESS, "set-work-0-1", ""),
        ("set-work-0-1.log", "set-work-0-1.log", ""),
    ],
)
def test_a_host_without_its_service_is_found_where_a_user_wrote_it(text: str, given: str, name: str) -> None:
    assert NAMES.first_name_in(text, given) == name


def test_a_namespace_that_is_given_is_theirs() -> None:
    given = NAMES._replace(namespace="lab")
    assert given.replaced(f"{HOST}.lab") == ADDRESS
    assert given.replaced(f"{HOST}.other.svc") == f"{HOST}.other.svc"


def test_pods_without_a_service_have_no_name_but_the_host() -> None:
    bare = NAMES._replace(subdomain="")
    assert (bare.replaced(HOST), bare.first_name_in(HOST, HOST)) == (HOST, "")
    assert bare.replaced("set-work-0-1:80") == f"{ADDRESS}:80"


@pytest.mark.parametrize(
    ("text", "index"), [(HOST, 1), ("set-work-0-0", 0), ("set-work-0-2", None), (f"{HOST}:1", None)]
)
def test_the_index_of_a_name(text: str, index: int | None) -> None:
    assert NAMES.index_of(text) == index


def test_a_minicluster_on_one_machine() -> None:
    runner = {
        "image": "debian:12",
        "command": "ping mini-1.meet && ping mini-gpu-0.meet",
        "commands": {"pre": "echo mini-0.meet"},
        "environment": {"LEAD": "mini-0.meet:80", "OWN": "mini-0", "PLAIN": "x"},
    }
    spec = {"size": 2, "containers": [runner], "network": {"headlessName": "meet"}}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "mini"}}
    cluster = check({**head, "spec": spec})
    plan, left = on_one_machine(make_plan(cluster), of_minicluster(cluster))
    assert plan.environment == {"LEAD": f"{ADDRESS}:80", "OWN": "mini-0", "PLAIN": "x"}
    assert f"ping {ADDRESS} && ping mini-gpu-0.meet" in plan.initial_program
    assert f"echo {ADDRESS}" in plan.before
    assert left == ["OWN (mini-0)", "command (mini-gpu-0.meet)"]
