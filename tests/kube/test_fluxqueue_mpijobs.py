"""MPIJobs in the cluster queue: a launcher and workers that ask for different things, from apply to gone."""

from __future__ import annotations

import pytest
from kubecluster.cluster import Cluster
from mpi_operator import MPIJobs
from running_fluxqueue import Held, pod_spec

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset


@pytest.fixture
def mpijobs(cluster: Cluster, held: Held) -> MPIJobs:
    return MPIJobs(cluster, held.namespace)


def test_an_mpijob_waits_as_one_runs_on_nodes_of_its_sets_and_goes(
    cluster: Cluster, held: Held, mpijobs: MPIJobs
) -> None:
    cpu = f"{int(cluster.api.get('/api/v1/nodes/node-0')['status']['allocatable']['cpu']) * 700}m"
    held.pod("full", cpu=cpu)
    held.wait("full-pod", "Running")
    # Each worker needs a node of its own. If the launcher counted as much, or the workers were bound by its selector,
    # this could never start.
    launcher = {
        **pod_spec("until test -e /tmp/go; do sleep .1; done; echo launched", "10m"),
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
    }
    mpijobs.create(mpijobs.body("mpi", launcher, pod_spec("sleep 3600", cpu), 2))
    mpijobs.until(lambda: held.status("mpi-mpijob").get("position") == 1)
    assert mpijobs.get("mpi")["spec"]["runPolicy"]["suspend"] is True
    assert held.get("jobs", "mpi-launcher")["spec"]["suspend"] is True
    assert [one["metadata"]["name"] for one in held.get("pods")["items"]] == ["full"]
    held.delete("pods", "full")
    mpijobs.until(lambda: held.status("mpi-mpijob").get("state") == "Running")
    status = held.status("mpi-mpijob")
    nodes, sets = list(Hostlist.parse(status["nodes"])), {one["name"]: one["indexes"] for one in status["sets"]}
    places = {name: [nodes[index] for index in Idset.parse(indexes)] for name, indexes in sets.items()}
    assert places["launcher"] == ["node-1"]
    assert [one["spec"]["nodeName"] for one in mpijobs.workers("mpi")] == places["worker"]
    (pod,) = held.pods_of("mpi-launcher")
    assert pod["spec"]["nodeName"] == "node-1"
    # A worker that is lost is made anew at its place.
    lost = mpijobs.workers("mpi")[1]["metadata"]
    held.delete("pods", lost["name"])
    mpijobs.until(
        lambda: (
            [one["spec"].get("nodeName") for one in mpijobs.workers("mpi") if one["metadata"]["uid"] != lost["uid"]]
            == places["worker"]
        )
    )
    mpijobs.until(lambda: held.status("mpi-mpijob").get("pods", {}).get("running") == 3)
    cluster.kubectl("-n", held.namespace, "exec", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    mpijobs.until(lambda: held.status("mpi-mpijob").get("state") == "Finished")
    assert cluster.kubectl("-n", held.namespace, "logs", pod["metadata"]["name"]) == "launched\n"
    # The workers' nodes are free again.
    held.pod("next", "true", cpu=cpu)
    mpijobs.until(lambda: held.status("next-pod").get("state") == "Finished")
    cluster.kubectl("-n", held.namespace, "delete", "mpijob/mpi", "--wait=false")
    mpijobs.until(lambda: not held.status("mpi-mpijob"))
