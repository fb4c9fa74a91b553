"""What pods are told: one document that says all, and no secret."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.keygen import certificate
from headrace.minicluster.api.fields import MiniCluster
from headrace.minicluster.api.pod_plan import PodPlan, decode, encode, make_pod_plan
from headrace.minicluster.api.validate import check


def cluster_of(*containers: dict[str, Any], **fields: Any) -> MiniCluster:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    return check({**head, "spec": {"containers": list(containers), **fields}})


def told(*containers: dict[str, Any], **fields: Any) -> PodPlan:
    return make_pod_plan(cluster_of(*containers, **fields))


def test_a_plan_survives_its_text_and_equal_plans_have_equal_texts() -> None:
    fields: dict[str, Any] = {"size": 2, "flux": {"environment": {"B": "1", "A": "ü"}}, "archive": {"path": "/state"}}
    plan = told({"commands": {"script": 'echo "$A" \\$B'}}, **fields)
    assert decode(encode(plan)) == plan
    fields["flux"]["environment"] = {"A": "ü", "B": "1"}
    again = told({"commands": {"script": 'echo "$A" \\$B'}}, **fields)
    assert encode(again) == encode(plan)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": 1}', b"\xff"])
def test_what_is_no_plan_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_hosts_are_all_that_may_join_and_the_first_of_them_leads() -> None:
    plan = told({"command": "x"}, size=2, maxSize=5, minSize=1)
    assert (plan.hosts, plan.lead, plan.size, plan.quorum) == ("c-[0-4]", "c-0", 2, "1")
    assert (plan.service, plan.domain, plan.lead_connect) == ("c", "cluster.local", "")
    assert told({"command": "x"}, network={"headlessName": "net"}).service == "net"
    assert make_pod_plan(cluster_of({"command": "x"}), domain="k8s.example").domain == "k8s.example"


def test_a_lead_elsewhere_is_reached_at_its_own_address() -> None:
    lead = {"address": "10.0.0.9", "name": "parent", "size": 2, "port": 30093}
    bursting = {"leadBroker": lead, "clusters": [{"name": "c", "size": 2}]}
    plan = told({"command": "x"}, size=2, flux={"bursting": bursting})
    assert (plan.lead, plan.lead_connect) == ("10.0.0.9", "tcp://10.0.0.9:30093")
    assert plan.hosts == "10.0.0.9,parent-[1],c-[0-1]"


def test_the_configuration_is_the_users_but_for_where_brokers_are_and_what_they_have() -> None:
    text = '[bootstrap]\ndefault_port = 1\n[resource]\npath = "/R"\nexclude = "0"\n[archive]\nperiod = "1m"\n'
    plan = told({"command": "x"}, flux={"brokerConfig": text})
    ours = {"drain-lost": True, "expects-late-nodes": False}
    assert plan.config == {"archive": {"period": "1m"}, "resource": {"exclude": "0"}, "headrace": ours}
    own = told({"command": "x"}, flux={"brokerConfig": "[headrace]\ndrain-lost = false\n"})
    assert own.config == {"headrace": {**ours, "drain-lost": False}}
    assert "resource" not in told({"command": "x"}).config


def test_sidecars_have_their_texts_by_the_index_of_their_container() -> None:
    side = {"name": "s", "command": "serve\n  -p 1", "commands": {"init": "a=1", "servicePre": "b", "post": "c"}}
    bare = {"name": "n", "noWrapEntrypoint": True}
    plan = told(side, {"command": "x", "runFlux": True, "name": "r"}, bare, flux={"noWaitSocket": True})
    assert set(plan.sidecars) == {"0"}
    sidecar = plan.sidecars["0"]
    assert (sidecar.before, sidecar.command, sidecar.after) == ("a=1\nb\n", "serve   -p 1", "c\n")
    assert not sidecar.waits_for_socket


def test_options_of_a_start_are_passed_on() -> None:
    flux = {
        "completeWorkers": True,
        "disableSocket": True,
        "wrap": "strace,-f",
        "container": {"mountPath": "/opt/flux", "pythonPath": "/p"},
        "curveCert": certificate("c"),
    }
    plan = told({"command": "x"}, flux=flux, interactive=True, logging={"strict": True, "timed": True, "quiet": True})
    assert (plan.complete_workers, plan.disable_socket, plan.wrap) == (True, True, ["strace", "-f"])
    assert (plan.mount_path, plan.python_path) == ("/opt/flux", "/p")
    assert (plan.interactive, plan.strict, plan.timed, plan.quiet) == (True, True, True, True)
    assert "public-key" not in encode(plan)


def test_pods_of_groups_follow_the_clusters_own_and_run_its_job() -> None:
    groups = [{"name": "big", "size": 2}, {"name": "gpu", "size": 1, "maxSize": 2}]
    plan = told({"command": "x"}, size=2, tasks=0, groups=groups)
    assert plan.hosts == "c-[0-1],c-big-[0-1],c-gpu-[0-1]"
    assert (plan.size, plan.quorum, plan.initial_program) == (
        2,
        "5",
        "flux submit --input=/dev/null -N5 --quiet --watch x\n",
    )
    assert [(one.name, one.size, one.max_size) for one in plan.groups] == [("big", 2, 2), ("gpu", 1, 2)]


def test_hosts_of_a_running_instance_keep_their_ranks_when_it_grows() -> None:
    cluster = cluster_of({"command": "x"}, size=4, groups=[{"name": "g"}])
    assert make_pod_plan(cluster, known_hosts="c-[0-1],c-g-0").hosts == "c-[0-1],c-g-0,c-[2-3]"


def test_hosts_that_no_longer_come_are_not_waited_for() -> None:
    cluster = cluster_of({"command": "x"}, size=2, groups=[{"name": "g"}])
    before = make_pod_plan(cluster, known_hosts="c-[0-3],c-g-0")
    assert (before.hosts, before.quorum) == ("c-[0-3],c-g-0", "3"), "they keep their ranks before others"
    after = make_pod_plan(cluster, known_hosts="c-[0-1],c-g-[0-2]")
    assert (after.hosts, after.quorum) == ("c-[0-1],c-g-0", "")
