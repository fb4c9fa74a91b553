"""The operator that `make kube` puts into a developer's cluster."""

from __future__ import annotations

import contextlib
import subprocess
from datetime import datetime, timezone

import pytest
from kubecluster import operator, program
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until

_MINICLUSTER = {
    "apiVersion": "flux-framework.org/v1alpha2",
    "kind": "MiniCluster",
    "metadata": {"name": "hello"},
    "spec": {"size": 2, "containers": [{"image": "local/busybox:1", "command": "echo hello"}]},
}


def test_an_operator_of_this_tree_makes_pods_of_a_minicluster(control_plane: Cluster, namespace: str) -> None:
    operator.start(control_plane, "local/headrace-view:1")
    try:
        where = f"/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/miniclusters"
        control_plane.api.request("POST", where, _MINICLUSTER)

        def views() -> set[str]:
            with contextlib.suppress(KubeError):
                pods = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
                return {pod["spec"]["initContainers"][0]["image"] for pod in pods}
            return set()

        until(lambda: views() == {"local/headrace-view:1"})
        operator.start(control_plane, "local/headrace-view:1")
        assert "operator" in control_plane.box.processes()[0]
        # An operator that loses its Lease ends; the next one goes on.
        lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/headrace-operator"
        holder = control_plane.api.get(lease)["spec"]["holderIdentity"]
        control_plane.api.request("DELETE", lease)
        stolen = {"metadata": {"name": "headrace-operator"}, "spec": {"holderIdentity": "another"}}
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        stolen["spec"] |= {"leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        control_plane.api.request("POST", lease.rpartition("/")[0], stolen)
        until(lambda: "is started again" in control_plane.box.log("operator", 100_000))
        until(lambda: control_plane.api.get(lease)["spec"]["holderIdentity"] not in ("another", holder))
    finally:
        operator.stop(control_plane)


def test_its_webhooks_refuse_a_wrong_minicluster_and_make_a_cluster_of_the_labelled_example(
    control_plane: Cluster, namespace: str
) -> None:
    operator.start(control_plane, "local/headrace-view:1")
    try:
        wrong = {**_MINICLUSTER, "spec": {**_MINICLUSTER["spec"], "flux": {"brokerConfig": "a ="}}}
        where = f"/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/miniclusters"
        with pytest.raises(KubeError, match=r"spec\.flux\.brokerConfig"):
            control_plane.api.request("POST", where, wrong)
        # As docs/user/jobs-on-kubernetes.md shows it.
        example = subprocess.check_output(
            ["sed", "s,debian:12,local/busybox:1,", program.ROOT / "examples/training/job.yaml"], text=True
        )
        control_plane.kubectl("create", f"--namespace={namespace}", "-f", "-", input=example)
        job = control_plane.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/tasks")
        pod = job["spec"]["template"]["spec"]
        assert [one["image"] for one in pod["containers"]] == ["local/busybox:1"]
        assert pod["containers"][0]["command"] == ["/mnt/flux/view/bin/headrace-pod", "cluster"]
        # The operator works on it, too: pods wait for this Secret.
        cluster_id = job["metadata"]["labels"]["flux-framework.org/headrace-cluster"]
        secrets = f"/api/v1/namespaces/{namespace}/secrets"
        until(
            lambda: (
                f"headrace-{cluster_id}" in [one["metadata"]["name"] for one in control_plane.api.get(secrets)["items"]]
            )
        )
    finally:
        operator.stop(control_plane)
    ordinary = control_plane.kubectl(
        "create", f"--namespace={namespace}", "-f", "-", input=example.replace("tasks", "x")
    )
    assert "job.batch/x created" in ordinary
